# `cmake --install` and find_package(specdec): bin/, lib/, include/specdec/, share/specdec/{configs,assets}, and the package files.
include(CMakePackageConfigHelpers)

set(SPECDEC_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/specdec)
install(EXPORT specdec NAMESPACE specdec:: DESTINATION ${SPECDEC_PACKAGE_DIR} FILE specdecTargets.cmake)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/specdecConfig.cmake.in
  ${PROJECT_BINARY_DIR}/specdecConfig.cmake INSTALL_DESTINATION ${SPECDEC_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/specdecConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/specdecConfig.cmake ${PROJECT_BINARY_DIR}/specdecConfigVersion.cmake
  DESTINATION ${SPECDEC_PACKAGE_DIR})
if(NCCL_FOUND)
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake DESTINATION ${SPECDEC_PACKAGE_DIR})
endif()

# Programs find their data at ../share/specdec from where they are, installed or not: in the build tree these are links.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/share/specdec)
foreach(folder configs assets)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/specdec)
  endif()
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/share/specdec/${folder} SYMBOLIC)
endforeach()
# What specdec_study draws its report with.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/launch/report DESTINATION ${CMAKE_INSTALL_DATADIR}/specdec)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/launch/report ${PROJECT_BINARY_DIR}/share/specdec/report SYMBOLIC)
# The installed counterpart of the build tree's env.sh; only the installation knows its prefix.
install(CODE "
  file(REAL_PATH \"\${CMAKE_INSTALL_PREFIX}\" prefix)
  string(REPLACE \"'\" \"'\\\\''\" SPECDEC_QUOTED_BIN \"\${prefix}/${CMAKE_INSTALL_BINDIR}\")
  configure_file([[${PROJECT_SOURCE_DIR}/launch/env.sh.in]]
    \"\$ENV{DESTDIR}\${prefix}/${CMAKE_INSTALL_DATADIR}/specdec/env.sh\" @ONLY)")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
