// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The one Core of a profiled process. Separate from Core itself, because a reader of what another process has
// left needs none of this.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/memory_headroom.h"
#include "libinject/base/process.h"
#include "libinject/record/core.h"

namespace inject {

namespace {

constinit std::atomic<Core*> the_core{nullptr};
enum class Making { kNot, kBegun, kWithout };
constinit std::atomic<Making> making_core{Making::kNot};
constinit std::array<char, 160> no_core_reason{"profiling is off: out of memory"};

// If address space is limited, everything reserved, including threads' stacks and the allocator's own
// reserves, may take at most an eighth of what is left.
constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::uint64_t kReserved = 384 * kMegabyte;
constexpr std::uint64_t kAddressShare = 8;

// Before anything is allocated: if address space is short, all of it belongs to the program.
bool addresses_suffice() noexcept {
  const std::optional<MemoryHeadroom> room = address_space_headroom();
  if (!room || room->left / kAddressShare >= kReserved) return true;
  std::snprintf(no_core_reason.data(), no_core_reason.size(),
                "profiling is off: it reserves %llu MB of addresses, more than an eighth of the %llu MB that "
                "ulimit -v leaves",
                static_cast<unsigned long long>(kReserved / kMegabyte),
                static_cast<unsigned long long>(room->left / kMegabyte));
  return false;
}

// What is needed beside queues and buffers is at least some 12 MB: a quarter of what a limit leaves.
constexpr std::uint64_t kMinMemory = 48 * kMegabyte;
// Queues and CUPTI's buffers take at most a sixteenth of what a limit leaves, so that the record file, in
// which they live and which may be in memory, takes at most an eighth.
constexpr std::uint64_t kArenaShare = 16;
constexpr std::size_t kMinRing = std::size_t{64} << 10;
constexpr std::size_t kMinBuffers = std::size_t{1} << 20;

void fit_arenas(ParseResult& parsed) {
  Options& options = parsed.options;
  const std::optional<MemoryHeadroom> memory = group_memory();
  const std::uint64_t wanted = options.ring_bytes + options.buffer_bytes;
  std::string why;
  std::uint64_t budget = wanted;
  const auto figures = [](const MemoryHeadroom& room, const char* whose) {
    return std::to_string(room.left / kMegabyte) + " MB are left of the " +
           std::to_string(room.limit / kMegabyte) + whose;
  };
  const auto within = [&](const std::optional<MemoryHeadroom>& room, const char* whose) {
    if (!room || room->left / kArenaShare >= budget) return;
    budget = room->left / kArenaShare;
    why = figures(*room, whose);
  };
  constexpr const char* kOfGroup = " MB of memory of its control group";
  if (memory && memory->left < kMinMemory) {
    parsed.error =
        figures(*memory, kOfGroup) + ", too little to profile alongside the program: profiling is off";
    return;
  }
  within(memory, kOfGroup);
  within(address_space_headroom(), " MB of addresses (ulimit -v)");
  if (budget == wanted) return;
  const auto fit = [&](const char* name, std::size_t& bytes, std::size_t least) {
    const auto share = static_cast<std::size_t>(static_cast<double>(bytes) * static_cast<double>(budget) /
                                                static_cast<double>(wanted));
    bytes = std::min(bytes, std::max(share / kMinRing * kMinRing, least));
    std::string text = std::to_string(bytes >> 10) + "K";
    for (auto& [variable, value] : options.in_force)
      if (variable == name) value = text;
    return name + ("=" + text);
  };
  const std::string ring = fit("INJECT_RING", options.ring_bytes, kMinRing);
  const std::string buffers = fit("INJECT_BUFFERS", options.buffer_bytes, kMinBuffers);
  parsed.warnings.push_back(ring + " and " + buffers + " are used: " + why);
}

}  // namespace

Core* Core::get_if_any() noexcept {
  return the_core.load(std::memory_order_acquire);
}

Core* Core::get() noexcept {
  if (Core* core = get_if_any(); core != nullptr) return core;
  if (is_secure_execution()) return nullptr;
  // One thread creates it; another that arrives in the meantime goes without, which loses a first range at
  // most.
  Making not_yet = Making::kNot;
  if (!making_core.compare_exchange_strong(not_yet, Making::kBegun, std::memory_order_acq_rel))
    return get_if_any();
  if (!addresses_suffice()) {
    making_core.store(Making::kWithout, std::memory_order_release);
    return nullptr;
  }
  try {
    ParseResult parsed = parse_options(environ);
    if (parsed.error.empty()) {
      // Nothing will be recorded, and a program that locks its memory (mlockall) would hold all of the
      // tables.
      if (parsed.options.window.kind == WindowKind::kOff) {
        making_core.store(Making::kWithout, std::memory_order_release);
        return nullptr;
      }
      fit_arenas(parsed);
    }
    auto* core = new Core(std::move(parsed));
    ThreadRegistry::publish(&core->threads);
    the_core.store(core, std::memory_order_release);
    return core;
  } catch (...) {
    making_core.store(Making::kWithout, std::memory_order_release);
    return nullptr;  // out of memory: the program runs on without us
  }
}

const char* Core::why_none() noexcept {
  return no_core_reason.data();
}

Core* Core::get_or_wait() noexcept {
  Core* core = get();
  // Bounded, because a signal handler that interrupts the creating thread would wait for ever.
  constexpr int kMaxTries = 1000;
  for (int i = 0; core == nullptr && i < kMaxTries; ++i) {
    if (making_core.load(std::memory_order_acquire) != Making::kBegun) break;
    sleep_for(kMillisecond);
    core = get_if_any();
  }
  return core;
}

}  // namespace inject
