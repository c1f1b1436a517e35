// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/unit/catch.h"

#include "libinject/record/open_calls.h"

using namespace inject;

namespace {

OpenCall call(std::uint32_t number, std::uintptr_t stack) {
  OpenCall made;
  made.call = number;
  made.stack = stack;
  made.window = 1;
  return made;
}

/// A thread's calls and its queue.
struct Thread {
  Thread() { calls.reset(queue); }
  std::uint64_t lost() const { return queue.dropped(RecordKind::kCall); }

  RecordQueue queue;
  OpenCalls calls;
};

std::uint32_t enter(OpenCalls& calls, std::uint32_t number, std::uintptr_t stack) {
  OpenCall made = call(number, stack);
  return calls.enter(made, calls.around(stack) != nullptr);
}

}  // namespace

TEST_CASE("calls nest by their order, and the outer one's end takes the inner ones out") {
  Thread thread;
  OpenCalls& calls = thread.calls;
  const std::uint32_t outer = enter(calls, 1, 900);
  const std::uint32_t inner = enter(calls, 2, 800);
  REQUIRE(calls.around(700)->call == 2);
  CHECK(calls.around(*calls.at(inner, 2))->call == 1);
  CHECK(calls.around(*calls.at(outer, 1)) == nullptr);
  calls.leave(inner);
  CHECK(calls.around(800)->call == 1);
  CHECK(calls.at(inner, 2) == nullptr);
  enter(calls, 3, 800);  // is left by a jump
  calls.leave(outer);
  CHECK(calls.empty());
  CHECK(thread.lost() == 1);
}

TEST_CASE(
    "a short call that was jumped out of is counted by the next one, and one that was interrupted is not") {
  Thread thread;
  OpenCalls& calls = thread.calls;
  calls.enter_short_call(800);
  CHECK_FALSE(calls.empty());
  CHECK(calls.in_short_call(700));
  CHECK_FALSE(calls.in_short_call(800));
  // Further in, from a signal handler.
  CHECK(calls.around(700) == nullptr);
  const std::uint32_t handlers = enter(calls, 1, 700);
  calls.leave(handlers);
  CHECK(thread.lost() == 0);
  CHECK_FALSE(calls.leave_short_call(700));
  CHECK(calls.leave_short_call(800));
  CHECK(calls.empty());
  // Left by siglongjmp.
  calls.enter_short_call(800);
  CHECK(calls.around(800) == nullptr);
  CHECK(calls.empty());
  CHECK(thread.lost() == 1);
  calls.enter_short_call(800);
  enter(calls, 2, 900);
  CHECK(thread.lost() == 2);
}

TEST_CASE("a call that was jumped out of is forgotten by one from its place or further out") {
  Thread thread;
  OpenCalls& calls = thread.calls;
  const std::uint32_t place = enter(calls, 1, 800);
  CHECK(calls.around(700)->call == 1);
  CHECK(calls.around(800) == nullptr);
  CHECK(thread.lost() == 1);
  CHECK(enter(calls, 2, 800) == place);
  // The first call's place is now used by another call.
  CHECK(calls.at(place, 1) == nullptr);
  CHECK(calls.at(place, 2) != nullptr);
}

TEST_CASE("only a call that would have had a record is lost when it is jumped out of") {
  Thread thread;
  const auto jumped_out_of = [&thread](const char* function, std::uint32_t window,
                                       std::uint32_t correlation) {
    const std::uint64_t before = thread.lost();
    OpenCall made = call(1, 800);
    made.function = find_function(function);
    made.window = window;
    made.correlation = correlation;
    thread.calls.enter(made, false);
    thread.calls.around(800);
    return thread.lost() - before;
  };
  CHECK(jumped_out_of("cudaDeviceSynchronize", 1, 0) == 1);
  CHECK(jumped_out_of("cudaDeviceSynchronize", 0, 0) == 0);
  record_plain_calls = false;  // INJECT_API=off
  CHECK(jumped_out_of("cudaDeviceSynchronize", 1, 0) == 0);
  CHECK(jumped_out_of("cudaLaunchKernel", 1, 7) == 1);
  CHECK(jumped_out_of("cublasSgemm_v2", 1, 0) == 1);
  record_plain_calls = true;
}

TEST_CASE("calls that are jumped out of again and again leave room") {
  Thread thread;
  OpenCalls& calls = thread.calls;
  for (std::uint32_t i = 1; i <= 3 * OpenCalls::kMaxDepth; ++i) enter(calls, i, 100'000 - 10 * i);
  CHECK(thread.lost() == 2 * OpenCalls::kMaxDepth);
  CHECK(calls.around(0)->call == 3 * OpenCalls::kMaxDepth);
}
