// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Windows that open and close with training iterations, which hooks or CUPTI's callbacks report.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/mapping.h"
#include "libinject/record/control.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/session/session.h"
#include "tests/unit/catch.h"
#include "tests/unit/fake_cupti.h"
#include "tests/unit/session_program.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

using Reasons = std::vector<std::string>;

constexpr std::uint64_t kOptimizer = 500;
constexpr const char* kAdam = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18FusedAdamE";
constexpr int kKernels = 1 + 4 * 5 + 3 + 4 * 7 + 3;

/// A hooked launch, or one that CUPTI's callbacks see.
void kernel(std::uint64_t function) {
  if (FakeCupti::get().present) {
    FakeCupti::get().launch(function, function >= kOptimizer ? kAdam : "_Z7forwardv");
    return;
  }
  if ((control_word.load(std::memory_order_acquire) & kControlSearch) == 0) return;
  const std::uint64_t hash = hash_mix(function * kHashSeed + 1);
  if (function >= kOptimizer && function_is_new(hash)) emit_name(hash, kAdam);
  emit_sign(SignKind::kKernel, hash, hash_mix(hash + 2), 7, false);
}

void kernels(std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t function = first; function <= last; ++function) kernel(function);
}

/// Forward and backward through four layers, and an optimizer.
void step() {
  call();
  kernel(1);
  for (int layer = 0; layer < 4; ++layer) kernels(10, 14);
  kernels(20, 22);
  for (int layer = 0; layer < 4; ++layer) kernels(30, 36);
  kernels(kOptimizer, kOptimizer + 2);
  usleep(2'000);
}

/// For at most a minute and a half.
template <typename Condition>
void steps_until(Condition condition) {
  bool met = condition();
  for (const Nanoseconds deadline = now() + 90 * kSecond; !met && now() < deadline; met = condition()) step();
  EXPECT(met);
}

bool finished() {
  return session().status().state == std::string("finished");
}

struct Iterations {
  unsigned long first = 0;
  unsigned long last = 0;
  int count() const { return static_cast<int>(last - first + 1); }
};

/// "iterations 30-32 (…)".
Iterations iterations_of(const std::string& reason) {
  Iterations found;
  CHECK(std::sscanf(reason.c_str(), "iterations %lu-%lu (", &found.first, &found.last) == 2);
  return found;
}

Left play_with(bool cupti, const std::string& window, const std::function<void()>& program) {
  return play(window, [&] {
    FakeCupti::get().present = cupti;
    program();
  });
}

}  // namespace

TEST_CASE("a window opens and closes with iterations", "[session]") {
  struct Case {
    const char* window;
    unsigned long start;
    int count;
    std::size_t windows;
  };
  const Case cases[] = {{"iter:60+3", 60, 3, 1},
                        {"iter:0+2", 0, 2, 1},
                        {"iter:60+2/10x3", 60, 2, 3},
                        {"iter:60+4/4x2", 60, 4, 2}};
  for (const bool cupti : {false, true}) {
    for (const Case& test : cases) {
      INFO(test.window << (cupti ? ", by callbacks" : ", by hooks"));
      const Left left = play_with(cupti, test.window, [] {
        session();
        steps_until(finished);
        EXPECT(session().user_flush());
        // The steps that follow are timed first.
        steps_until([] { return session().conclude(false) == Session::Conclusion::kDone; });
      });
      check_end(left);
      const Reasons reasons = left.reasons();
      REQUIRE(reasons.size() == test.windows);
      unsigned long next = test.start;
      for (const std::string& reason : reasons) {
        const Iterations iterations = iterations_of(reason);
        CHECK(iterations.first >= next);
        CHECK(iterations.count() == test.count);
        CHECK(reason.substr(reason.find(" (")) == " (" + std::string(test.window) + ")");
        next = iterations.last + 1;
      }
      // On a busy machine it may be late, but then a message says so; a callback does not wait, so the next
      // boundary is taken.
      const bool late = left.said("too late for iteration");
      if (!cupti && !late) CHECK(iterations_of(reasons[0]).first == test.start);
      if (test.start == 0)
        CHECK(left.times_said("too late for iteration 0: iterations were recognised after") == 1);
      // A window that opens late, in the middle of an iteration, still has that many whole ones.
      for (const int count : left.by_window("Iterations"))
        CHECK((cupti ? count >= test.count : count == test.count));
      for (const int count : left.by_window("Kernels")) CHECK(count >= (cupti ? test.count * kKernels : 0));
      CHECK(left.run.at("iterations").at("source") == (cupti ? "callbacks" : "hooks"));
      CHECK(left.run.at("iterations").at("recognised_by") == "optimizer");
      if (cupti) continue;
      // One line per step, which begins with its number.
      std::istringstream steps(left.files.at("step_times.csv"));
      int after = 0;
      for (std::string row; std::getline(steps, row);) {
        if (std::strtoul(row.c_str(), nullptr, 10) >= next) ++after;
      }
      CHECK(after >= 30);
    }
  }
}

TEST_CASE("auto has a window of ten iterations, unless the program opens its own", "[session]") {
  for (const bool cupti : {false, true}) {
    const Left left = play_with(cupti, "auto", [] {
      session();
      steps_until(finished);
    });
    check_end(left);
    REQUIRE(left.reasons().size() == 1);
    CHECK(iterations_of(left.reasons()[0]).count() == 10);
    REQUIRE(left.by_window("Iterations").size() == 1);
    CHECK(left.by_window("Iterations")[0] >= 10);
  }

  const Left own = play_with(true, "auto", [] {
    session();
    for (int i = 0; i < 30; ++i) step();
    start();
    step();
    step();
    stop();
    // A second and a half, after which iterations would have been trusted.
    for (int i = 0; i < 600; ++i) step();
  });
  check_end(own);
  CHECK(own.reasons() == Reasons{"api"});
  CHECK(own.by_window("Kernels") == std::vector<int>{2 * kKernels});
}

TEST_CASE("a window of iterations that the program does not complete", "[session]") {
  // Closed at the program's end.
  const Left ends = play_with(true, "iter:20+1000000", [] {
    session();
    steps_until([] { return session().is_open(); });
    for (int i = 0; i < 3; ++i) step();
  });
  check_end(ends);
  REQUIRE(ends.reasons().size() == 1);
  CHECK(ends.window(1).at("state") == "closed");

  // Closed by the program: no other window follows.
  const Left closed = play_with(true, "iter:20+1000000", [] {
    session();
    steps_until([] { return session().is_open(); });
    step();
    EXPECT(session().user_stop());
    for (int i = 0; i < 20; ++i) step();
    EXPECT(comes(finished));
  });
  check_end(closed);
  CHECK(closed.reasons().size() == 1);

  // A client takes over CUPTI, whose callbacks had reported the iterations.
  const Left taken = play_with(true, "iter:20+1000000", [] {
    session();
    steps_until([] { return session().is_open(); });
    session().arbiter().on_call(ForeignCall::kSubscribe);
    EXPECT(FakeCupti::get().other_subscribes() == CUPTI_SUCCESS);
    for (int i = 0; i < 20; ++i) step();
    EXPECT(!session().is_open());
  });
  check_end(taken);
  REQUIRE(taken.reasons().size() == 1);
  CHECK(taken.window(1).at("ended_by") == "the program subscribes to CUPTI");
}

TEST_CASE("a window of another kind comes between those of iterations", "[session]") {
  for (const bool cupti : {false, true}) {
    const Left left = play_with(cupti, "iter:60+3", [] {
      session();
      EXPECT(session().user_start());
      EXPECT(comes([] { return session().is_open(); }));
      for (int i = 0; i < 5; ++i) step();
      EXPECT(session().user_stop());
      steps_until(finished);
    });
    check_end(left);
    REQUIRE(left.reasons().size() == 2);
    CHECK(left.reasons()[0] == "inject_start");
    CHECK(iterations_of(left.reasons()[1]).count() == 3);
  }
}

TEST_CASE("a program with too few iterations is told how many there were", "[session]") {
  const Left left = play_with(false, "iter:1000000+1", [] {
    session();
    for (int i = 0; i < 40; ++i) step();
    usleep(50'000);
  });
  check_end(left);
  CHECK(left.files.empty());
  CHECK(left.times_said("training iterations ran; to profile the whole run, set INJECT_WINDOW=always") == 1);
}

TEST_CASE("in a window of another trigger iterations are told apart", "[session]") {
  const Left left = play_with(true, "nvtx:step", [] {
    for (int window = 0; window < 2; ++window) {
      EXPECT(session().user_start());
      EXPECT(comes([] { return session().is_open(); }));
      for (int i = 0; i < 30; ++i) step();
      EXPECT(session().user_stop());
      EXPECT(session().user_flush());
    }
  });
  check_end(left);
  CHECK(left.by_window("Kernels") == std::vector<int>{30 * kKernels, 30 * kKernels});
  CHECK(left.run.at("iterations").at("found") == true);
  const std::vector<int> iterations = left.by_window("Iterations");
  REQUIRE(iterations.size() == 2);
  for (const int count : iterations) CHECK(count >= 28);
}

TEST_CASE("signs are recorded where that is asked for", "[session]") {
  const TemporaryFolder folder;
  const Left left =
      play({{"INJECT_WINDOW", "iter:30+2"}, {"INJECT_ITER_RECORD", folder.path() + "/stream"}}, [] {
        session();
        steps_until(finished);
        step();
      });
  check_end(left);
  CHECK(left.reasons().size() == 1);
  const std::string stream = folder.read("stream");
  CHECK(stream.find("\nK ") != std::string::npos);
  CHECK(stream.find("\nO ") != std::string::npos);
  CHECK(stream.find("\nC ") != std::string::npos);
}
