# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# Tool chain of Debian's g++-aarch64-linux-gnu; what is built runs under qemu-user (scripts/test_aarch64.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# Programs, which are tests all but injectctl, a static one: with the loader and libraries where Debian has them on other
# machines. The emulator's -L would do as well, but lets programs see that folder in place of the root folder.
set(libraries /usr/aarch64-linux-gnu/lib)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--dynamic-linker=${libraries}/ld-linux-aarch64.so.1,--disable-new-dtags,-rpath=${libraries}")
