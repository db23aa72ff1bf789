# With SPECDEC_CUDA=ON: the CUDA language, its libraries, and for which GPUs is compiled (docs/gpu.md).

# Where a toolkit is looked for: whatever CMake and nvcc's users name, PATH, the usual place, and where launch/cuda-from-wheels.sh puts one.
find_program(SPECDEC_NVCC NAMES ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX} nvcc
  HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} PATHS /usr/local/cuda ${PROJECT_SOURCE_DIR}/build/cuda-toolkit PATH_SUFFIXES bin
  DOC "nvcc of CUDA 12 or 13")
if(NOT SPECDEC_NVCC)
  message(FATAL_ERROR "SPECDEC_CUDA=ON: found no nvcc, expected CUDA 12 or 13: install the toolkit and set CUDA_HOME, or run launch/cuda-from-wheels.sh")
endif()
execute_process(COMMAND ${SPECDEC_NVCC} --list-gpu-arch OUTPUT_VARIABLE compilable RESULT_VARIABLE status
  ERROR_VARIABLE error OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "SPECDEC_CUDA=ON: ${SPECDEC_NVCC} --list-gpu-arch: ${status} ${error}")
endif()
string(REGEX MATCHALL "[0-9]+" compilable "${compilable}")

# Machine code for A100 (80), H100 and H200 (90) and B200 (100). Machine code runs within its major version only, PTX also on whatever comes
# later, at the price of a translation at the first start: so there is PTX of the newest, and of no other. CUDA before 12.8 does not know 100.
set(SPECDEC_CUDA_ARCHITECTURES "" CACHE STRING "As CMAKE_CUDA_ARCHITECTURES; empty: those of 80, 90 and 100 that the compiler knows, and PTX")
set(CMAKE_CUDA_ARCHITECTURES ${SPECDEC_CUDA_ARCHITECTURES})
if(NOT CMAKE_CUDA_ARCHITECTURES)
  foreach(architecture 80 90 100)
    if(architecture IN_LIST compilable)
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture}-real)
      set(newest ${architecture})
    else()
      message(STATUS "CUDA: this nvcc does not compile for compute capability ${architecture}: left out")
    endif()
  endforeach()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "SPECDEC_CUDA=ON: ${SPECDEC_NVCC} compiles for none of 80, 90 and 100: name others in SPECDEC_CUDA_ARCHITECTURES")
  endif()
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${newest}-virtual)
endif()

set(CMAKE_CUDA_COMPILER ${SPECDEC_NVCC})
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know how nvcc is told
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit 12 REQUIRED)
# Installed programs find NCCL and cuBLAS where they were linked, which may be in no place that the system knows.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
find_package(NCCL QUIET)  # parallel/CMakeLists.txt
set(nccl "no NCCL (so no transports nccl and nccl-fast)")
if(NCCL_FOUND)
  set(nccl "NCCL ${NCCL_VERSION}")
endif()
# Nothing is linked with cuBLAS yet.
set(cublas "no cuBLAS")
if(TARGET CUDA::cublas)
  set(cublas "cuBLAS")
endif()
list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
set(SPECDEC_CUDA_VERSION "${CUDAToolkit_VERSION} for ${architectures}")  # as --version has it
message(STATUS "CUDA ${SPECDEC_CUDA_VERSION}, with ${cublas} and ${nccl}")
