# What every target of this project is compiled with, and the one way to declare a library or a program.

add_library(specdec_flags INTERFACE)
target_compile_features(specdec_flags INTERFACE cxx_std_20)
target_include_directories(specdec_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
# No fast-math and no contraction: which multiply-adds are fused is written in the source, so that the bits do
# not depend on what the optimiser found (docs/numerics.md, rule 5).
set(cxx_flags -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Werror
  -ffp-contract=off -fno-math-errno)
target_compile_options(specdec_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_flags};-Wpedantic>")
# Files that are compiled as one (unity builds) are not the main file, whose types GCC lets have members of anonymous namespaces.
target_compile_options(specdec_flags INTERFACE "$<$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>:-Wno-subobject-linkage>")
# The same rule on the device, where subnormals are flushed as on every thread of the CPU. What nvcc writes for the host compiler has line
# markers of GCC's own, so it is not pedantic; its remark 554 is about BasicRows<const T>, whose conversion to itself is never called; and
# fmt 9 takes nvcc for a compiler without constexpr.
list(JOIN cxx_flags , host_flags)
target_compile_options(specdec_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-ftz=true;--expt-relaxed-constexpr;-Werror=all-warnings;-diag-suppress=554;-DFMT_USE_CONSTEXPR=1;-Xcompiler=${host_flags}>")
if(SPECDEC_SANITIZE)
  target_compile_options(specdec_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${SPECDEC_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(specdec_flags INTERFACE -fsanitize=${SPECDEC_SANITIZE})
endif()

# All programs, for `cmake --build --target programs`.
add_custom_target(programs)

# specdec_library(NAME SOURCES a.cpp ... DEPENDS lib ... [PRIVATE lib ...])
function(specdec_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  add_library(specdec::${name} ALIAS ${name})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:specdec_flags> ${ARG_PRIVATE})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/specdec>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  # Installed archives are called libspecdec_backend.a and so on; the targets stay specdec::backend.
  set_target_properties(${name} PROPERTIES OUTPUT_NAME specdec_${name})
  install(TARGETS ${name} EXPORT specdec ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/specdec
    FILES_MATCHING PATTERN "*.h")
endfunction()

# specdec_compile_options(FILE OPTIONS): of one source file of this folder. CMake itself says nothing when there is no such file any more, which costs what the
# options were for.
function(specdec_compile_options file options)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    message(FATAL_ERROR "specdec_compile_options: found no ${file} in ${CMAKE_CURRENT_SOURCE_DIR}, expected the file that the options are for")
  endif()
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${options}")
endfunction()

# specdec_executable(NAME SOURCES a.cpp ... DEPENDS lib ...): a test or a benchmark.
function(specdec_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE specdec_flags ${ARG_DEPENDS})
endfunction()

# specdec_program(NAME SOURCES a.cpp ... DEPENDS lib ...): what a user runs; it is installed.
function(specdec_program name)
  specdec_executable(${name} ${ARGN})
  add_dependencies(programs ${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()
