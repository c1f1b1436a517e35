// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/device_time.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kUs = 1000;
constexpr Nanoseconds kMs = 1'000'000;
constexpr FunctionId kLaunchFunction = 1;
constexpr FunctionId kSyncFunction = 2;
constexpr FunctionId kCopyFunction = 3;
constexpr FunctionId kOtherFunction = 4;

/// One window, number 1, which opens at 1 ms; thread 7 launches unless stated otherwise. Times are in
/// microseconds from the opening.
struct Run {
  DeviceTimeStatistics statistics;

  static Nanoseconds at(Nanoseconds us) { return kMs + us * kUs; }
  void call(Nanoseconds begin, Nanoseconds end, HostState state, std::uint32_t thread = 7) {
    constexpr FunctionId kFunctions[] = {kSyncFunction, kCopyFunction, kLaunchFunction, kOtherFunction};
    statistics.call(1, thread, {at(begin), at(end), kFunctions[static_cast<std::size_t>(state)], state});
  }
  /// By default the thread has waited since its previous reading.
  void reading(Nanoseconds time, Nanoseconds processor, std::uint32_t thread = 7, std::uint64_t waits = 0) {
    statistics.reading(1, thread, {at(time), processor * kUs, waits == 0 ? ++readings : waits});
  }
  std::uint64_t readings = 0;
  std::uint64_t told = 0;  ///< idle time reported through tell_gaps()
  TimedWork work(Nanoseconds start, Nanoseconds end, Nanoseconds begin, Nanoseconds returned,
                 TimedWorkKind kind = TimedWorkKind::kKernel) {
    TimedWork made;
    made.start = at(start);
    made.end = at(end);
    made.launch_begin = at(begin);
    made.launch_end = at(returned);
    made.thread = 7;
    made.stream = 1;
    made.function = kind == TimedWorkKind::kKernel || kind == TimedWorkKind::kCollective ? kLaunchFunction
                                                                                         : kCopyFunction;
    made.kind = kind;
    made.launch_known = true;
    made.copy_call = made.function == kCopyFunction;
    return made;
  }
  /// Work with the call that submits it.
  void launch(Nanoseconds begin, Nanoseconds returned, Nanoseconds start, Nanoseconds end,
              std::uint32_t thread = 7) {
    call(begin, returned, HostState::kLaunch, thread);
    TimedWork made = work(start, end, begin, returned);
    made.thread = thread;
    statistics.work(1, 0, made);
  }
  const DeviceTimeRow& settle(Nanoseconds end) {
    statistics.settle_window(1, kMs, at(end));
    REQUIRE(statistics.rows().size() == 1);
    CHECK(statistics.held() == 0);
    const DeviceTimes& times = statistics.rows().front().times;
    CHECK(times.kernel_busy + times.copy_only + times.idle() == times.span);
    return statistics.rows().front();
  }
};

/// Idle microseconds by cause; causes without any are left out.
std::map<IdleCause, std::uint64_t> idle_of(const DeviceTimeRow& row) {
  std::map<IdleCause, std::uint64_t> result;
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    if (row.times.idle_by_cause[i].time != 0)
      result[static_cast<IdleCause>(i)] = row.times.idle_by_cause[i].time / kUs;
  }
  return result;
}

using Idle = std::map<IdleCause, std::uint64_t>;

}  // namespace

TEST_CASE("What was merged can be taken out again", "[stats]") {
  static_assert(sizeof(DeviceTimes) % sizeof(std::uint64_t) == 0);
  // Fills every member with a different number, whichever members there are.
  const auto filled = [](std::uint64_t from) {
    std::array<std::uint64_t, sizeof(DeviceTimes) / sizeof(std::uint64_t)> numbers;
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = from + i;
    DeviceTimes times;
    std::memcpy(static_cast<void*>(&times), numbers.data(), sizeof times);
    return times;
  };
  DeviceTimes times = filled(1000);
  times.merge(filled(7));
  times.remove(filled(7));
  const DeviceTimes expected = filled(1000);
  CHECK(std::memcmp(&times, &expected, sizeof times) == 0);
}

TEST_CASE("Work in a row, and what the device takes in between", "[device_time]") {
  Run run;
  run.launch(10, 15, 20, 120);
  run.launch(15, 20, 122, 222);
  run.launch(20, 25, 225, 300);
  const DeviceTimeRow& row = run.settle(300);
  CHECK(row.times.span == 300 * kUs);
  CHECK(row.times.kernel_busy == 275 * kUs);
  CHECK(row.times.kernel_time == 275 * kUs);
  CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 20}, {IdleCause::kQueue, 5}});
}

TEST_CASE("A device that lags behind the host is looked at as long after it", "[device_time]") {
  Run run;
  SECTION("by as much as the window began before") {
    run.launch(10, 15, 100, 200);
    run.launch(15, 20, 200, 350);
    const DeviceTimeRow& row = run.settle(300);
    CHECK(row.times.span == 300 * kUs);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 50}});
  }
  SECTION("but not past its first work") {
    run.launch(10, 15, 20, 200);
    run.launch(15, 20, 200, 900);
    const DeviceTimeRow& row = run.settle(300);
    CHECK(row.times.span == 880 * kUs);
    CHECK(idle_of(row).empty());
  }
}

TEST_CASE("Kernels, copies and collectives share the time", "[device_time]") {
  Run run;
  run.statistics.work(1, 0, run.work(0, 100, 0, 1));
  run.statistics.work(1, 0, run.work(50, 150, 0, 1));
  run.statistics.work(1, 0, run.work(140, 200, 1, 2, TimedWorkKind::kUpload));
  run.statistics.work(1, 0, run.work(190, 260, 2, 3, TimedWorkKind::kDownload));
  run.statistics.work(1, 0, run.work(250, 300, 3, 4, TimedWorkKind::kMemset));
  run.statistics.work(1, 0, run.work(300, 400, 4, 5, TimedWorkKind::kCollective));
  run.statistics.work(1, 0, run.work(350, 360, 5, 6));
  const DeviceTimes times = run.settle(400).times;
  CHECK(times.span == 400 * kUs);
  CHECK(times.kernel_busy == 250 * kUs);
  CHECK(times.compute_busy == 160 * kUs);
  CHECK(times.exposed_collective() == 90 * kUs);
  CHECK(times.kernel_time == 310 * kUs);
  CHECK(times.copy_only == 150 * kUs);
  CHECK(times.copy_busy == 120 * kUs);
  CHECK(times.copy_overlapped == 10 * kUs);
  CHECK(times.upload_busy == 60 * kUs);
  CHECK(times.download_busy == 70 * kUs);
  CHECK(times.idle() == 0);
}

TEST_CASE("Copies ahead run beside work from before the window, and are not the window's time",
          "[device_time]") {
  // On a stream of their own, they do not wait for the kernels of earlier iterations.
  Run run;
  run.statistics.tell_gaps([&run](std::uint32_t, const IdleGap& gap) { run.told += gap.time; });
  run.statistics.work(1, 0, run.work(0, 5, 0, 1, TimedWorkKind::kUpload));
  run.statistics.work(1, 0, run.work(10, 15, 2, 3, TimedWorkKind::kUpload));
  TimedWork kernel = run.work(150, 200, 3, 4);
  kernel.stream = 2;
  SECTION("a host as far ahead at the end as at the beginning") {
    run.statistics.work(1, 0, kernel);
    kernel = run.work(210, 250, 5, 6);
    kernel.stream = 3;
    run.statistics.work(1, 0, kernel);
    const DeviceTimeRow& row = run.settle(100);
    CHECK(row.times.span == 100 * kUs);
    CHECK(row.times.copy_only == 0);
    CHECK(row.times.upload_busy == 0);
    CHECK(idle_of(row) == Idle{{IdleCause::kOtherStream, 10}});
  }
  SECTION("a host that has waited by the end") {
    run.statistics.work(1, 0, kernel);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kStartUp, 150}});
  }
  SECTION("a kernel that waited for the copy") {
    kernel.start = Run::at(17);
    run.statistics.work(1, 0, kernel);
    const DeviceTimeRow& row = run.settle(200);
    CHECK(row.times.copy_only == 10 * kUs);
    CHECK(idle_of(row) == Idle{{IdleCause::kQueue, 5}, {IdleCause::kOtherStream, 2}});
  }
  SECTION("a kernel that came too late") {
    kernel.launch_end = Run::at(150);
    run.statistics.work(1, 0, kernel);
    const DeviceTimeRow& row = run.settle(200);
    CHECK(row.times.copy_only == 10 * kUs);
    CHECK(row.times.idle(IdleCause::kStartUp) == 0);
  }
  SECTION("a copy of the window before it on its stream") {
    kernel.stream = 1;
    run.statistics.work(1, 0, kernel);
    CHECK(run.settle(200).times.copy_only == 10 * kUs);
  }
  std::uint64_t idle = 0;
  for (const DeviceTimes::Idle& cause : run.statistics.rows().front().times.idle_by_cause) idle += cause.time;
  CHECK(run.told == idle);
}

TEST_CASE("What was launched in time waited on the device", "[device_time]") {
  Run run;
  run.statistics.work(1, 0, run.work(0, 100, 0, 1));
  TimedWork next = run.work(110, 200, 2, 3);
  SECTION("for another stream") {
    next.stream = 2;
    run.statistics.work(1, 0, next);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kOtherStream, 10}});
  }
  SECTION("for a collective on another stream") {
    run.statistics.work(1, 0, run.work(0, 105, 0, 1, TimedWorkKind::kCollective));
    next.stream = 2;
    run.statistics.work(1, 0, next);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kCollective, 5}});
  }
  SECTION("for nothing that is seen") {
    next.start += 11 * kUs;
    run.statistics.work(1, 0, next);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kOtherStream, 21}});
  }
  SECTION("or its launch is not known") {
    next.launch_known = false;
    run.statistics.work(1, 0, next);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kUnknown, 10}});
  }
  SECTION("for the work before it in the same graph") {
    next = run.work(110, 150, 0, 1);
    run.statistics.work(1, 0, next);
    next = run.work(155, 200, 0, 1);
    next.stream = 2;  // a branch of the graph
    run.statistics.work(1, 0, next);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kGraph, 15}});
  }
  SECTION("for another launch of the graph") {
    run.statistics.work(1, 0, next);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kQueue, 10}});
  }
}

TEST_CASE("The host was late", "[device_time]") {
  Run run;
  run.launch(0, 5, 10, 100);
  SECTION("in the launch itself") {
    run.launch(90, 120, 130, 200);
    const DeviceTimeRow& row = run.settle(200);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kLaunchCall, 30}});
    REQUIRE(row.shares.size() == 2);
    CHECK(row.shares[0].function == kLaunchFunction);
    CHECK(row.shares[0].thread == 7);
    CHECK(row.shares[0].gaps == 1);
  }
  SECTION("computing between calls") {
    run.launch(150, 155, 160, 200);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 60}});
  }
  SECTION("in a synchronization, and a little after it") {
    run.call(10, 105, HostState::kSynchronization);
    run.launch(150, 155, 160, 200);
    const DeviceTimeRow& row = run.settle(200);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kSynchronization, 60}});
    CHECK(row.shares[0].function == kSyncFunction);
  }
  SECTION("long after a short synchronization") {
    run.call(95, 105, HostState::kSynchronization);
    run.launch(150, 155, 160, 200);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 60}});
  }
  SECTION("in a copy call") {
    run.call(50, 150, HostState::kCopy);
    run.launch(150, 155, 160, 200);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kCopyCall, 60}});
  }
  SECTION("in the call of a copy itself") {
    run.statistics.work(1, 0, run.work(140, 150, 105, 160, TimedWorkKind::kUpload));
    CHECK(idle_of(run.settle(150)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kCopyCall, 40}});
  }
  SECTION("in the launch of a graph that copies") {
    TimedWork copy = run.work(140, 150, 105, 160, TimedWorkKind::kUpload);
    copy.copy_call = false;
    run.statistics.work(1, 0, copy);
    CHECK(idle_of(run.settle(150)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kLaunchCall, 40}});
  }
  SECTION("in a copy of one value to the host, which is a synchronization") {
    run.call(50, 110, HostState::kCopy);
    run.statistics.work(1, 0, run.work(105, 106, 50, 110, TimedWorkKind::kDownload));
    run.statistics.small_download(1, 7, Run::at(50));
    run.launch(150, 155, 160, 200);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kSynchronization, 59}});
  }
  SECTION("in another call") {
    run.call(80, 140, HostState::kOther);
    run.launch(150, 155, 160, 200);
    CHECK(idle_of(run.settle(200)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kOtherCall, 60}});
  }
}

TEST_CASE("A thread between two calls computes or waits", "[device_time]") {
  Run run;
  run.launch(0, 5, 10, 100);
  run.reading(0, 1000);
  SECTION("off the processor") {
    run.reading(5000, 1100);
    run.launch(5000, 5005, 5010, 5100);
    CHECK(idle_of(run.settle(5100)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostWait, 4910}});
  }
  SECTION("on it") {
    run.reading(5000, 4000);
    run.launch(5000, 5005, 5010, 5100);
    const DeviceTimeRow& row = run.settle(5100);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 4910}});
    CHECK(row.times.own_work == 4910 * kUs);
    CHECK(row.shares[0].own_work);
  }
  SECTION("on it, as far as others let it") {
    run.reading(5000, 1100, 7, 1);
    run.launch(5000, 5005, 5010, 5100);
    CHECK(idle_of(run.settle(5100)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 4910}});
  }
  SECTION("off it, but not for long") {
    run.reading(450, 1010);
    run.launch(450, 455, 460, 500);
    CHECK(idle_of(run.settle(500)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 360}});
  }
  SECTION("at the end of the window, where the thread closes it") {
    run.reading(5000, 1010);
    CHECK(idle_of(run.settle(5000)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostWait, 4900}});
  }
  SECTION("at the end of the window, where another one does") {
    CHECK(idle_of(run.settle(5000)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 4900}});
  }
}

TEST_CASE("A launch that was on its way as the window closed", "[device_time]") {
  Run run;
  run.launch(0, 5, 10, 100, 8);
  run.reading(0, 0, 7);
  SECTION("of a thread whose calls are not known") {
    TimedWork late = run.work(1100, 1200, 1050, 1055);
    late.thread = 9;
    run.statistics.work(1, 0, late);
    CHECK(idle_of(run.settle(1000)) == Idle{{IdleCause::kHostCompute, 1000}});
  }
  SECTION("of one that has waited meanwhile, while the one before computed") {
    run.call(10, 15, HostState::kOther, 7);
    run.reading(1050, 1, 7);
    run.launch(1050, 1055, 1100, 1200, 7);
    const DeviceTimeRow& row = run.settle(1000);
    CHECK(idle_of(row) == Idle{{IdleCause::kHostCompute, 1000}});
    CHECK(row.shares[0].thread == 8);
  }
  SECTION("after work that ended past the closing") {
    run.statistics.work(1, 0, run.work(100, 1020, 5, 6));
    TimedWork late = run.work(1100, 1200, 1080, 1085);
    late.thread = 9;
    run.statistics.work(1, 0, late);
    CHECK(idle_of(run.settle(1000)) == Idle{{IdleCause::kHostCompute, 80}});
  }
}

TEST_CASE("Where the launching thread waits, the one that launched before is asked", "[device_time]") {
  Run run;
  // Thread 8 computes; thread 7 has waited for it all the time.
  run.launch(0, 5, 10, 100, 7);
  run.reading(0, 0, 7);
  run.launch(10, 15, 100, 200, 8);
  run.reading(10, 0, 8);
  SECTION("it computes") {
    run.call(900, 905, HostState::kOther, 8);
    run.reading(900, 880, 8);
    run.reading(1000, 10, 7);
    run.launch(1000, 1005, 1010, 1100, 7);
    const DeviceTimeRow& row = run.settle(1100);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostCompute, 810}});
    CHECK(row.times.own_work == 0);
    CHECK(row.shares[0].thread == 8);
  }
  SECTION("it waits as well") {
    run.call(900, 905, HostState::kOther, 8);
    run.reading(900, 10, 8);
    run.reading(1000, 10, 7);
    run.launch(1000, 1005, 1010, 1100, 7);
    CHECK(idle_of(run.settle(1100)) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kHostWait, 810}});
  }
  SECTION("it synchronizes") {
    run.call(150, 950, HostState::kSynchronization, 8);
    run.reading(1000, 10, 7);
    run.launch(1000, 1005, 1010, 1100, 7);
    const DeviceTimeRow& row = run.settle(1100);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kSynchronization, 810}});
    CHECK(row.shares[0].thread == 8);
  }
}

TEST_CASE("Waits give a lead that the launches after them would have had", "[device_time]") {
  Run run;
  run.launch(0, 5, 10, 1000);
  run.call(10, 1005, HostState::kSynchronization);
  run.launch(1050, 1055, 1060, 1070);  // launched after the wait
  run.launch(1100, 1105, 1110, 1120);  // still late, by as much as the wait took
  run.launch(1150, 1155, 1160, 1170);
  SECTION("all of them") {
    const DeviceTimeRow& row = run.settle(1170);
    CHECK(idle_of(row) == Idle{{IdleCause::kStartUp, 10}, {IdleCause::kSynchronization, 60 + 40 + 40}});
  }
  SECTION("until it is used up") {
    for (Nanoseconds i = 1; i <= 25; ++i)
      run.launch(1150 + 50 * i, 1155 + 50 * i, 1160 + 50 * i, 1170 + 50 * i);
    const Idle idle = idle_of(run.settle(2420));
    // The wait leaves a lead of 995: 60 and 23 times 40.
    CHECK(idle.at(IdleCause::kSynchronization) == 60 + 23 * 40);
    CHECK(idle.at(IdleCause::kHostCompute) == 4 * 40);
  }
  SECTION("by a gap of any cause") {
    run.reading(1150, 0);
    run.launch(3000, 3005, 3010, 3020);  // the host computed: the lead would have shortened the gap
    run.launch(3050, 3055, 3060, 3070);
    const Idle idle = idle_of(run.settle(3070));
    CHECK(idle.at(IdleCause::kSynchronization) == 60 + 40 + 40);
    CHECK(idle.at(IdleCause::kHostCompute) == 3010 - 1170 + 40);
  }
  SECTION("or until the host waits for something else") {
    run.reading(1150, 0);
    run.reading(9000, 10);
    run.launch(9000, 9005, 9010, 9020);
    run.launch(9050, 9055, 9060, 9070);
    const Idle idle = idle_of(run.settle(9070));
    CHECK(idle.at(IdleCause::kSynchronization) == 60 + 40 + 40);
    CHECK(idle.at(IdleCause::kHostWait) == 9010 - 1170);
    CHECK(idle.at(IdleCause::kHostCompute) == 40);
  }
}

TEST_CASE("A lead is no longer than a queue of launches", "[device_time]") {
  Run run;
  run.launch(0, 5, 10, 1000);
  run.call(10, 1005, HostState::kSynchronization);
  // Launches on time, one after the other.
  Nanoseconds at = 1010;
  for (int i = 0; i < 1030; ++i) {
    run.call(at, at + 1, HostState::kLaunch);
    run.statistics.work(1, 0, run.work(at + 2, at + 4, at, at + 1));
    at += 2;
  }
  at += 10;
  run.launch(at, at + 1, at + 40, at + 45);
  const Idle idle = idle_of(run.settle(at + 45));
  CHECK(idle.at(IdleCause::kSynchronization) == 12);  // up to the first of the launches
  CHECK(idle.at(IdleCause::kLaunchCall) >= 40);
}

TEST_CASE("A lead is the same in whatever order threads tell of their waits", "[device_time]") {
  Lead lead;
  lead.add(500, 30);
  lead.add(3, 20);
  lead.add(500, 5);
  lead.take(10);  // from the oldest
  CHECK(lead.time() == 45);
  lead.expire(3 + Lead::kQueue);
  CHECK(lead.time() == 45);
  lead.expire(4 + Lead::kQueue);
  CHECK(lead.time() == 35);
  lead.expire(501 + Lead::kQueue);
  CHECK(lead.time() == 0);
}

TEST_CASE("After the last work the host did something else", "[device_time]") {
  Run run;
  run.launch(0, 5, 5, 100);
  run.call(10, 110, HostState::kSynchronization);
  CHECK(idle_of(run.settle(150)) == Idle{{IdleCause::kStartUp, 5}, {IdleCause::kSynchronization, 50}});
}

TEST_CASE("Work for a settled window is counted", "[device_time]") {
  Run run;
  run.launch(0, 5, 5, 100);
  run.settle(100);
  run.statistics.work(1, 0, run.work(50, 60, 40, 45));
  CHECK(run.statistics.left_out() == 1);
  CHECK(run.statistics.row(1, 0) != nullptr);
  CHECK(run.statistics.row(1, 1) == nullptr);
  CHECK(run.statistics.row(2, 0) == nullptr);
}

namespace {

struct Scene {
  struct Work {
    std::uint32_t device;
    TimedWork work;
  };
  std::vector<Work> work;
  std::map<std::uint32_t, std::vector<HostCall>> calls;
  std::map<std::uint32_t, std::vector<ProcessorReading>> readings;
  std::vector<std::pair<std::uint32_t, Nanoseconds>> downloads;
  Nanoseconds end = 0;
};

/// A few threads that launch, copy, synchronize, compute and wait, and devices that work in order.
Scene random_scene(std::mt19937& random, std::size_t calls_of_thread) {
  const auto upto = [&random](Nanoseconds most) { return Nanoseconds{random() % most}; };
  Scene scene;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Nanoseconds> free_at;  // by device and stream
  const auto threads = static_cast<std::uint32_t>(1 + random() % 3);
  for (std::uint32_t thread = 1; thread <= threads; ++thread) {
    Nanoseconds time = kMs + upto(50 * kUs);
    Nanoseconds processor = 0;
    std::uint64_t waits = 0;
    for (std::size_t i = 0; i < calls_of_thread; ++i) {
      const auto state = static_cast<HostState>(random() % 4);
      const Nanoseconds begin = time;
      Nanoseconds length = 1 + upto(20 * kUs);
      if (state == HostState::kSynchronization && random() % 2 == 0) length += upto(kMs);
      scene.calls[thread].push_back(
          {begin, begin + length, static_cast<FunctionId>(1 + random() % 4), state});
      if (state == HostState::kLaunch || state == HostState::kCopy) {
        TimedWork work;
        work.launch_known = random() % 20 != 0;
        work.launch_begin = begin;
        work.launch_end = begin + length;
        work.thread = thread;
        work.stream = static_cast<std::uint32_t>(1 + random() % 3);
        work.kind = state == HostState::kLaunch ? static_cast<TimedWorkKind>(random() % 2)
                                                : static_cast<TimedWorkKind>(2 + random() % 4);
        const auto device = static_cast<std::uint32_t>(random() % 2);
        Nanoseconds& from = free_at[{device, work.stream}];
        work.start = std::max(from, begin + upto(2 * length)) + upto(3 * kUs);
        work.end = work.start + upto(30 * kUs);
        from = work.end;
        if (work.launch_known && work.kind == TimedWorkKind::kDownload && random() % 2 == 0)
          scene.downloads.emplace_back(thread, begin);
        scene.work.push_back({device, work});
        // The launch of a graph has several kernels.
        for (auto more = work.kind == TimedWorkKind::kKernel && random() % 4 == 0 ? random() % 4 : 0;
             more > 0; --more) {
          work.stream = static_cast<std::uint32_t>(1 + random() % 3);
          Nanoseconds& next = free_at[{device, work.stream}];
          work.start = std::max(next, work.end) + upto(3 * kUs);
          work.end = work.start + upto(30 * kUs);
          next = work.end;
          scene.work.push_back({device, work});
        }
      }
      Nanoseconds pause = upto(10 * kUs);
      if (random() % 5 == 0) pause += upto(2 * kMs);
      time = begin + length + pause;
      processor += random() % 2 == 0 ? time - begin : length;
      if (pause >= 100 * kUs) scene.readings[thread].push_back({time, processor, ++waits});
    }
    scene.end = std::max(scene.end, time);
  }
  return scene;
}

struct Fed {
  std::map<std::uint32_t, DeviceTimeRow> rows;
  std::uint64_t left_out = 0;
};

Fed feed(const Scene& scene, std::mt19937* shuffle = nullptr, std::uint32_t thread_factor = 1,
         std::uint32_t stream_factor = 1) {
  DeviceTimeStatistics statistics;
  std::vector<Scene::Work> work = scene.work;
  if (shuffle != nullptr) std::shuffle(work.begin(), work.end(), *shuffle);
  for (Scene::Work& one : work) {
    one.work.thread = (one.work.thread * thread_factor) % 101;
    one.work.stream = (one.work.stream * stream_factor) % 101;
    statistics.work(1, one.device, one.work);
  }
  for (const auto& [thread, calls] : scene.calls) {
    for (const HostCall& call : calls) statistics.call(1, (thread * thread_factor) % 101, call);
  }
  for (const auto& [thread, readings] : scene.readings) {
    for (const ProcessorReading& one : readings) statistics.reading(1, (thread * thread_factor) % 101, one);
  }
  for (const auto& [thread, begin] : scene.downloads)
    statistics.small_download(1, (thread * thread_factor) % 101, begin);
  statistics.settle_window(1, kMs, scene.end);
  Fed fed;
  for (const DeviceTimeRow& row : statistics.rows()) fed.rows[row.device] = row;
  fed.left_out = statistics.left_out();
  return fed;
}

/// The time between `from` and `to` that no interval covers.
std::uint64_t idle_between(std::vector<std::pair<Nanoseconds, Nanoseconds>> intervals, Nanoseconds from,
                           Nanoseconds to) {
  std::sort(intervals.begin(), intervals.end());
  std::uint64_t idle = 0;
  Nanoseconds at = from;
  for (const auto& [begin, end] : intervals) {
    if (begin > at) idle += begin - at;
    at = std::max(at, end);
  }
  return idle + (to > at ? to - at : 0);
}

}  // namespace

TEST_CASE("Causes share all of the idle time, whatever the threads and streams are called", "[device_time]") {
  std::mt19937 random(20261121);
  std::set<IdleCause> seen;
  for (int round = 0; round < 300; ++round) {
    const Scene scene = random_scene(random, 5 + random() % 60);
    const Fed fed = feed(scene);
    CHECK(fed.left_out == 0);
    for (const auto& [device, row] : fed.rows) {
      const DeviceTimes& times = row.times;
      CHECK(times.kernel_busy + times.copy_only + times.idle() == times.span);
      CHECK(times.compute_busy <= times.kernel_busy);
      CHECK(times.kernel_busy <= times.kernel_time);
      CHECK(times.copy_overlapped <= std::min(times.copy_busy, times.kernel_busy));
      std::vector<std::pair<Nanoseconds, Nanoseconds>> intervals;
      Nanoseconds first = ~Nanoseconds{0};
      Nanoseconds last = 0;
      for (const Scene::Work& one : scene.work) {
        if (one.device != device) continue;
        intervals.emplace_back(one.work.start, one.work.end);
        first = std::min(first, one.work.start);
        last = std::max(last, one.work.end);
      }
      const Nanoseconds lag = last > scene.end ? last - scene.end : 0;
      const Nanoseconds from = std::min(kMs + lag, first);
      CHECK(times.span == std::max(last, scene.end) - from);
      CHECK(times.idle() == idle_between(intervals, from, std::max(last, scene.end)));
      std::uint64_t shared = 0;
      for (const IdleShare& share : row.shares) shared += share.time;
      if (row.shares.size() < IdleShares::kMaxListed) CHECK(shared == times.idle());
      for (std::size_t i = 0; i < kIdleCauses; ++i) {
        if (times.idle_by_cause[i].time != 0) seen.insert(static_cast<IdleCause>(i));
      }
    }
    for (const Fed& other : {feed(scene, &random), feed(scene, nullptr, 37), feed(scene, nullptr, 1, 53)}) {
      REQUIRE(other.rows.size() == fed.rows.size());
      for (const auto& [device, row] : fed.rows) {
        for (std::size_t i = 0; i < kIdleCauses; ++i) {
          const DeviceTimes& times = other.rows.at(device).times;
          CHECK(times.idle_by_cause[i].time == row.times.idle_by_cause[i].time);
          CHECK(times.idle_by_cause[i].gaps == row.times.idle_by_cause[i].gaps);
        }
      }
    }
  }
  // All causes that such scenes can have.
  CHECK(seen.size() == kIdleCauses);
}

TEST_CASE("Judged bit by bit, as records come, a window comes out the same", "[device_time]") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const Scene scene = random_scene(random, 400);
    const Fed whole = feed(scene);
    // All records in order of time, as in queues and buffers.
    struct Record {
      Nanoseconds time;
      std::function<void(DeviceTimeStatistics&)> add;
    };
    std::vector<Record> records;
    for (const Scene::Work& one : scene.work) {
      records.push_back(
          {one.work.start, [one](DeviceTimeStatistics& to) { to.work(1, one.device, one.work); }});
    }
    for (const auto& [thread, calls] : scene.calls) {
      for (const HostCall& call : calls) {
        records.push_back(
            {call.begin, [thread = thread, call](DeviceTimeStatistics& to) { to.call(1, thread, call); }});
      }
    }
    for (const auto& [thread, readings] : scene.readings) {
      for (const ProcessorReading& one : readings) {
        records.push_back(
            {one.time, [thread = thread, one](DeviceTimeStatistics& to) { to.reading(1, thread, one); }});
      }
    }
    for (const auto& [thread, begin] : scene.downloads) {
      records.push_back({begin, [thread = thread, begin = begin](DeviceTimeStatistics& to) {
                           to.small_download(1, thread, begin);
                         }});
    }
    std::stable_sort(records.begin(), records.end(),
                     [](const Record& a, const Record& b) { return a.time < b.time; });
    DeviceTimeStatistics statistics(600);
    for (const Record& record : records) {
      record.add(statistics);
      CHECK(statistics.held() <= 600);
    }
    statistics.settle_window(1, kMs, scene.end);
    for (const DeviceTimeRow& row : statistics.rows()) {
      const DeviceTimes& expected = whole.rows.at(row.device).times;
      CHECK(row.times.span == expected.span);
      CHECK(row.times.kernel_busy == expected.kernel_busy);
      CHECK(row.times.idle() == expected.idle());
      for (std::size_t i = 0; i < kIdleCauses; ++i) {
        // In a gap in progress, calls for which there was no room may be lost.
        if (statistics.left_out() == 0)
          CHECK(row.times.idle_by_cause[i].time == expected.idle_by_cause[i].time);
      }
    }
  }
}

TEST_CASE("Several threads that launch nothing for the device that worked", "[device_time]") {
  DeviceTimeStatistics statistics;
  TimedWork first;
  first.start = kMs;
  first.end = kMs + kUs;
  statistics.work(1, 0, first);
  constexpr std::uint32_t kThreads = 8;
  for (std::uint64_t i = 0; i < 60'000; ++i) {
    for (std::uint32_t thread = 1; thread <= kThreads; ++thread) {
      const Nanoseconds begin = kMs + (i * kThreads + thread) * 10 * kUs;
      statistics.call(1, thread, {begin, begin + 5 * kUs, kLaunchFunction, HostState::kLaunch});
      TimedWork work;
      work.start = begin + 6 * kUs;
      work.end = begin + 9 * kUs;
      work.launch_begin = begin;
      work.launch_end = begin + 5 * kUs;
      work.thread = thread;
      work.launch_known = true;
      statistics.work(1, 1, work);
    }
  }
  CHECK(statistics.held() <= DeviceTimeStatistics::kMaxHeld);
  CHECK(statistics.left_out() == 0);
  statistics.settle_window(1, kMs, kMs + 60'001 * kThreads * 10 * kUs);
  REQUIRE(statistics.row(1, 1) != nullptr);
  CHECK(statistics.row(1, 1)->times.kernel_busy == 60'000 * kThreads * 3 * kUs);
}

TEST_CASE("Windows without end: rows of the first, sums of all, and bounded memory", "[device_time]") {
  DeviceTimeStatistics statistics;
  constexpr std::uint32_t kWindows = 15'000;
  for (std::uint32_t window = 1; window <= kWindows; ++window) {
    TimedWork work;
    work.start = window * kMs + 10;
    work.end = work.start + 100;
    statistics.work(window, 0, work);
    statistics.settle_window(window, window * kMs, window * kMs + 1000);
    statistics.settle_window(window, window * kMs, window * kMs + 1000);  // settled a second time
  }
  CHECK(statistics.left_out() == 0);
  CHECK(statistics.rows().size() == DeviceTimeStatistics::kMaxRows);
  CHECK(statistics.row(1, 0) != nullptr);
  CHECK(statistics.row(kWindows, 0) == nullptr);
  REQUIRE(statistics.totals().size() == 1);
  CHECK(statistics.totals()[0].times.kernel_busy == kWindows * 100);

  DeviceTimeStatistics unsettled;
  for (std::uint32_t window = 1; window <= kWindows; ++window) {
    TimedWork work;
    work.start = work.end = window * kMs;
    unsettled.work(window, 0, work);
  }
  CHECK(unsettled.held() <= DeviceTimeStatistics::kMaxUnsettled);
  CHECK(unsettled.left_out() == kWindows - unsettled.held());
}

namespace {

/// A kernel of 3 us that starts 1 us after its launch call, which took 5 us.
TimedWork launched_at(Nanoseconds begin) {
  TimedWork work;
  work.start = begin + 6 * kUs;
  work.end = begin + 9 * kUs;
  work.launch_begin = begin;
  work.launch_end = begin + 5 * kUs;
  work.thread = 7;
  work.launch_known = true;
  return work;
}

}  // namespace

TEST_CASE("A window of any length takes bounded memory, and nothing is lost that comes in order",
          "[device_time]") {
  DeviceTimeStatistics statistics;
  constexpr std::uint64_t kCalls = 400'000;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const Nanoseconds begin = kMs + i * 10 * kUs;
    statistics.call(1, 7, {begin, begin + 5 * kUs, kLaunchFunction, HostState::kLaunch});
    statistics.work(1, 0, launched_at(begin));
    CHECK(statistics.held() <= DeviceTimeStatistics::kMaxHeld);
  }
  CHECK(statistics.left_out() == 0);
  statistics.settle_window(1, kMs, kMs + kCalls * 10 * kUs);
  REQUIRE(statistics.rows().size() == 1);
  const DeviceTimes& times = statistics.rows().front().times;
  CHECK(times.kernel_busy == kCalls * 3 * kUs);
  CHECK(times.idle(IdleCause::kStartUp) == 6 * kUs);
  CHECK(times.idle(IdleCause::kLaunchCall) == (kCalls - 1) * 7 * kUs);
  CHECK(times.idle(IdleCause::kHostCompute) == 1 * kUs);  // up to the window's end
  CHECK(statistics.held() == 0);
}

TEST_CASE("Calls without end that launch nothing take bounded memory", "[device_time]") {
  const bool asks = GENERATE(true, false);  // queries whether work is done, or the current device
  DeviceTimeStatistics statistics;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    const Nanoseconds begin = kMs + i * kUs;
    statistics.call(1, 7, {begin, begin + 500, kOtherFunction, HostState::kOther, asks});
  }
  CHECK(statistics.held() <= DeviceTimeStatistics::kMaxHeld);
  CHECK(statistics.left_out() == 0);
  // These calls are why the device had nothing to do.
  TimedWork work;
  work.start = kMs;
  work.end = kMs + kUs;
  work.thread = 7;
  work.launch_known = true;
  statistics.work(1, 0, work);
  statistics.settle_window(1, kMs, kMs + 1'000'000 * kUs);
  REQUIRE(statistics.rows().size() == 1);
  const DeviceTimes& times = statistics.rows().front().times;
  CHECK(times.idle(asks ? IdleCause::kOtherCall : IdleCause::kHostCompute) == times.idle());
}

TEST_CASE("What collectives take from the kernels beside them goes by their blocks", "[device_time]") {
  std::mt19937 random(11);
  const auto any = [&random](Nanoseconds most) { return Nanoseconds{random() % most}; };
  for (int round = 0; round < 200; ++round) {
    Run run;
    std::vector<TimedWork> kernels;
    for (int i = 0; i < 12; ++i) {
      const Nanoseconds start = any(60);
      kernels.push_back(run.work(start, start + any(30), start, start,
                                 i % 3 == 0 ? TimedWorkKind::kCollective : TimedWorkKind::kKernel));
      if (i % 3 == 0) kernels.back().blocks = static_cast<std::uint32_t>(1 + any(32));
    }
    std::uint64_t expected = 0;
    for (const TimedWork& one : kernels) {
      for (Nanoseconds us = 0; us < 100; ++us) {
        const Nanoseconds time = Run::at(us);
        const bool beside = std::any_of(kernels.begin(), kernels.end(), [&](const TimedWork& other) {
          return other.kind == TimedWorkKind::kKernel && other.start <= time && time < other.end;
        });
        if (one.kind == TimedWorkKind::kCollective && one.start <= time && time < one.end && beside)
          expected += one.blocks * kUs;
      }
    }
    for (const TimedWork& one : kernels) run.statistics.work(1, 0, one);
    const DeviceTimes times = run.settle(100).times;
    CHECK(times.collective_block_time == expected);
    CHECK(times.taken_by_collectives(0) == 0);
    CHECK(times.taken_by_collectives(1'000) == expected / 1'000);
    CHECK(times.taken_by_collectives(1) == std::min(expected, times.compute_busy));
  }
}

TEST_CASE("Calls for the current device are part of the computing around them", "[device_time]") {
  // One launch every 100 us with ten short calls in between: 60 ms of them exceed the memory limit.
  constexpr std::size_t kMax = 1000;
  DeviceTimeStatistics statistics(kMax);
  for (std::uint64_t i = 0; i < 600; ++i) {
    const Nanoseconds begin = kMs + i * 100 * kUs;
    for (std::uint64_t k = 0; k < 10; ++k) {
      const Nanoseconds asked = begin + (5 + 8 * k) * kUs;
      if (k == 0) statistics.work(1, 0, launched_at(begin));
      if (k == 0) statistics.call(1, 7, {begin, begin + 5 * kUs, kLaunchFunction, HostState::kLaunch});
      statistics.call(1, 7, {asked, asked + 100, kOtherFunction, HostState::kOther});
    }
  }
  statistics.settle_window(1, kMs, kMs + 60'000 * kUs);
  CHECK(statistics.left_out() == 0);
  REQUIRE(statistics.rows().size() == 1);
  const DeviceTimes& times = statistics.rows()[0].times;
  CHECK(times.idle(IdleCause::kStartUp) == 6 * kUs);
  CHECK(times.idle(IdleCause::kHostCompute) == times.idle() - 6 * kUs);
}

TEST_CASE("A call that comes after a pause tells what the pause was", "[device_time]") {
  // Off the CPU for 900 us, according to the readings around it.
  DeviceTimeStatistics statistics;
  statistics.call(1, 7, {kMs, kMs + 5 * kUs, kLaunchFunction, HostState::kLaunch});
  statistics.work(1, 0, launched_at(kMs));
  statistics.reading(1, 7, {kMs, 100 * kUs, 1});
  statistics.reading(1, 7, {2 * kMs, 110 * kUs, 2});
  statistics.call(1, 7, {2 * kMs, 2 * kMs + 100, kOtherFunction, HostState::kOther});
  statistics.call(1, 7, {2 * kMs + kUs, 2 * kMs + 6 * kUs, kLaunchFunction, HostState::kLaunch});
  statistics.work(1, 0, launched_at(2 * kMs + kUs));
  statistics.settle_window(1, kMs, 2 * kMs + 10 * kUs);
  REQUIRE(statistics.rows().size() == 1);
  CHECK(statistics.rows()[0].times.idle(IdleCause::kHostWait) > 900 * kUs);
}

TEST_CASE("Many windows at once that nobody settles take bounded memory together", "[device_time]") {
  constexpr std::size_t kMax = 4000;
  constexpr std::uint32_t kWindows = 100;
  DeviceTimeStatistics statistics(kMax);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    for (std::uint32_t window = 1; window <= kWindows; ++window) {
      const Nanoseconds begin = kMs + i * 10 * kUs;
      statistics.call(window, 7, {begin, begin + 5 * kUs, kLaunchFunction, HostState::kLaunch});
      if (window % 2 == 0) continue;  // calls only
      statistics.work(window, 0, launched_at(begin));
      CHECK(statistics.held() <= kMax);
    }
  }
  for (std::uint32_t window = 1; window <= kWindows; ++window)
    statistics.settle_window(window, kMs, kMs + 10'000 * kUs);
  CHECK(statistics.held() == 0);
  REQUIRE(statistics.totals().size() == 1);
  CHECK(statistics.totals()[0].times.kernel_busy == kWindows / 2 * 1000 * 3 * kUs);
}

TEST_CASE("Readings of calls that are not recorded take bounded memory", "[device_time]") {
  constexpr std::size_t kMax = 1000;
  DeviceTimeStatistics statistics(kMax);
  statistics.call(1, 7, {kMs, kMs + kUs, kOtherFunction, HostState::kOther});
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    statistics.reading(1, 7, {kMs + i * 200 * kUs, i, i});
    CHECK(statistics.held() <= kMax);
  }
  CHECK(statistics.left_out() > 0);
}

TEST_CASE("A window that lost device work has no times", "[device_time]") {
  DeviceTimeStatistics statistics;
  const auto settle = [&statistics](std::uint32_t window) {
    TimedWork work;
    work.start = window * kMs + 100;
    work.end = window * kMs + 200;
    statistics.work(window, 0, work);
    statistics.settle_window(window, window * kMs, window * kMs + 1000);
  };
  const auto total = [&statistics] {
    const std::vector<DeviceTimeRow> totals = statistics.totals();
    return totals.empty() ? 0 : totals.front().times.kernel_busy;
  };
  settle(1);
  statistics.lost_work(2, 0);
  settle(2);
  settle(3);
  CHECK(statistics.row(1, 0) != nullptr);
  CHECK(statistics.row(2, 0) == nullptr);
  CHECK(total() == 200);
  CHECK(statistics.left_out() == 0);
  CHECK(statistics.held() == 0);
  // If the loss is found later, the totals exclude the time as well.
  statistics.lost_work(3, 3 * kMs + 500);
  CHECK(statistics.row(3, 0) == nullptr);
  CHECK(total() == 100);
  settle(4);
  CHECK(total() == 200);
}

TEST_CASE("A window that lost device work is judged up to the first launch of it", "[device_time]") {
  DeviceTimeStatistics statistics;
  const auto work = [&statistics](Nanoseconds launch, Nanoseconds start) {
    TimedWork made;
    made.launch_known = true;
    made.launch_begin = kMs + launch;
    made.launch_end = made.launch_begin + 5;
    made.start = kMs + start;
    made.end = made.start + 100;
    statistics.work(1, 0, made);
  };
  work(10, 100);
  work(20, 700);  // launched before, though it ran after
  work(800, 900);
  statistics.lost_work(1, kMs + 600);
  statistics.lost_work(1, kMs + 500);
  statistics.settle_window(1, kMs, kMs + 2000);
  REQUIRE(statistics.rows().size() == 1);
  CHECK(statistics.rows()[0].times.kernel_busy == 200);
  CHECK(statistics.rows()[0].times.span <= 800);
  CHECK(statistics.held() == 0);
}

TEST_CASE("A graph that copies many values to the host is one wait", "[device_time]") {
  DeviceTimeStatistics statistics;
  for (int i = 0; i < 1000; ++i) statistics.small_download(1, 7, kMs);
  CHECK(statistics.held() == 1);
}

TEST_CASE("States of calls by their names", "[device_time]") {
  CHECK(host_state_of("cudaStreamSynchronize", false) == HostState::kSynchronization);
  CHECK(host_state_of("cuCtxSynchronize", false) == HostState::kSynchronization);
  CHECK(host_state_of("cudaMemcpyAsync_ptsz", false) == HostState::kCopy);
  CHECK(host_state_of("cuMemcpyDtoHAsync_v2", false) == HostState::kCopy);
  CHECK(host_state_of("__cudaLaunchKernel", false) == HostState::kLaunch);
  CHECK(host_state_of("cudaGraphLaunch", false) == HostState::kLaunch);
  CHECK(host_state_of("cudaMemsetAsync", false) == HostState::kLaunch);
  CHECK(host_state_of("cudaMalloc", false) == HostState::kOther);
  CHECK(host_state_of("cudaGraphAddMemcpyNode1D", false) == HostState::kOther);
  CHECK(host_state_of("cudaGraphExecMemsetNodeSetParams", false) == HostState::kOther);
  CHECK(host_state_of("cublasGetVector", true) == HostState::kCopy);
  CHECK(host_state_of("cublasSetMatrixAsync_64", true) == HostState::kCopy);
  CHECK(host_state_of("cublasGetMathMode", true) == HostState::kOther);
  CHECK(host_state_of("cublasGemmEx", true) == HostState::kLaunch);
  CHECK(host_state_of("ncclAllReduce", true) == HostState::kLaunch);
  CHECK(host_state_of("cudnnBackendFinalize", true) == HostState::kOther);
  CHECK(host_state_of("cublasLtMatmulAlgoGetHeuristic", true) == HostState::kOther);
}

TEST_CASE("waits are found by their ends as thread by thread", "[diagnosis]") {
  std::mt19937_64 random(20);
  const auto below = [&random](std::uint64_t limit) { return random() % limit; };
  for (int round = 0; round < 3000; ++round) {
    HostThreads threads;
    const std::uint64_t count = 1 + below(40);
    for (std::uint32_t number = 1; number <= count; ++number) {
      HostThread& thread = threads[number];
      thread.launches = below(4) != 0;
      Nanoseconds time = below(200);
      for (std::uint64_t i = below(12); i > 0; --i) {
        HostCall call;
        call.begin = time += below(60);
        call.end = time += below(60);
        call.state = static_cast<HostState>(below(4));
        thread.calls.push_back(call);
        if (below(2) == 0) thread.small_downloads.insert(thread.small_downloads.begin(), call.begin);
      }
    }
    const std::vector<DeviceWait> waits = waits_of(threads);
    Nanoseconds begin = 0;
    while (begin < 1500) {
      const Nanoseconds end = begin + below(100);
      std::vector<std::pair<Nanoseconds, std::uint64_t>> expected;
      for (const auto& [number, thread] : threads) {
        for (const HostCall& call : thread.calls) {
          if (thread.launches && thread.waits_for_device(call) && call.end > begin && call.end <= end)
            expected.emplace_back(call.end, call.end - call.begin);
        }
      }
      std::vector<std::pair<Nanoseconds, std::uint64_t>> found;
      for (const DeviceWait& wait : waits_between(waits, begin, end)) found.emplace_back(wait.end, wait.time);
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      REQUIRE(found == expected);
      begin = end + below(2);
    }
  }
}

TEST_CASE("Pauses are certain once all earlier work is known to be over", "[device_time]") {
  Run run;
  const auto wait = [&](Nanoseconds begin, Nanoseconds end, bool for_all, std::uint32_t thread = 7) {
    run.statistics.call(
        1, thread,
        {Run::at(begin), Run::at(end), kSyncFunction, HostState::kSynchronization, false, for_all});
  };
  run.launch(0, 10, 10, 1000);
  Nanoseconds certain = 0;
  SECTION("nothing waits") {}
  SECTION("for a stream") {
    wait(10, 20'000, false);
  }
  SECTION("for the device") {
    wait(10, 1000, false);
    wait(2000, 20'000, true);
    wait(21'000, 30'000, true);
    certain = 20'000;
  }
  SECTION("of which there are two") {
    wait(10, 20'000, true);
    run.statistics.work(1, 1, run.work(0, 10, 0, 10));
  }
  SECTION("on a thread that launches nothing") {
    wait(10, 20'000, true, 8);
  }
  run.launch(40'000, 40'010, 40'010, 41'000);
  run.statistics.settle_window(1, kMs, Run::at(41'000));
  const KernelPauses& pauses = run.statistics.row(1, 0)->pauses;
  const Nanoseconds known = certain == 0 ? 0 : 40'010 - certain;
  CHECK(pauses.longer.size() == (certain == 0 ? 0 : 1));
  CHECK(pauses.rest == (10 + 39'010 - known) * kUs);
  if (certain != 0) CHECK(pauses.longer[0].begin == Run::at(certain));
}
