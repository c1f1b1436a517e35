// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Held around each walk over the loaded objects and each dlopen. fork() copies the loader's locks as they
/// are, and glibc releases only some of them in the child: if one of our threads were inside dl_iterate_phdr
/// at that moment, the child would hang in its first dlopen. Forking program threads wait until there is no
/// use; both waits are bounded, because a signal handler may interrupt them. Can be nested on one thread.
class DynamicLoaderGuard {
 public:
  DynamicLoaderGuard() noexcept;
  DynamicLoaderGuard(const DynamicLoaderGuard&) = delete;
  DynamicLoaderGuard& operator=(const DynamicLoaderGuard&) = delete;
  ~DynamicLoaderGuard();

  /// Uses of this process count from here on: called when the library is loaded, and where the functions
  /// below are registered. Not from the first use on, because that may be a vfork() child's.
  static void count_in_this_process() noexcept;

  /// For pthread_atfork.
  static void before_fork() noexcept;
  static void after_fork() noexcept;
  static void after_fork_in_child() noexcept;

 private:
  bool counted_;
};

}  // namespace inject
