// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/gate.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "libinject/base/clock.h"
#include "libinject/record/control.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

bool is_gate_closed() {
  return (control_word.load() & kControlGate) != 0;
}

}  // namespace

TEST_CASE("a launch that one gate held does not open the next one early") {
  for (int round = 0; round < 10; ++round) {
    std::optional<LaunchGate> gate(std::in_place, true);
    const Nanoseconds first_deadline = now() + LaunchGate::kMaxHold;
    std::thread held([] { LaunchGate::wait(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    gate.reset();
    const Nanoseconds closing = now();
    gate.emplace(true);
    while (now() < first_deadline + kMillisecond) std::this_thread::yield();
    const bool is_closed = is_gate_closed();
    // On a busy machine the second gate's time may be over as well.
    if (now() < closing + LaunchGate::kMaxHold) CHECK(is_closed);
    gate.reset();
    held.join();
  }
}

TEST_CASE("a gate opens by itself, for launches that would wait for too long") {
  const LaunchGate gate(true);
  const Nanoseconds since = now();
  LaunchGate::wait();
  CHECK(now() - since < kSecond);
  CHECK_FALSE(is_gate_closed());
}
