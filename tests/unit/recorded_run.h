// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cupti_activity.h>
#include <cupti_activity_deprecated.h>

#include <cstring>
#include <string>
#include <vector>

#include "libinject/journal/journal.h"
#include "libinject/journal/record_file.h"
#include "libinject/journal/run_state.h"
#include "libinject/model/functions.h"
#include "libinject/pipeline/decode.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/buffers.h"
#include "libinject/record/core.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// A run with one thread whose records are in a file, as in a session, but without the session.
struct RecordedRun {
  static constexpr const char* kKernel = "_Z5alphav";
  static constexpr std::uint16_t kGeneration = 1;

  explicit RecordedRun(const std::string& folder, std::size_t ring = 64 * 1024)
      : core(with_ring(ring)),
        buffers(std::size_t{1} << 20),
        statistics(core.names, core.ranges, core.shapes),
        drain(core, windows, statistics, [] {}),
        journal(core, windows) {
    opened = file.open(folder, core, buffers, journal, {kBase, 5}, problem);
    if (opened) queue.keep_counts(*core.threads.kept_counts());
    drain.log_to(journal);
    range = core.ranges.child(0, core.names.intern(":step"), 0, RangeStyle::kPushPop);
    GemmShape gemm;
    gemm.m = gemm.n = gemm.k = 64;
    gemm.flops = 2 * 64 * 64 * 64;
    shape = core.shapes.intern(gemm);
  }

  static constexpr Nanoseconds kBase = 1'000'000;

  static ParseResult with_ring(std::size_t bytes) {
    ParseResult parsed;
    parsed.options.ring_bytes = bytes;
    return parsed;
  }

  void open_window() { windows.open("test", time); }
  void close_window() { windows.end(windows.opened(), time); }

  /// Puts the call's record into the thread's queue; its kernel's record is still to come.
  void launch() { queue.push(core.ring, next_launch(), 1); }
  CallRecord next_launch() {
    CallRecord record;
    record.function = find_function("cudaLaunchKernel");
    record.correlation = ++correlation;
    record.begin = time += 1000;
    record.end = time += 100;
    record.window = windows.opened();
    record.generation = kGeneration;
    record.range = range;
    record.call = correlation;
    return record;
  }

  /// Hands over one of CUPTI's buffers with the kernels of launches first … last, as many as fit.
  void kernels(std::uint32_t first, std::uint32_t last) {
    const ActivityBuffers::Buffer buffer = buffers.take(kGeneration);
    std::size_t at = 0;
    for (std::uint32_t id = first; id <= last; ++id, at += sizeof(CUpti_ActivityKernel9)) {
      CUpti_ActivityKernel9 kernel{};
      kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
      kernel.start = kBase + 1200 * id;
      kernel.end = kernel.start + 10;
      kernel.correlationId = id;
      kernel.gridX = kernel.gridY = kernel.gridZ = kernel.blockX = kernel.blockY = kernel.blockZ = 1;
      kernel.name = kKernel;
      std::memcpy(buffer.data + at, &kernel, sizeof kernel);
    }
    buffers.complete(buffer.data, at);
  }

  /// A call of which only the duration is kept.
  void short_call() {
    queue.add_short_call(core.ring, windows.opened(), {find_function("cudaGetDevice"), 70}, 1);
  }

  /// What the drain thread does with the records.
  void pass() {
    queue.drain(
        core.ring, [this](const Slot& slot) { drain.take(1, slot); },
        [this](const Block& block, BlockPosition from, BlockPosition to, bool done) {
          journal.take_run(1, block, from, to, done);
        });
    drain.retry_pending();
    buffers.handle(buffers.take_completed(), [this](std::uint8_t* data, std::size_t valid,
                                                    std::uint16_t generation, std::uint64_t sequence) {
      journal.begin_buffer(sequence, generation);
      for (std::size_t at = 0; at < valid; at += sizeof(CUpti_ActivityKernel9)) {
        journal.keep_record_size(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, sizeof(CUpti_ActivityKernel9));
        const KernelActivity kernel = decode_kernel(*reinterpret_cast<const CUpti_Activity*>(data + at));
        drain.take(kernel.event, kernel.name, generation);
        journal.take(kernel.event, kernel.name, core.mangled.intern(kernel.name));
      }
      journal.end_buffer();
    });
    journal.commit();
  }

  void settle() {
    drain.settle(0, false);
    windows.settle();
    journal.settled(0, 0, kAllWindows);
  }

  Core core;
  ActivityBuffers buffers;
  WindowLog windows;
  Statistics statistics;
  Drain drain;
  recovery::Journal journal;
  recovery::RecordFile file;
  RecordQueue queue;
  std::string problem;
  bool opened = false;
  Nanoseconds time = kBase;
  std::uint32_t correlation = 0;
  std::uint32_t range = 0;
  std::uint32_t shape = 0;
};

}  // namespace inject
