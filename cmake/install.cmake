# SPDX-License-Identifier: Apache-2.0
#
# make install: both libraries, the headers, and descriptions for pkg-config and CMake.
# An installed tree may be moved; nothing in it holds an absolute path.

include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/bolide)

install(TARGETS bolide_shared EXPORT bolide_shared)
install(TARGETS bolide_static EXPORT bolide_static)
install(DIRECTORY include/bolide TYPE INCLUDE)
install(FILES LICENSE TYPE DOC)

# The static library needs find_package(OpenMP) in the user's project, the shared one does not:
# two files, and the first is read only where OpenMP is found.
install(EXPORT bolide_shared NAMESPACE bolide:: DESTINATION ${package_folder})
install(EXPORT bolide_static NAMESPACE bolide:: DESTINATION ${package_folder})
configure_package_config_file(cmake/bolide-config.cmake.in ${PROJECT_BINARY_DIR}/bolide-config.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bolide-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bolide-config.cmake
  ${PROJECT_BINARY_DIR}/bolide-config-version.cmake DESTINATION ${package_folder})

file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/bolide.pc.in ${PROJECT_BINARY_DIR}/bolide.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bolide.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
