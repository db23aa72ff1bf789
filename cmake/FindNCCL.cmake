# FindNCCL: NCCL::NCCL, with NCCL_VERSION, from NCCL_ROOT, the CUDA toolkit, the system, or Python's site-packages (the wheels nvidia-nccl-cu12
# and nvidia-nccl-cu13 put it at nvidia/nccl there, without the name libnccl.so).
set(nccl_hints $ENV{NCCL_HOME} $ENV{CUDA_HOME} ${CUDAToolkit_TARGET_DIR} ${CUDAToolkit_BIN_DIR}/..)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  list(APPEND nccl_hints ${Python3_SITELIB}/nvidia/nccl)
endif()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_hints} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${NCCL_INCLUDE_DIR}/.. ${nccl_hints} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_INCLUDE_DIR)
  set(NCCL_VERSION "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "^#define NCCL_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND NCCL_VERSION ${number})
  endforeach()
  list(JOIN NCCL_VERSION . NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
