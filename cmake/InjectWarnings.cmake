# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_warnings: the warning set that every target of ours is built with; warnings are errors.
add_library(inject_warnings INTERFACE)
target_compile_options(inject_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)
# GCC 12 takes joined strings for overlapping copies (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(inject_warnings INTERFACE -Wno-restrict)
  # … and, with several files in one, of the same operator's bounds: seen, but no error there.
  if(INJECT_JOIN)
    target_compile_options(inject_warnings INTERFACE -Wno-error=array-bounds)
  endif()
endif()
# Of files that are compiled as one, a local of one shadows a name in the unnamed namespace of another, for Clang; for GCC,
# which compiles the same files, it never does.
if(INJECT_JOIN AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(inject_warnings INTERFACE -Wno-shadow)
endif()
