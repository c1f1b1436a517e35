// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A run's cost in time and memory grows no faster than what the program does: tens of thousands of threads,
// open ranges, names, streams, windows, shapes and communicators must not delay the exit.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "libinject/model/functions.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/core.h"
#include "libinject/stats/statistics.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

/// CPU time of this thread, which depends less on other load of the machine.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

double heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// What a drain thread receives, up to the tables.
class Run {
 public:
  Run() { open_window(); }

  void open_window() { windows_.open("test", now_ += 1000); }
  void close_window() { windows_.end(windows_.opened(), now_ += 1000); }

  std::uint32_t range(std::uint32_t parent, const std::string& name, RangeStyle style) {
    return core_.ranges.child(parent, core_.names.intern(name), 0, style);
  }
  std::uint32_t shape(const CallShape& shape) { return core_.shapes.intern(shape); }

  void edge(std::uint32_t thread, RangeEdge edge, std::uint32_t node) {
    RangeRecord record;
    record.edge = edge;
    record.node = node;
    record.time = now_ += 10;
    record.window = windows_.opened();
    tell(thread, record);
  }

  struct Launch {
    const char* library_call = "cublasLtMatmul";
    std::uint32_t thread = 1;
    std::uint32_t range = 0;
    std::uint32_t stream = 7;
    std::uint32_t shape = 0;
    std::string name = "_Z5alphav";
  };
  /// A kernel, after which the device is idle.
  void launch(const Launch& launch) {
    CallRecord record = call("cudaLaunchKernel", launch.range);
    record.correlation = ++correlation_;
    record.shape = launch.shape;
    if (launch.shape != 0) {
      record.owner = ++calls_;
      record.chain = chain_push(0, find_function(launch.library_call));
    }
    tell(launch.thread, record);
    if (launch.shape != 0) {
      CallRecord around = call(launch.library_call, launch.range);
      around.flags = kCallOwnsShape;
      around.shape = launch.shape;
      around.call = record.owner;
      tell(launch.thread, around);
    }
    kernel(launch.name, launch.stream, correlation_);
  }
  void kernel(const std::string& name, std::uint32_t stream, std::uint32_t correlation) {
    KernelEvent event;
    event.start = now_ += 500;
    event.end = now_ += 500;
    event.stream = stream;
    event.correlation = correlation;
    event.grid = event.block = {1, 1, 1};
    drain_.take(event, name, kGeneration);
  }
  void wait(std::uint32_t thread) { tell(thread, call("cudaDeviceSynchronize", 0)); }

  void settle() {
    drain_.settle(0, true);
    windows_.settle(0, 0);
  }
  void tables() const {
    const auto& s = statistics_;
    rows_ = s.kernels().size() + s.kernel_shapes().size() + s.kernel_details().size() + s.api_calls().size() +
            s.operation_times().size() + s.operation_sizes().size() + s.ranges().size() +
            s.range_kernels().size() + s.library_calls().size() + s.threads().size() +
            s.call_shapes().size() + s.families().size() + s.kernel_families().size() +
            s.collectives().size() + s.window_devices().size() + s.window_hosts().size() + s.phases().size() +
            s.copies().rows().size() + s.device_times().totals().size() + windows_.copy().size();
    REQUIRE(rows_ != 0);
  }

 private:
  static constexpr std::uint16_t kGeneration = 1;

  CallRecord call(const char* function, std::uint32_t range) {
    CallRecord record;
    record.function = find_function(function);
    record.begin = now_ += 100;
    record.end = now_ += 1000;
    record.window = windows_.opened();
    record.generation = kGeneration;
    record.range = range;
    return record;
  }
  template <typename Record>
  void tell(std::uint32_t thread, const Record& record) {
    drain_.take(thread, std::bit_cast<Slot>(record));
  }

  Core core_{ParseResult{}};
  WindowLog windows_;
  Statistics statistics_{core_.names, core_.ranges, core_.shapes};
  Drain drain_{core_, windows_, statistics_, [] {}};
  Nanoseconds now_ = 1'000'000;
  std::uint32_t correlation_ = 0;
  std::uint32_t calls_ = 0;
  mutable std::size_t rows_ = 0;
};

struct Cost {
  double seconds = std::numeric_limits<double>::max();
  double bytes = std::numeric_limits<double>::max();  ///< in use at the end

  void keep_least(const Cost& other) {
    seconds = std::min(seconds, other.seconds);
    bytes = std::min(bytes, other.bytes);
  }
};

/// The cost up to the last table, for `count` items.
Cost cost(const std::function<void(Run&, std::uint32_t)>& program, std::uint32_t count) {
  const double bytes = heap_bytes();
  const auto run = std::make_unique<Run>();
  const double begin = processor_seconds();
  program(*run, count);
  run->close_window();
  run->settle();
  run->tables();
  return {processor_seconds() - begin, heap_bytes() - bytes};
}

/// `count` items take a few milliseconds. If memory no longer fits into caches, twice as many cost a little
/// more than twice as much; if all earlier ones are examined again for each, four times as much.
void check_scaling(std::uint32_t count, const std::function<void(Run&, std::uint32_t)>& program) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // Once, at the largest size: costs are judged in the build without sanitizers (test unit.scaling).
  cost(program, 16 * count);
#else
  constexpr double kMaxExponent = 1.4;
  constexpr double kMaxBytesExponent = 1.1;
  constexpr int kRuns = 5;
  const auto exponent = [](double few, double many) { return std::log(many / few) / std::log(4.0); };
  Cost few;
  Cost many;
  cost(program, count);
  for (int i = 0; i < kRuns; ++i) {
    few.keep_least(cost(program, 4 * count));
    many.keep_least(cost(program, 16 * count));
    if (i != 0 && exponent(few.seconds, many.seconds) <= kMaxExponent) break;
  }
  INFO(few.seconds * 1e3 << " ms, " << few.bytes / 1e3 << " KB for " << 4 * count << "; "
                         << many.seconds * 1e3 << " ms, " << many.bytes / 1e3 << " KB for " << 16 * count);
  CHECK(exponent(few.seconds, many.seconds) <= kMaxExponent);
  CHECK(exponent(few.bytes, many.bytes) <= kMaxBytesExponent);
#endif
}

}  // namespace

TEST_CASE("threads that wait for the device scale", "[scaling]") {
  check_scaling(2'000, [](Run& run, std::uint32_t count) {
    for (std::uint32_t thread = 1; thread <= count; ++thread) {
      run.launch({.thread = thread});
      run.wait(thread);
    }
  });
}

TEST_CASE("ranges that are never popped scale", "[scaling]") {
  const bool alike = GENERATE(true, false);
  check_scaling(1'000, [alike](Run& run, std::uint32_t count) {
    std::uint32_t node = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      node = run.range(node, alike ? "step" : "step" + std::to_string(i), RangeStyle::kPushPop);
      run.edge(1, RangeEdge::kPush, node);
      for (int j = 0; j < 2; ++j) run.launch({.range = node});
    }
  });
}

TEST_CASE("ranges that were pushed before their window scale", "[scaling]") {
  check_scaling(4'000, [](Run& run, std::uint32_t count) {
    std::uint32_t node = 0;
    for (std::uint32_t i = 0; i < count; ++i) node = run.range(node, "step", RangeStyle::kPushPop);
    run.launch({.range = node});
    for (std::uint32_t i = 0; i < count; ++i) {
      run.launch({.range = run.range(node, "layer" + std::to_string(i % 1000), RangeStyle::kPushPop)});
    }
  });
}

TEST_CASE("ranges that start on one thread and end on another scale", "[scaling]") {
  const bool alike = GENERATE(true, false);
  check_scaling(4'000, [alike](Run& run, std::uint32_t count) {
    const auto node = [&](std::uint32_t i) {
      return run.range(0, alike ? "request" : "request" + std::to_string(i), RangeStyle::kStartEnd);
    };
    for (std::uint32_t i = 0; i < count; ++i) run.edge(i + 2, RangeEdge::kStart, node(i));
    for (std::uint32_t i = 0; i < count; ++i) run.edge(1, RangeEdge::kEnd, node(i));
    run.launch({});
  });
}

TEST_CASE("kernels' names scale", "[scaling]") {
  check_scaling(1'000, [](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) run.launch({.name = "kernel" + std::to_string(i)});
  });
}

TEST_CASE("streams scale", "[scaling]") {
  check_scaling(2'000, [](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) run.launch({.stream = i});
  });
}

TEST_CASE("windows scale", "[scaling]") {
  const bool with_threads = GENERATE(true, false);
  check_scaling(600, [with_threads](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      const std::uint32_t thread = with_threads ? i : 1;
      run.edge(thread, RangeEdge::kPush, run.range(0, "step", RangeStyle::kPushPop));
      for (int j = 0; j < 3; ++j) run.launch({.thread = thread});
      run.wait(thread);
      run.close_window();
      run.open_window();
    }
  });
}

TEST_CASE("windows that wait for their end scale beyond what is held of them", "[scaling]") {
  const auto [windows, launches] = GENERATE(std::pair(2'000u, 3), std::pair(300u, 80));
  check_scaling(windows, [launches = launches](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      for (int j = 0; j < launches; ++j) run.launch({});
      run.wait(1);
      run.close_window();
      run.open_window();
    }
  });
}

TEST_CASE("kernels without a launch scale with the windows", "[scaling]") {
  check_scaling(500, [](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      for (std::uint32_t j = 1; j <= 3; ++j) run.kernel("_Z5alphav", 7, 10 * i + j);
      run.close_window();
      run.open_window();
    }
  });
}

TEST_CASE("shapes of library calls scale", "[scaling]") {
  check_scaling(1'000, [](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      GemmShape gemm;
      gemm.m = gemm.n = gemm.k = i;
      gemm.flops = 2ull * i * i * i;
      run.launch({.shape = run.shape(gemm)});
    }
  });
}

TEST_CASE("communicators scale", "[scaling]") {
  check_scaling(1'000, [](Run& run, std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i) {
      CollectiveShape collective;
      collective.operation = Collective::kAllReduce;
      collective.ranks = 8;
      collective.count = collective.bytes = 4096;
      collective.communicator = i;
      run.launch({.library_call = "ncclAllReduce", .shape = run.shape(collective)});
    }
  });
}

TEST_CASE("calls that last beyond their window's end scale", "[scaling]") {
  check_scaling(1'000, [](Run& run, std::uint32_t count) {
    for (std::uint32_t thread = 2; thread <= count; ++thread) run.launch({.thread = thread});
    run.close_window();
    for (std::uint32_t thread = 2; thread <= count; ++thread) run.wait(thread);
    run.open_window();
    run.launch({});
  });
}
