# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# What `cmake --install` puts where, in components: "runtime" is all that the Python package takes (pyproject.toml).
if(NOT INJECT_WITH_LIBRARY)
  return()
endif()
include(GNUInstallDirs)
install(TARGETS inject LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(TARGETS injectctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(DIRECTORY include/inject TYPE INCLUDE COMPONENT development)
install(FILES LICENSE README.md TYPE DOC COMPONENT documents)
install(DIRECTORY docs/ TYPE DOC COMPONENT documents)

# Manual pages. inject(1) goes where the command does, into the Python package.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(pages ${PROJECT_BINARY_DIR}/man)
file(GLOB page_sources CONFIGURE_DEPENDS man/*.in scripts/libinject/cli.py scripts/libinject/commands/*.py)
add_custom_command(OUTPUT ${pages}/libinject.7.gz
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/make_man_pages.py ${PROJECT_SOURCE_DIR} ${pages} ${PROJECT_VERSION}
  DEPENDS ${page_sources} cmake/make_man_pages.py libinject/config/options.def VERBATIM COMMENT "manual pages")
add_custom_target(man ALL DEPENDS ${pages}/libinject.7.gz)
if(SKBUILD)
  install(FILES ${pages}/inject.1.gz ${pages}/injectctl.1.gz DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT runtime)
  install(FILES ${pages}/libinject.7.gz DESTINATION ${SKBUILD_DATA_DIR}/share/man/man7 COMPONENT runtime)
else()
  install(FILES ${pages}/injectctl.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT documents OPTIONAL)
  install(FILES ${pages}/libinject.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT documents OPTIONAL)
endif()

# find_package(inject)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/inject)
configure_package_config_file(cmake/injectConfig.cmake.in ${PROJECT_BINARY_DIR}/injectConfig.cmake INSTALL_DESTINATION ${package}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_BINDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/injectConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/injectConfig.cmake ${PROJECT_BINARY_DIR}/injectConfigVersion.cmake DESTINATION ${package}
        COMPONENT development)
