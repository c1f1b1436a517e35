// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The functions that an NVTX client's table receives, called by several threads at once.
#include "libinject/capture/nvtx/injection.h"

#include <nvtx3/nvToolsExt.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "libinject/record/core.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

using Start = nvtxRangeId_t (*)(const char*);
using End = void (*)(nvtxRangeId_t);

std::array<NvtxFunctionPointer, NVTX_CBID_CORE_SIZE> functions{};
std::array<NvtxFunctionPointer*, NVTX_CBID_CORE_SIZE + 1> nvtx_table{};

int module_table(NvtxCallbackModule module, NvtxFunctionTable* out, unsigned int* size) {
  if (module != NVTX_CB_MODULE_CORE) return 0;
  *out = nvtx_table.data();
  *size = NVTX_CBID_CORE_SIZE;
  return 1;
}

const void* export_table(std::uint32_t id) {
  static const NvtxExportTableCallbacks callbacks{sizeof callbacks, &module_table};
  return id == NVTX_ETID_CALLBACKS ? &callbacks : nullptr;
}

void attach() {
  for (std::size_t i = 0; i < functions.size(); ++i) nvtx_table[i] = &functions[i];
  REQUIRE(nvtx_attach(&export_table) == 1);
}

}  // namespace

TEST_CASE("ranges that other threads end leave their owner's path, whoever takes their places meanwhile") {
  attach();
  const auto start = reinterpret_cast<Start>(functions[NVTX_CBID_CORE_RangeStartA]);
  const auto end = reinterpret_cast<End>(functions[NVTX_CBID_CORE_RangeEnd]);
  REQUIRE(start("first") != 0);  // Core exists from here on

  // All but a few places are taken, so that a released place is the next one to be used.
  std::vector<nvtxRangeId_t> kept;
  while (kept.size() < 4096) {
    const nvtxRangeId_t id = start("kept");
    if (id == 0) break;
    kept.push_back(id);
  }
  for (int i = 0; i < 3; ++i) {
    end(kept.back());
    kept.pop_back();
  }

  constexpr int kRounds = 4000;
  std::atomic<nvtxRangeId_t> handed{0};
  std::atomic<bool> over{false};
  std::uint32_t left = 1;
  std::uint32_t lost = 0;
  std::uint32_t path = 1;
  std::thread owner([&] {
    ThreadState& thread = *ThreadRegistry::current();
    for (int i = 0; i < kRounds; ++i) {
      const nvtxRangeId_t id = start("owned");
      if (id == 0) continue;
      handed.store(id, std::memory_order_release);
      // Without the yields here and below, a machine with few CPUs takes a minute.
      while (handed.load(std::memory_order_acquire) != 0) {
        nvtx_current(thread);
        std::this_thread::yield();
      }
      nvtx_current(thread);
    }
    over = true;
    path = nvtx_current(thread);
    left = thread.ended_ranges.load();
  });
  std::thread taker([&] {
    ThreadState& thread = *ThreadRegistry::current();
    while (!over) {
      const nvtxRangeId_t id = start("taken");
      if (id == 0) continue;
      // The owner never removes one of these.
      const bool on_path = nvtx_current(thread) != 0;
      end(id);
      if (!on_path || nvtx_current(thread) != 0) ++lost;
      std::this_thread::yield();
    }
  });
  while (!over) {
    const nvtxRangeId_t id = handed.load(std::memory_order_acquire);
    if (id == 0) {
      std::this_thread::yield();
      continue;
    }
    end(id);
    end(id);  // a program may end a range twice
    handed.store(0, std::memory_order_release);
  }
  owner.join();
  taker.join();
  CHECK(left == 0);
  CHECK(path == 0);
  CHECK(lost == 0);
  for (const nvtxRangeId_t id : kept) end(id);
}

TEST_CASE(
    "ranges of exited threads leave their places free, whether they are ended before or after the exit") {
  attach();
  const auto start = reinterpret_cast<Start>(functions[NVTX_CBID_CORE_RangeStartA]);
  const auto end = reinterpret_cast<End>(functions[NVTX_CBID_CORE_RangeEnd]);
  const bool ended_first = GENERATE(false, true);
  // More than there are places, but few at once.
  for (int round = 0; round < 10; ++round) {
    std::vector<nvtxRangeId_t> ids(500);
    std::atomic<bool> started{false};
    std::atomic<bool> may_exit{!ended_first};
    std::thread owner([&] {
      for (nvtxRangeId_t& id : ids) id = start("owned");
      started = true;
      started.notify_one();
      may_exit.wait(false);
    });
    started.wait(false);
    if (!ended_first) owner.join();
    for (const nvtxRangeId_t id : ids) {
      CHECK(id != 0);
      end(id);
    }
    may_exit = true;
    may_exit.notify_one();
    if (ended_first) owner.join();
  }
}
