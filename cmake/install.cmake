# `cmake --install build/release --prefix DIR`: headers, libraries, and the files with which
# find_package(iha [COMPONENTS torch]) finds them.
include(CMakePackageConfigHelpers)

set(iha_config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/iha)
install(TARGETS iha_core EXPORT iha_core_targets)
install(EXPORT iha_core_targets NAMESPACE iha:: DESTINATION ${iha_config_folder})
set(iha_header_folders core patterns schedule kernels io report)
if(IHA_TORCH)
  # Consumers get torch from find_package(Torch) in the config file, not from this build's flags.
  set_target_properties(iha_torch PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS iha_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS iha RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  list(APPEND iha_header_folders ops nn models)
endif()
foreach(folder ${iha_header_folders})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/iha/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/iha
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/src/iha/core.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/iha)
if(IHA_TORCH)
  install(FILES ${PROJECT_SOURCE_DIR}/src/iha/iha.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/iha)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/iha-config.cmake.in ${PROJECT_BINARY_DIR}/iha-config.cmake
                              INSTALL_DESTINATION ${iha_config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/iha-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/iha-config.cmake ${PROJECT_BINARY_DIR}/iha-config-version.cmake
        DESTINATION ${iha_config_folder})
