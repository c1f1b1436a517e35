// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/call_shapes.h"

#include "libinject/model/functions.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr std::uint32_t kShape = 2;

CallEvent captured_call(std::uint32_t number) {
  CallEvent event;
  event.function = find_function("cublasGemmEx");
  event.owns_shape = event.captured = true;
  event.shape = kShape;
  event.thread = 1;
  event.call = number;
  event.window = 1;
  event.begin = 100;
  event.end = 150;
  return event;
}

/// A kernel of graph launch `correlation`, in the part captured from call `call` of thread `thread`.
KernelEvent replayed_kernel(std::uint32_t correlation, std::uint32_t thread, std::uint32_t call,
                            Nanoseconds time) {
  KernelEvent event;
  event.launch.known = true;
  event.launch.window = 1;
  event.launch.thread = 5;
  event.launch.shape = kShape;
  event.correlation = correlation;
  event.replayed = {find_function("cublasGemmEx"), thread, call};
  event.start = 1000;
  event.end = 1000 + time;
  event.name = 9;
  return event;
}

}  // namespace

TEST_CASE("each launch of a graph is a call of its own for each call that was captured", "[stats]") {
  CallShapeStatistics shapes;
  shapes.add(captured_call(3));
  shapes.add(captured_call(4));
  // Two kernels of one call, with the other call's kernels between them.
  CHECK(shapes.add(replayed_kernel(70, 1, 3, 10)));
  CHECK(shapes.add(replayed_kernel(70, 1, 4, 5)));
  CHECK_FALSE(shapes.add(replayed_kernel(70, 1, 3, 20)));
  CHECK(shapes.add(replayed_kernel(71, 1, 3, 40)));
  // Captured on another thread, where it had the same number.
  CHECK(shapes.add(replayed_kernel(71, 2, 3, 7)));
  const auto rows = shapes.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].calls == 2);
  CHECK(rows[0].captured == 2);
  CHECK(rows[0].replayed == 4);
  CHECK(rows[0].executed() == 4);
  CHECK(rows[0].kernels == 5);
  CHECK(rows[0].gpu.count == 4);
  CHECK(rows[0].gpu.sum == 82);
  CHECK(rows[0].gpu.smallest() == 5);
  CHECK(rows[0].gpu.max == 40);
  CHECK(rows[0].host.sum == 100);
}

TEST_CASE("a graph launched in a later window than it was captured in", "[stats]") {
  CallShapeStatistics shapes;
  shapes.add(captured_call(3));
  shapes.settle(1);
  KernelEvent kernel = replayed_kernel(70, 1, 3, 10);
  kernel.launch.window = 2;
  CHECK(shapes.add(kernel));
  // The same correlation id after CUPTI was attached anew.
  shapes.settle(2);
  kernel.launch.window = 3;
  CHECK(shapes.add(kernel));
  const auto rows = shapes.rows();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].calls == 1);
  CHECK(rows[0].executed() == 2);
}
