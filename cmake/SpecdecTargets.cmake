# What every target of this project is compiled with, and the one way to declare a library or a program.

add_library(specdec_flags INTERFACE)
target_compile_features(specdec_flags INTERFACE cxx_std_20)
target_include_directories(specdec_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
# No fast-math and no contraction: which multiply-adds are fused is written in the source, so that the bits do
# not depend on what the optimiser found (docs/numerics.md, rule 5).
target_compile_options(specdec_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  -ffp-contract=off -fno-math-errno)
if(SPECDEC_SANITIZE)
  target_compile_options(specdec_flags INTERFACE -fsanitize=${SPECDEC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(specdec_flags INTERFACE -fsanitize=${SPECDEC_SANITIZE})
endif()

# specdec_library(NAME SOURCES a.cpp ... DEPENDS lib ... [PRIVATE lib ...])
function(specdec_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  add_library(specdec::${name} ALIAS ${name})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:specdec_flags> ${ARG_PRIVATE})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
endfunction()

# specdec_program(NAME SOURCES a.cpp ... DEPENDS lib ...)
function(specdec_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE specdec_flags ${ARG_DEPENDS})
endfunction()
