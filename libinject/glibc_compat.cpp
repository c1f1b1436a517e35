// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Definitions of our own for what newer glibc headers and the static C++ runtime ask of the C library and glibc 2.28
// does not have. Hidden: they serve this library alone.

extern "C" {

// GLIBC_2.32: lets libstdc++ skip atomic operations. "Never single-threaded" is always right.
extern char __libc_single_threaded;
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
