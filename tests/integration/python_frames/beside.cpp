// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Loads the given library, which looks like Python, and looks for frames. Prints whether Python was found,
// whether there was a frame, and whether Python may still be read.
#include <dlfcn.h>

#include <cstdio>

#include "libinject/base/log.h"
#include "libinject/capture/python/frame_reader.h"

int main(int argc, char** argv) {
  inject::Log::open(inject::LogLevel::kDebug, "");
  if (inject::find_python()) return 2;
  if (argc < 2 || dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) return 3;
  const bool found = inject::find_python();
  const bool has_frame = static_cast<bool>(inject::innermost_frame());
  const bool still_found = inject::find_python();
  std::printf("%d %d %d\n", found ? 1 : 0, has_frame ? 1 : 0, still_found ? 1 : 0);
  return 0;
}
