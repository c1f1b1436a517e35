// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The one Core of a process that is observed. Apart from what a Core is: whoever reads what another process
// has left needs nothing of this.
#include <unistd.h>

#include <atomic>

#include "libinject/base/process.h"
#include "libinject/record/core.h"

namespace inject {

namespace {

constinit std::atomic<Core*> the_core{nullptr};
constinit std::atomic<bool> being_made{false};

}  // namespace

Core* Core::get_if_any() noexcept {
  return the_core.load(std::memory_order_acquire);
}

Core* Core::get() noexcept {
  if (Core* core = get_if_any(); core != nullptr) return core;
  if (is_secure_execution()) return nullptr;
  // One thread makes it; another that comes meanwhile goes without, which loses at most a first range.
  if (being_made.exchange(true, std::memory_order_acq_rel)) return get_if_any();
  try {
    auto* core = new Core(parse_options(environ));
    ThreadRegistry::publish(&core->threads);
    the_core.store(core, std::memory_order_release);
    return core;
  } catch (...) {
    return nullptr;  // no memory: the program runs on without us
  }
}

}  // namespace inject
