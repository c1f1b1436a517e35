// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libinject/base/ticks.h"
#include "libinject/model/records.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/name_table.h"
#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("a call chain keeps four levels: the three outermost and the innermost") {
  CallChain chain = 0;
  REQUIRE(chain_depth(chain) == 0);
  for (FunctionId f = 1; f <= 6; ++f) chain = chain_push(chain, f);
  CHECK(chain_depth(chain) == 4);
  CHECK(chain_at(chain, 0) == 1);
  CHECK(chain_at(chain, 1) == 2);
  CHECK(chain_at(chain, 2) == 3);
  CHECK(chain_at(chain, 3) == 6);
}

TEST_CASE("names are interned once, whoever asks") {
  NameTable names(1000, 100'000);
  CHECK(names.intern("") == NameTable::kEmpty);
  CHECK(names.name(NameTable::kEmpty).empty());
  const std::uint32_t id = names.intern("kernel<int>");
  CHECK(names.intern(std::string("kernel<") + "int>") == id);
  CHECK(names.name(id) == "kernel<int>");
  CHECK(names.name(12345).empty());

  std::vector<std::thread> threads;
  std::vector<std::vector<std::uint32_t>> ids(8);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) ids[t].push_back(names.intern("name " + std::to_string(i)));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& mine : ids) CHECK(mine == ids[0]);
  for (int i = 0; i < 100; ++i)
    CHECK(names.name(ids[0][static_cast<std::size_t>(i)]) == "name " + std::to_string(i));
}

TEST_CASE("a full name table says [other] and counts") {
  SECTION("out of names") {
    NameTable names(10, 1000);
    for (int i = 0; i < 100; ++i) names.intern("n" + std::to_string(i));
    CHECK(names.size() == 10);
    CHECK(names.overflows() == 92);
    CHECK(names.intern("n99") == NameTable::kOther);
    CHECK(names.name(names.intern("n99")) == "[other]");
    CHECK(names.name(names.intern("n0")) == "n0");
  }
  SECTION("out of text") {
    NameTable names(1000, 64);
    CHECK(names.intern(std::string(65, 'x')) == NameTable::kOther);
    CHECK(names.name(names.intern("short")) == "short");
    CHECK(names.overflows() == 1);
  }
  SECTION("a name longer than the limit is cut, not lost") {
    NameTable names(10, 100'000);
    CHECK(names.name(names.intern(std::string(20'000, 'a'))).size() == 16 * 1024);
  }
}

namespace {
CallRecord numbered(std::uint32_t n) {
  CallRecord record;
  record.call = n;
  return record;
}
std::uint32_t number_of(const Slot& slot) {
  const auto record = slot.as<CallRecord>();
  return record.call;
}

/// A queue, and pushes whose frames all begin at the same address if called from the same function.
struct Pushes {
  [[gnu::noinline]] bool put(
      std::uint32_t number, const std::function<void()>& meanwhile = [] {}) {
    began = reinterpret_cast<std::uintptr_t>(__builtin_dwarf_cfa());
    return queue.emplace<CallRecord>(pool, RecordKind::kCall, 1, [&](CallRecord& record) {
      record.call = number;
      meanwhile();
    });
  }
  /// Jumps out of a push, as a signal handler would.
  [[gnu::noinline]] void jump_out() {
    if (sigsetjmp(before, 0) != 0) return;
    queue.emplace<CallRecord>(pool, RecordKind::kCall, 1, [&](CallRecord&) { siglongjmp(before, 1); });
  }
  /// Does the same two pages further down the stack.
  [[gnu::noinline]] bool put_further_in(std::uint32_t number, bool jump) {
    static_cast<volatile char*>(__builtin_alloca(8192))[0] = 1;
    if (!jump) return put(number);
    jump_out();
    return false;
  }
  std::vector<std::uint32_t> numbers() {
    std::vector<std::uint32_t> found;
    queue.drain(pool, [&](const Slot& slot) { found.push_back(number_of(slot)); });
    return found;
  }

  BlockPool pool{8 * sizeof(Block)};
  RecordQueue queue;
  std::uintptr_t began = 0;
  sigjmp_buf before;
};

struct Interrupted {
  static inline Pushes* pushes = nullptr;
  static inline char* stack = nullptr;
  static inline std::uintptr_t push = 0;
  static inline std::uintptr_t handler = 0;
  static inline bool kept = true;
};

// Pushes when its stack has about 2 KB left.
void push_near_the_end(int /*signal*/) {
  char* const frame = static_cast<char*>(__builtin_frame_address(0));
  const auto down = static_cast<std::size_t>(frame - Interrupted::stack) - 2500;
  static_cast<volatile char*>(__builtin_alloca(down))[0] = 1;
  Interrupted::kept = Interrupted::pushes->put(2);
  Interrupted::handler = Interrupted::pushes->began;
}

/// The alternate stack is within the frame of the interrupted function.
[[gnu::noinline]] void interrupt_on_alternate_stack(Pushes& pushes) {
  alignas(64) char stack[65536];
  Interrupted::pushes = &pushes;
  Interrupted::stack = stack;
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  stack_t alternate_before{};
  REQUIRE(sigaltstack(&alternate, &alternate_before) == 0);
  struct sigaction action {};
  action.sa_handler = &push_near_the_end;
  action.sa_flags = SA_ONSTACK;
  struct sigaction action_before {};
  REQUIRE(sigaction(SIGUSR1, &action, &action_before) == 0);
  CHECK(pushes.put(1, [&] {
    Interrupted::push = pushes.began;
    raise(SIGUSR1);
  }));
  sigaction(SIGUSR1, &action_before, nullptr);
  sigaltstack(&alternate_before, nullptr);
}
}  // namespace

TEST_CASE("a queue hands records over in order and gives its blocks back") {
  BlockPool pool(8 * sizeof(Block));
  RecordQueue queue;
  std::uint32_t expected = 0;
  // Many times the pool's capacity, drained now and then.
  for (std::uint32_t n = 0; n < 20'000; ++n) {
    REQUIRE(queue.push(pool, numbered(n), 7));
    if (n % 777 == 0) {
      queue.drain(pool, [&](const Slot& slot) { REQUIRE(number_of(slot) == expected++); });
    }
  }
  queue.drain(pool, [&](const Slot& slot) { REQUIRE(number_of(slot) == expected++); });
  CHECK(expected == 20'000);
  CHECK(queue.dropped(RecordKind::kCall) == 0);
  queue.retire(pool);
  std::set<Block*> blocks;
  while (Block* block = pool.take()) blocks.insert(block);
  CHECK(blocks.size() == 8);
}

namespace {
/// Numbers its calls, both those with a record of their own and short ones, which hold the lower bits only.
struct MixedCalls {
  bool put_call() { return queue.push(pool, numbered(next), 1); }
  bool put_short(std::uint32_t window) {
    return queue.add_short_call(pool, window, {static_cast<FunctionId>(next), kDuration}, 1);
  }
  /// Returns whether the records taken are those put in, in order.
  bool take() {
    bool same = true;
    const auto expect = [&](std::uint32_t number, std::uint32_t window) {
      same = same && !expected.empty() && expected.front() == std::pair(number, window);
      if (!expected.empty()) expected.pop_front();
    };
    queue.drain(
        pool,
        [&](const Slot& slot) {
          if (slot.kind() == RecordKind::kCall) return expect(number_of(slot) & 0xFFFFu, 0);
          REQUIRE(slot.kind() == RecordKind::kShortCalls);
          const auto record = slot.as<ShortCallsRecord>();
          REQUIRE(record.count > 0);
          for (std::uint32_t i = 0; i < record.count; ++i) {
            expect(record.calls[i].function, record.window);
            same = same && record.calls[i].duration == kDuration;
          }
        },
        [&](const Block& block, BlockPosition from, BlockPosition to, bool) {
          each_record(block.slots, from, to, [&](const Slot& slot) {
            told +=
                slot.kind() == RecordKind::kShortCalls ? slot.bytes[offsetof(ShortCallsRecord, count)] : 1;
          });
        });
    return same;
  }
  [[gnu::noinline]] void jump_out() {
    if (sigsetjmp(before, 0) != 0) return;
    queue.emplace<CallRecord>(pool, RecordKind::kCall, 1, [&](CallRecord&) { siglongjmp(before, 1); });
  }

  static constexpr std::uint16_t kDuration = 321;
  BlockPool pool{4 * sizeof(Block)};
  RecordQueue queue;
  std::deque<std::pair<std::uint32_t, std::uint32_t>> expected;  // number; window of a short call
  std::uint32_t next = 1;
  std::uint64_t told = 0;
  sigjmp_buf before;
};
}  // namespace

TEST_CASE("short calls come in their order, fourteen to a record, and none twice") {
  std::mt19937 random(GENERATE(range(1u, 6u)));
  MixedCalls calls;
  std::uint64_t put = 0;
  std::uint64_t lost = 0;
  std::uint32_t window = 1;
  for (int i = 0; i < 20'000; ++i, ++calls.next) {
    const auto what = static_cast<unsigned>(random() % 100);
    if (what < 1) ++window;
    if (what == 50) REQUIRE(calls.take());
    if (what == 60) {
      calls.jump_out();
      ++lost;
    }
    const bool is_short = what < 80;
    if (is_short ? calls.put_short(window) : calls.put_call()) {
      calls.expected.emplace_back(calls.next & 0xFFFFu, is_short ? window : 0);
      ++put;
    } else {
      ++lost;
    }
  }
  CHECK(calls.take());
  CHECK(calls.expected.empty());
  CHECK(calls.told == put);
  CHECK(calls.queue.dropped(RecordKind::kCall) == lost);
  CHECK(put > lost);
}

TEST_CASE("short calls of a full pool are dropped and counted") {
  MixedCalls calls;
  std::uint32_t put = 0;
  for (int i = 0; i < 100'000; ++i) put += calls.put_short(1) ? 1 : 0;
  CHECK(put == 4 * Block::kSlots * ShortCallsRecord::kMost);
  CHECK(calls.queue.dropped(RecordKind::kShortCalls) == 100'000 - put);
  CHECK_FALSE(calls.put_call());
}

TEST_CASE("a short call is there as soon as it is made, while its record is not complete") {
  MixedCalls calls;
  for (int i = 0; i < 100; ++i, ++calls.next) {
    REQUIRE(calls.put_short(1));
    calls.expected.emplace_back(calls.next, 1);
    REQUIRE(calls.take());
    REQUIRE(calls.expected.empty());
  }
}

TEST_CASE("a full pool drops the newest records and counts them") {
  BlockPool pool(2 * sizeof(Block));
  RecordQueue queue;
  std::uint32_t kept = 0;
  for (std::uint32_t n = 0; n < 1000; ++n) kept += queue.push(pool, numbered(n), 1) ? 1 : 0;
  CHECK(kept == 2 * Block::kSlots);
  CHECK(queue.dropped(RecordKind::kCall) == 1000 - kept);
  CHECK(queue.dropped(RecordKind::kRange) == 0);
  CHECK_FALSE(queue.push(pool, RangeRecord{}, 1));
  CHECK(queue.dropped(RecordKind::kRange) == 1);
  std::uint32_t expected = 0;
  queue.drain(pool, [&](const Slot& slot) { CHECK(number_of(slot) == expected++); });
  CHECK(expected == kept);
  CHECK(queue.push(pool, numbered(5000), 1));
  queue.drain(pool, [&](const Slot& slot) { CHECK(number_of(slot) == 5000); });
}

TEST_CASE("a record that is jumped out of is lost, and none of those that are pushed from its place") {
  Pushes pushes;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t n = 0; n < 4 * Block::kSlots; ++n) {
    if (n % 50 == 49) {
      pushes.jump_out();
    } else {
      REQUIRE(pushes.put(n));
      expected.push_back(n);
    }
  }
  CHECK(pushes.numbers() == expected);
  CHECK(pushes.queue.dropped(RecordKind::kCall) == 4 * Block::kSlots - expected.size());
  CHECK(pushes.queue.dropped(RecordKind::kRange) == 0);
}

TEST_CASE("a push inside another one is dropped, and the other one goes on") {
  Pushes pushes;
  bool inner = true;
  REQUIRE(pushes.put(1, [&] { inner = pushes.put(2); }));
  CHECK_FALSE(inner);
  REQUIRE(pushes.put(3));
  CHECK(pushes.numbers() == std::vector<std::uint32_t>{1, 3});
  CHECK(pushes.queue.dropped(RecordKind::kCall) == 1);
}

TEST_CASE("records are dropped and counted where it can't be told that a push has been jumped out of") {
  Pushes pushes;
  pushes.put_further_in(0, true);
  CHECK_FALSE(pushes.put(1));
  CHECK(pushes.queue.dropped(RecordKind::kCall) == 1);
  CHECK(pushes.put_further_in(2, false));
  CHECK(pushes.put(3));
  CHECK(pushes.numbers() == std::vector<std::uint32_t>{2, 3});
  CHECK(pushes.queue.dropped(RecordKind::kCall) == 2);
}

TEST_CASE("a handler on a stack of its own drops its record while the push that it interrupts goes on",
          "[native]") {
  Pushes pushes;
  interrupt_on_alternate_stack(pushes);
  // At the address where the push began, directly after the end of the handler's stack.
  REQUIRE(Interrupted::handler > Interrupted::push);
  CHECK(Interrupted::handler - Interrupted::push < 4096);
  CHECK_FALSE(Interrupted::kept);
  CHECK(pushes.put(3));
  CHECK(pushes.numbers() == std::vector<std::uint32_t>{1, 3});
}

TEST_CASE("short calls are taken while their thread adds to them") {
  constexpr std::uint32_t kCalls = 200'000;
  BlockPool pool(16 * sizeof(Block));
  RecordQueue queue;
  std::atomic<bool> running{true};
  std::thread producer([&] {
    for (std::uint32_t n = 0; n < kCalls;) {
      const bool put = n % 17 == 0 ? queue.push(pool, numbered(n), 1)
                                   : queue.add_short_call(pool, 1, {static_cast<FunctionId>(n), 7}, 1);
      if (put) {
        ++n;
      } else {
        std::this_thread::yield();
      }
    }
    running = false;
  });
  std::uint32_t next = 0;
  bool in_order = true;
  const auto take = [&] {
    queue.drain(pool, [&](const Slot& slot) {
      if (slot.kind() == RecordKind::kCall) {
        in_order = in_order && number_of(slot) == next++;
        return;
      }
      const auto record = slot.as<ShortCallsRecord>();
      for (std::uint32_t i = 0; i < record.count; ++i)
        in_order = in_order && record.calls[i].function == static_cast<FunctionId>(next++);
    });
  };
  while (running) take();
  producer.join();
  take();
  CHECK(in_order);
  CHECK(next == kCalls);
}

TEST_CASE("producers and the consumer work side by side and nothing is lost or doubled") {
  constexpr std::uint32_t kEach = 50'000;
  constexpr std::size_t kProducers = 4;
  BlockPool pool(256 * sizeof(Block));
  std::vector<RecordQueue> queues(kProducers);
  std::atomic<std::size_t> running{kProducers};
  std::vector<std::thread> producers;
  for (std::size_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (std::uint32_t n = 0; n < kEach;) {
        if (queues[p].push(pool, numbered(n), static_cast<std::uint32_t>(p))) {
          ++n;
        } else {
          std::this_thread::yield();
        }
      }
      --running;
    });
  }
  std::vector<std::uint32_t> next(kProducers, 0);
  bool in_order = true;
  const auto drain_all = [&] {
    for (std::size_t p = 0; p < kProducers; ++p) {
      queues[p].drain(pool, [&](const Slot& slot) { in_order = in_order && number_of(slot) == next[p]++; });
    }
  };
  while (running.load() != 0) drain_all();
  for (auto& producer : producers) producer.join();
  drain_all();
  CHECK(in_order);
  for (const std::uint32_t count : next) CHECK(count == kEach);
}

TEST_CASE("times made of ticks are not late, and hardly early", "[native]") {
  TickClock clock;
  int close = 0;
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t at = ticks();
    const Nanoseconds time = now();
    // Some readings follow immediately, others after a few milliseconds.
    const timespec pause{0, round % 8 == 0 ? 2'000'000 : 1'000};
    nanosleep(&pause, nullptr);
    clock.calibrate();
    CHECK(clock.time(at) <= time);
    if (time - clock.time(at) < 20'000) ++close;
  }
  // The thread may have lost its CPU between the two, but hardly every second time.
  CHECK(close > 100);
}

TEST_CASE("the period of ticks is known once two readings are far enough apart", "[native]") {
  TickPeriod period;
  TickClock clock;
  clock.calibrate();
  if (clock.period() == 0) {  // otherwise the thread lost its CPU between the two
    period.set(clock);
    CHECK_FALSE(period.known());
    CHECK(period.between(1, 1'000'000) == 0);
  }
  const timespec pause{0, 5'000'000};
  nanosleep(&pause, nullptr);
  clock.calibrate();
  period.set(clock);
  REQUIRE(period.known());
  const Nanoseconds before = now();
  const std::uint64_t first = ticks();
  const Nanoseconds begin = now();
  nanosleep(&pause, nullptr);
  const Nanoseconds end = now();
  const std::uint64_t last = ticks();
  const Nanoseconds after = now();
  // Five milliseconds of readings that are less than a microsecond off.
  CHECK(period.between(first, last) >= (end - begin) / 1000 * 999);
  CHECK(period.between(first, last) <= (after - before) / 1000 * 1001);
  CHECK(period.between(last, first) == 0);
  CHECK(period.between(first, first) == 0);
}
