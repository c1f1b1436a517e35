// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/internal_thread.h"

#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <future>
#include <string>
#include <thread>

#include "libinject/base/log.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

void* tell_policy(void* promise) noexcept {
  enter_internal_thread();
  static_cast<std::promise<int>*>(promise)->set_value(sched_getscheduler(0));
  return nullptr;
}

}  // namespace

TEST_CASE("a thread of ours has no real-time priority, whatever its maker has", "[internal_thread]") {
  for (const int policy : {SCHED_OTHER, SCHED_BATCH, SCHED_FIFO, SCHED_RR}) {
    int failed = 0;
    int found = -1;
    std::thread([&] {
      const sched_param priority{policy == SCHED_FIFO || policy == SCHED_RR ? 1 : 0};
      failed = pthread_setschedparam(pthread_self(), policy, &priority);
      if (failed != 0) return;
      std::promise<int> told;
      failed = start_internal_thread(&tell_policy, &told);
      if (failed == 0) found = told.get_future().get();
    }).join();
    if (failed == EPERM) {
      WARN("not tested with real-time priority: this user may not have it");
      continue;
    }
    INFO(policy);
    REQUIRE(failed == 0);
    CHECK(found == (policy == SCHED_BATCH ? SCHED_BATCH : SCHED_OTHER));
  }
}

TEST_CASE("a thread that can't be started is said in one line, whatever its length", "[internal_thread]") {
  CHECK(ThreadProblem("nothing works", EAGAIN).text() ==
        std::string("nothing works: a thread can't be started (Resource temporarily unavailable)"));
  CHECK(std::string(ThreadProblem(std::string(1'000, 'x').c_str(), EAGAIN).text()).size() < 192);
}
