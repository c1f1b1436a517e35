// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Another tool's library, preloaded or loaded by the driver: prints at the end how often it has been called.
#include <cstdio>

namespace {

struct Count {
  int calls = 0;
  ~Count() {
    if (calls != 0) std::fprintf(stderr, "injected: %d\n", calls);
  }
} count;

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  ++count.calls;
  return 1;
}
