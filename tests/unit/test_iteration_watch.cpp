// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/iteration_watch.h"

#include <barrier>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

struct Stop {
  std::uint64_t count;
  Nanoseconds time;
  bool in_callback;
};
std::function<void(const Stop&)>& stop_handler() {
  static std::function<void(const Stop&)> handler;
  return handler;
}

constexpr std::uint64_t kAnchor = 900;
constexpr std::uint64_t kBegin = 100;
constexpr std::uint64_t kBeginToo = 200;

void on_stop(std::uint64_t count, Nanoseconds time, bool in_callback) noexcept {
  if (stop_handler()) stop_handler()({count, time, in_callback});
}

struct Watching {
  Watching() {
    iteration_watch.on_stop = &on_stop;
    iteration_watch.armed = false;
    iteration_watch.count = 0;
    iteration_watch.next_stop = IterationWatch::kNever;
    stop_handler() = nullptr;
    take();  // left over from an earlier test
  }
  void arm() { iteration_watch.arm({kAnchor, kBegin, kBeginToo}); }
  /// Returns the count after the sign.
  std::uint64_t sign(std::uint64_t function, std::uint64_t shape = 1) {
    emit_sign(SignKind::kKernel, function, shape, 7, false);
    return iteration_watch.count;
  }
  std::map<std::uint32_t, std::vector<SignRecord>> take() {
    std::map<std::uint32_t, std::vector<SignRecord>> found;
    core.threads.drain([&](std::uint32_t thread, const Slot& slot) {
      if (slot.kind() != RecordKind::kSign) return;
      const auto record = slot.as<SignRecord>();
      found[thread].push_back(record);
    });
    return found;
  }
  Core& core = *Core::get();
};

}  // namespace

TEST_CASE_METHOD(Watching, "a step is captured while a capture is open, whenever the search ended") {
  const auto captured = [&] {
    take();
    emit_sign(SignKind::kStep, 1, 1, 0, false);
    for (const auto& [thread, records] : take())
      if (!records.empty()) return records.back().captured;
    return false;
  };
  iteration_watch.source = SignSource::kHooks;
  CHECK_FALSE(captured());
  note_capture(true);
  CHECK(captured());
  iteration_watch.source = SignSource::kNone;
  note_capture(false);
  iteration_watch.source = SignSource::kHooks;
  CHECK_FALSE(captured());
  note_capture(false);  // of a capture whose begin was not seen
  note_capture(true);
  CHECK(captured());
  note_capture(false);
  CHECK_FALSE(captured());
  iteration_watch.source = SignSource::kNone;
}

TEST_CASE_METHOD(Watching, "an iteration begins with the first `begin` after the anchor") {
  CHECK(sign(kAnchor) == 0);  // not armed
  arm();
  CHECK(sign(kBegin) == 0);  // no anchor since
  CHECK(sign(kAnchor) == 0);
  CHECK(sign(5) == 0);
  CHECK(sign(kBegin) == 1);
  CHECK(sign(kBegin) == 1);
  CHECK(sign(kBeginToo) == 1);
  CHECK(sign(kAnchor) == 1);
  CHECK(sign(kAnchor) == 1);
  CHECK(sign(kBeginToo) == 2);  // the other begin counts as well
  CHECK(sign(kBegin) == 2);
}

TEST_CASE_METHOD(Watching, "marks are functions or launch shapes") {
  arm();
  CHECK(sign(1, kAnchor) == 0);
  CHECK(sign(2, kBegin) == 1);
  CHECK(sign(kAnchor, 3) == 1);
  CHECK(sign(4, kBeginToo) == 2);
}

TEST_CASE_METHOD(Watching, "one event may be both the end and the beginning: a graph a step") {
  iteration_watch.arm({kAnchor, kAnchor, kAnchor});
  for (std::uint64_t k = 0; k < 10; ++k) CHECK(sign(kAnchor) == k);
}

TEST_CASE_METHOD(Watching, "armed anew, the watch knows of no anchor, and counts on") {
  arm();
  sign(kAnchor);
  CHECK(sign(kBegin) == 1);
  sign(kAnchor);
  arm();
  CHECK(sign(kBegin) == 1);
  sign(kAnchor);
  CHECK(sign(kBegin) == 2);
}

TEST_CASE_METHOD(Watching, "signs come in order, a boundary before the sign that it is found at") {
  arm();
  sign(kAnchor, 11);
  sign(kBegin, 12);
  sign(5, 13);
  emit_sign(SignKind::kCopyToHost, 6, 14, 8, false);
  const auto all = take();
  REQUIRE(all.size() == 1);
  const std::vector<SignRecord>& records = all.begin()->second;
  REQUIRE(records.size() == 5);
  CHECK(records[0].function == kAnchor);
  CHECK(records[1].sign == SignKind::kBoundary);
  CHECK(records[1].name == 1);
  CHECK(records[1].sequence == records[2].sequence);
  CHECK(records[2].function == kBegin);
  CHECK(records[3].shape == 13);
  CHECK(records[4].sign == SignKind::kCopyToHost);
  CHECK(records[4].stream == 8);
  for (std::size_t i = 1; i < records.size(); ++i) CHECK(records[i - 1].sequence <= records[i].sequence);
}

TEST_CASE_METHOD(Watching,
                 "every sixteenth sign has a time, the first of a pass and what follows a call that waits") {
  const auto timed = [&] {
    std::string which;
    const auto all = take();
    for (const SignRecord& record : all.begin()->second) which += record.ticks != 0 ? '1' : '0';
    return which;
  };
  const auto emit = [](SignKind kind) { emit_sign(kind, 5, 6, 7, false); };
  begin_sign_pass();
  for (int i = 0; i < 34; ++i) emit(SignKind::kKernel);
  CHECK(timed() == "1000000000000000100000000000000010");
  begin_sign_pass();
  emit(SignKind::kKernel);
  emit(SignKind::kKernel);
  emit(SignKind::kSync);
  emit(SignKind::kKernel);
  emit(SignKind::kKernel);
  CHECK(timed() == "10010");
  control_word.fetch_or(kControlRecord);
  emit(SignKind::kKernel);
  emit(SignKind::kKernel);
  control_word.fetch_and(~static_cast<std::uint32_t>(kControlRecord));
  CHECK(timed() == "11");
}

TEST_CASE_METHOD(Watching, "a sign inside a hooked call has the time at which that call began") {
  std::vector<Stop> stops;
  stop_handler() = [&](const Stop& stop) { stops.push_back(stop); };
  arm();
  iteration_watch.next_stop = 1;
  sign(kAnchor);
  emit_sign(SignKind::kKernel, kBegin, 1, 7, true, 4'321);
  REQUIRE(stops.size() == 1);
  CHECK(stops[0].time == 4'321);
  const auto all = take();
  const std::vector<SignRecord>& records = all.begin()->second;
  REQUIRE(records.size() == 3);
  CHECK(records[0].begin == 0);
  CHECK(records[1].shape == 4'321);
  CHECK(records[2].begin == 4'321);
}

TEST_CASE_METHOD(Watching, "the session is told once, where the count has been reached, before the sign") {
  std::vector<Stop> stops;
  stop_handler() = [&](const Stop& stop) {
    stops.push_back(stop);
    iteration_watch.next_stop = IterationWatch::kNever;
    errno = 5;
  };
  arm();
  iteration_watch.next_stop = 3;
  errno = 77;
  for (unsigned k = 0; k < 6; ++k) {
    sign(kAnchor);
    emit_sign(SignKind::kKernel, kBegin, 1, 7, k == 2);
  }
  CHECK(errno == 77);
  REQUIRE(stops.size() == 1);
  CHECK(stops[0].count == 3);
  CHECK(stops[0].in_callback);
  const auto all = take();
  std::vector<SignRecord> boundaries;
  for (const SignRecord& record : all.begin()->second) {
    if (record.sign == SignKind::kBoundary) boundaries.push_back(record);
  }
  REQUIRE(boundaries.size() == 6);
  // A window's edge has the same time as its iteration's.
  CHECK(boundaries[2].shape == stops[0].time);
}

TEST_CASE_METHOD(Watching, "a session that could not act is told again at the next boundary") {
  unsigned told = 0;
  stop_handler() = [&](const Stop& stop) {
    if (++told == 3) iteration_watch.next_stop = stop.count + 4;
  };
  arm();
  iteration_watch.next_stop = 2;
  for (unsigned k = 0; k < 9; ++k) {
    sign(kAnchor);
    sign(kBegin);
  }
  // At 2, 3 and 4, then at 8 and 9.
  CHECK(told == 5);
}

TEST_CASE_METHOD(Watching, "of several threads that come with the beginning one has it") {
  constexpr unsigned kThreads = 4;
  constexpr unsigned kRounds = 3000;
  std::atomic<unsigned> told{0};
  stop_handler() = [&](const Stop&) { ++told; };
  arm();
  iteration_watch.next_stop = 1;
  std::vector<std::uint64_t> counts;
  std::barrier all_at_once(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < kRounds; ++round) {
        if (t == round % kThreads) sign(kAnchor);
        all_at_once.arrive_and_wait();
        sign(t % 2 == 0 ? kBegin : kBeginToo);
        all_at_once.arrive_and_wait();
        if (t == 0) counts.push_back(iteration_watch.count);
        all_at_once.arrive_and_wait();
        if (t == 0 && round % 16 == 0) take();
        all_at_once.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // None is lost, none is counted twice.
  for (unsigned round = 0; round < kRounds; ++round) REQUIRE(counts[round] == round + 1);
  CHECK(told == kRounds);
}

TEST_CASE_METHOD(Watching, "while one thread opens a window another one's boundary is not lost") {
  std::barrier met(2);
  std::atomic<bool> inside{false};
  stop_handler() = [&](const Stop& stop) {
    if (stop.count != 1) return;
    inside = true;
    met.arrive_and_wait();  // the other thread continues
    met.arrive_and_wait();
    inside = false;
  };
  arm();
  iteration_watch.next_stop = 1;
  std::thread other([&] {
    met.arrive_and_wait();
    CHECK(inside);
    sign(kAnchor);
    CHECK(sign(kBegin) == 2);
    met.arrive_and_wait();
  });
  sign(kAnchor);
  sign(kBegin);
  other.join();
  CHECK(iteration_watch.count == 2);
}

TEST_CASE_METHOD(Watching, "our own threads are no part of the program") {
  arm();
  std::thread ours([&] {
    ThreadRegistry::ignore_this_thread();
    sign(kAnchor);
    sign(kBegin);
  });
  ours.join();
  CHECK(iteration_watch.count == 0);
  CHECK(take().empty());
}

TEST_CASE_METHOD(Watching, "a full ring costs records, no boundary") {
  arm();
  for (unsigned k = 0; k < 200'000; ++k) {
    sign(kAnchor);
    sign(kBegin);
  }
  CHECK(iteration_watch.count == 200'000);
  std::size_t kept = 0;
  for (const auto& [thread, records] : take()) kept += records.size();
  CHECK(kept < 600'000);
  CHECK(kept > 100'000);
}

TEST_CASE_METHOD(Watching, "names and marks are told as they come") {
  emit_name(42, "_Z4stepv");
  emit_name(43, nullptr);
  emit_mark(core.names.intern("truth:1"));
  const auto all = take();
  REQUIRE(all.size() == 1);
  const std::vector<SignRecord>& records = all.begin()->second;
  REQUIRE(records.size() == 2);
  CHECK(records[0].sign == SignKind::kName);
  CHECK(records[0].function == 42);
  CHECK(core.mangled.name(records[0].name) == "_Z4stepv");
  CHECK(records[1].sign == SignKind::kMark);
  CHECK(core.names.name(records[1].name) == "truth:1");
}

TEST_CASE("a function whose name could not be had is new again, and no other one") {
  forget_functions();
  std::vector<std::uint64_t> functions;
  for (std::uint64_t i = 1; i <= 1000; ++i) functions.push_back(i * 7919);
  for (const std::uint64_t function : functions) CHECK(function_is_new(function));
  function_stays_new(functions[500]);
  function_stays_new(3);  // none of them is new any more
  for (const std::uint64_t function : functions)
    CHECK(function_is_new(function) == (function == functions[500]));
  CHECK_FALSE(function_is_new(functions[500]));
  forget_functions();
}

TEST_CASE("a function is new once, whichever thread comes first") {
  constexpr std::uint64_t kFunctions = 3000;
  std::vector<std::atomic<unsigned>> times(kFunctions);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < kFunctions; ++i) times[i] += function_is_new(i * 7919 + 1) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& count : times) CHECK(count == 1);

  // More than there is room for: the rest get no name, and nothing is reported twice.
  std::size_t fresh = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) fresh += function_is_new(i * 104'729 + 2);
  CHECK(fresh > 4000);
  CHECK(fresh <= 8192 - kFunctions);
  for (std::uint64_t i = 0; i < 100'000; ++i) REQUIRE_FALSE(function_is_new(i * 104'729 + 2));

  forget_functions();
  CHECK(function_is_new(1));
  CHECK_FALSE(function_is_new(1));
}
