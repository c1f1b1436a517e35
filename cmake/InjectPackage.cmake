# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# The Debian package, by `cpack` in a build folder of the preset "package" (scripts/package.sh deb): the library, injectctl,
# header, CMake package, manual pages and documents. The command inject is Python's: pip installs it.
if(NOT INJECT_WITH_LIBRARY)
  return()
endif()
set(debian ${PROJECT_BINARY_DIR}/debian)
file(CONFIGURE OUTPUT ${debian}/copyright @ONLY CONTENT "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: libinject

Files: *
Copyright: 2026 The libinject authors
License: Apache-2.0
 On Debian systems, the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.
")
# A library to preload, which nobody links, has no versions of its interface, and brings zlib itself, as the program may have another.
# injectctl goes to other machines with it. And CPack writes scripts that call ldconfig beside the trigger.
file(CONFIGURE OUTPUT ${debian}/overrides @ONLY CONTENT "libinject: shared-library-lacks-version
libinject: statically-linked-binary
libinject: maintscript-calls-ldconfig
libinject: embedded-library *zlib*
")
file(CONFIGURE OUTPUT ${debian}/triggers @ONLY CONTENT "activate-noawait ldconfig
")
install(FILES ${debian}/copyright TYPE DOC COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME libinject COMPONENT debian EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The libinject authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development documents debian)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME libinject)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "profiler of GPU training programs, by LD_PRELOAD")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Preloaded into a program that uses CUDA, libinject.so profiles a few of its
training iterations, and leaves a folder of CSV tables that say where the GPU's
time went, and why. The program, its framework and its build stay as they are.")
include(CPack)
