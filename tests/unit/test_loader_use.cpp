// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/loader_use.h"

#include <sys/wait.h>
#include <unistd.h>

#include <new>

#include "libinject/base/clock.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constinit pid_t child = 0;
alignas(LoaderUse) unsigned char storage[sizeof(LoaderUse)];

/// In a function of its own: the child's calls may overwrite what the compiler keeps of the caller's.
__attribute__((noinline)) void end_child_amid_a_use() {
  child = vfork();
  if (child == 0) {
    ::new (storage) LoaderUse;  // as one that is killed there: no destructor runs
    _exit(0);
  }
}

}  // namespace

TEST_CASE("a child made by vfork that ends amid the loader's work holds no later fork up", "[native]") {
  { const LoaderUse use; }
  end_child_amid_a_use();
  REQUIRE(child > 0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  const Nanoseconds begin = now();
  LoaderUse::before_fork();
  LoaderUse::after_fork();
  CHECK(now() - begin < 1'500'000'000);  // two seconds are waited for a use that goes on
}
