// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Kernels by name.
#include <map>
#include <mutex>
#include <string>

#include "tests/sim/core/device.h"

namespace inject::sim {

KernelBehaviour Kernel::behaviour() {
  std::lock_guard lock(mutex_);
  std::uint32_t now = settings_generation();
  if (generation_ != now) {
    cached_ = kernel_behaviour(name);
    generation_ = now;
  }
  return cached_;
}

Kernel& kernel_by_name(std::string_view name) {
  // Leaked: see base.cpp.
  static auto& kernels = *new std::map<std::string, Kernel*, std::less<>>;
  std::lock_guard lock(world());
  auto found = kernels.find(name);
  if (found == kernels.end()) {
    found = kernels.emplace(std::string(name), new Kernel).first;
    found->second->name = intern(name);
  }
  return *found->second;
}

}  // namespace inject::sim
