// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A preloaded library with much thread-local storage, which is part of every thread's stack.

namespace {

__attribute__((tls_model("initial-exec"))) thread_local char storage[2'000'000];

__attribute__((constructor)) void use_storage() {
  static volatile char* used = storage;
  used[0] = 1;
}

}  // namespace
