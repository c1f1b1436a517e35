// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/core.h"

#include <unistd.h>

#include <atomic>
#include <utility>

#include "libinject/process.h"

namespace inject {

namespace {

constexpr std::uint32_t kMostNames = 1u << 17;
constexpr std::size_t kMostNameBytes = std::size_t{64} << 20;
constexpr std::uint32_t kMostShapes = 1u << 15;
// Some thirty graphs of a thousand kernels, each once as captured and once as instantiated.
constexpr std::uint32_t kMostGraphNodes = 1u << 16;
constexpr std::uint32_t kMostRangeNodes = 1u << 17;

constinit std::atomic<Core*> the_core{nullptr};
constinit std::atomic<bool> being_made{false};

}  // namespace

Core::Core(ParseResult parsed)
    : configuration(std::move(parsed)),
      names(kMostNames, kMostNameBytes),
      mangled(kMostNames, kMostNameBytes),
      shapes(kMostShapes),
      graph_nodes(kMostGraphNodes),
      ranges(kMostRangeNodes),
      ring(configuration.options.ring_bytes),
      threads(ring),
      nvtx_trigger(configuration.options.window) {}

Core* Core::get_if_any() noexcept {
  return the_core.load(std::memory_order_acquire);
}

Core* Core::get() noexcept {
  if (Core* core = get_if_any(); core != nullptr) return core;
  if (has_other_rights()) return nullptr;
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
