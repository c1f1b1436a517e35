// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Preloaded beside libinject.so: reports everything under $NETWORK_FOLDER as being on a network file system
// (NFS).
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

extern "C" __attribute__((visibility("default"))) int fstatfs(int file, struct statfs* found) noexcept {
  static auto* real = reinterpret_cast<int (*)(int, struct statfs*)>(dlsym(RTLD_NEXT, "fstatfs"));
  const int result = real(file, found);
  const char* folder = getenv("NETWORK_FOLDER");
  char name[64];
  char path[PATH_MAX];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(name, path, sizeof path - 1);
  if (result != 0 || folder == nullptr || length <= 0) return result;
  path[length] = '\0';
  if (strncmp(path, folder, strlen(folder)) == 0) found->f_type = 0x6969;
  return result;
}
