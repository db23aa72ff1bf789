# Tests under mpirun.

# What mpirun needs on one machine: more ranks than cores, waiting ranks that give their core away, and root in containers.
set(SPECDEC_MPI_ENVIRONMENT
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
  OMPI_MCA_btl_vader_single_copy_mechanism=none)

# specdec_mpi_test(NAME t RANKS 1 2 4 8 SOURCES a.cpp ... [DEPENDS lib ...] [TIMEOUT seconds])
#
# Builds one GoogleTest program with tests/mp/mpi_test.h's main and registers it once per rank count as mp.t.ranksN. A failure on any
# rank fails the test and shows with its rank; a program without tests fails; ranks that wait for ever are ended.
function(specdec_mpi_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "RANKS;SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_RANKS)
    message(FATAL_ERROR "specdec_mpi_test(${ARG_NAME}): no RANKS")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(program mp_${ARG_NAME})
  specdec_executable(${program} SOURCES ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/mp/mpi_test.cpp
    DEPENDS runtime fmt::fmt nlohmann_json::nlohmann_json Threads::Threads GTest::gtest ${ARG_DEPENDS})
  target_compile_definitions(${program} PRIVATE ${SPECDEC_TEST_DEFINITIONS})
  foreach(ranks IN LISTS ARG_RANKS)
    set(test mp.${ARG_NAME}.ranks${ranks})
    add_test(NAME ${test}
      COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
              $<TARGET_FILE:${program}> ${MPIEXEC_POSTFLAGS})
    # Serial: ranks that share the cores with other tests only slow each other down.
    set_tests_properties(${test} PROPERTIES
      LABELS mp TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks} RUN_SERIAL ON ENVIRONMENT "${SPECDEC_MPI_ENVIRONMENT}")
  endforeach()
endfunction()
