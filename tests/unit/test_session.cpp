// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When windows open and close, in processes without CUPTI: windows have what the hooks recorded.
#include "libinject/session/session.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/record/core.h"
#include "tests/unit/catch.h"
#include "tests/unit/session_program.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

using Reasons = std::vector<std::string>;

void range_opens() {
  Core::get()->nvtx_trigger.opened();
}
void range_closes() {
  Core::get()->nvtx_trigger.closed();
}

/// Sends the signal, and waits for its effect.
void toggle(int signal = SIGUSR2) {
  const bool open = session().is_open();
  raise(signal);
  EXPECT(comes([open] { return session().is_open() != open; }));
}

std::string state() {
  return session().status().state;
}

std::atomic<int> windows_last_closed{0};

}  // namespace

TEST_CASE("each trigger opens and closes the windows that it should", "[session]") {
  struct Case {
    const char* what;
    const char* window;
    void (*program)();
    Reasons reasons;
    std::vector<int> calls;
  };
  const Case cases[] = {
      {"the profiler's start and stop",
       "api",
       [] {
         session();
         call();
         start();
         call();
         stop();
         call();
         start();
         call();
         call();
         stop();
       },
       {"api", "api"},
       {1, 2}},
      {"N windows at most",
       "apix2",
       [] {
         for (int i = 0; i < 2; ++i) {
           start();
           call();
           stop();
         }
         session().profiler_start(false);
         EXPECT(!session().is_open());
         EXPECT(session().request_window("asked") == Session::Opened::kNoMore);
         call();
       },
       {"api", "api"},
       {1, 1}},
      {"each third start",
       "api/3",
       [] {
         for (int i = 0; i < 7; ++i) {
           i % 3 == 0 ? start() : session().profiler_start(false);
           EXPECT(session().is_open() == (i % 3 == 0));
           call();
           stop();
         }
       },
       {"api", "api", "api"},
       {1, 1, 1}},
      {"each second start, two windows at most",
       "api/2x2",
       [] {
         for (int i = 0; i < 7; ++i) {
           session().profiler_start(false);
           EXPECT(comes([i] { return session().is_open() == (i == 0 || i == 2); }));
           stop();
         }
       },
       {"api", "api"},
       {0, 0}},
      {"a start inside of a window, and a stop outside, do nothing",
       "api",
       [] {
         session().profiler_stop(false);
         start();
         call();
         session().profiler_start(false);
         call();
         stop();
         session().profiler_stop(false);
       },
       {"api"},
       {2}},
      {"a window that nobody closes is closed at the end",
       "api",
       [] {
         start();
         call();
       },
       {"api"},
       {1}},
      {"always",
       "always",
       [] {
         session();
         EXPECT(session().is_open());
         session().profiler_start(false);
         session().profiler_stop(false);
         EXPECT(session().is_open());
         call();
       },
       {"always"},
       {1}},
      {"auto follows the program's own calls",
       "auto",
       [] {
         session();
         EXPECT(!session().is_open());
         start();
         call();
         stop();
       },
       {"api"},
       {1}},
      {"auto, and a window that the program asks for by inject_start",
       "auto",
       [] {
         EXPECT(session().user_start());
         EXPECT(comes([] { return session().is_open(); }));
         EXPECT(!session().user_start());
         call();
         EXPECT(session().user_stop());
         EXPECT(!session().user_stop());
       },
       {"inject_start"},
       {1}},
      {"the clock",
       "time:0+5ms",
       [] {
         session();
         EXPECT(comes([] { return state() == "finished"; }));
         call();
       },
       {"time:0s+5ms"},
       {0}},
      {"the clock, three times",
       "time:1ms+2ms/4msx3",
       [] {
         session();
         EXPECT(comes([] { return state() == "finished"; }));
         EXPECT(session().status().opened == 3);
       },
       {"time:1ms+2ms/4msx3", "time:1ms+2ms/4msx3", "time:1ms+2ms/4msx3"},
       {0, 0, 0}},
      {"a range",
       "nvtx:step",
       [] {
         session();
         for (int i = 0; i < 2; ++i) {
           call();
           range_opens();
           EXPECT(comes([] { return session().is_open(); }));
           call();
           range_closes();
           EXPECT(!session().is_open());
         }
       },
       {"nvtx:\"step\"", "nvtx:\"step\""},
       {1, 1}},
      {"ranges that are open at a time are one",
       "nvtx:step",
       [] {
         session();
         range_opens();
         EXPECT(comes([] { return session().is_open(); }));
         range_opens();
         call();
         range_closes();
         EXPECT(session().is_open());
         call();
         range_closes();
         EXPECT(!session().is_open());
       },
       {"nvtx:\"step\""},
       {2}},
      {"a range that was open before there was a session",
       "nvtx:step",
       [] {
         range_opens();
         session();
         EXPECT(session().is_open());
         call();
         range_closes();
         EXPECT(!session().is_open());
       },
       {"nvtx:\"step\""},
       {1}},
      {"each second range, two windows at most",
       "nvtx:step/2x2",
       [] {
         session();
         for (int i = 0; i < 7; ++i) {
           range_opens();
           EXPECT(comes([i] { return session().is_open() == (i == 0 || i == 2); }));
           call();
           range_closes();
           EXPECT(!session().is_open());
         }
       },
       {"nvtx:\"step\"/2x2", "nvtx:\"step\"/2x2"},
       {1, 1}},
      {"a window of another kind is not the range's to close",
       "nvtx:step",
       [] {
         EXPECT(session().user_start());
         EXPECT(comes([] { return session().is_open(); }));
         range_opens();
         range_closes();
         EXPECT(session().is_open());
         EXPECT(session().user_stop());
       },
       {"inject_start"},
       {0}},
      {"signals toggle",
       "signal",
       [] {
         session();
         for (int i = 0; i < 4; ++i) {
           toggle();
           call();
         }
       },
       {"signal:SIGUSR2", "signal:SIGUSR2"},
       {1, 1}},
      {"another signal, one window at most",
       "signal:SIGUSR1x1",
       [] {
         session();
         toggle(SIGUSR1);
         toggle(SIGUSR1);
         raise(SIGUSR1);
         EXPECT(state() != std::string("open"));
       },
       {"signal:SIGUSR1x1"},
       {0}},
      {"launches can't be counted without CUPTI, but the program may ask",
       "launch:0+10",
       [] {
         EXPECT(session().request_window("asked") == Session::Opened::kYes);
         EXPECT(comes([] { return session().is_open(); }));
         call();
         EXPECT(session().request_window("asked") == Session::Opened::kIsOpen);
       },
       {"asked"},
       {1}},
  };
  for (const Case& test : cases) {
    INFO(test.what << ", " << test.window);
    const Left left = play(test.window, test.program);
    check_end(left);
    CHECK(left.reasons() == test.reasons);
    CHECK(left.by_window("API Calls") == test.calls);
    REQUIRE(left.run.is_object());
    CHECK(left.run.at("state") == "closed");
    for (const auto& window : left.run.at("windows")) {
      CHECK(window.at("state") == "closed");
      CHECK(window.at("no_device_activity") == "there is no CUPTI");
      CHECK(window.at("start_ns") <= window.at("end_ns"));
    }
    // However many windows there were.
    CHECK(left.times_said("no device activity is recorded: there is no CUPTI") == 1);
    CHECK(left.times_said("before a window opened") == 0);
  }
}

TEST_CASE("a program without a window says why in one line", "[session]") {
  struct Case {
    const char* window;
    void (*program)();
    const char* why;
  };
  const Case cases[] = {
      {"api", [] { session(); },
       "(INJECT_WINDOW=api): it did not call cudaProfilerStart; to profile the whole run, set "
       "INJECT_WINDOW=always"},
      {"time:1h+1s", [] { session(); }, "(INJECT_WINDOW=time:1h+1s): it ran for "},
      {"launch:5+5", [] { session(); }, "(INJECT_WINDOW=launch:5+5): it launched 0 kernels;"},
      {"nvtx:step", [] { session(); }, "(INJECT_WINDOW=nvtx:\"step\"): the program opened no NVTX range;"},
      {"nvtx:step",
       [] {
         session();
         Core& core = *Core::get();
         core.nvtx_trigger.passed_over(core.names.intern("fwd"), NameTable::kEmpty);
       },
       ": no such NVTX range was opened; the first ones opened were 'fwd';"},
      {"signal", [] { session(); }, "(INJECT_WINDOW=signal:SIGUSR2): no SIGUSR2 came;"},
      {"signal",
       [] {
         session();
         signal(SIGUSR2, [](int) {});
         raise(SIGUSR2);
       },
       ": no SIGUSR2 came to libinject's handler;"},
      {"iter:3+1", [] { session(); }, "(INJECT_WINDOW=iter:3+1): no training iterations were found; "},
      {"auto", [] { session(); }, "(INJECT_WINDOW=auto): no training iterations were found; "},
  };
  for (const Case& test : cases) {
    INFO(test.window << " " << test.why);
    const Left left = play(test.window, test.program);
    check_end(left);
    CHECK(left.times_said("the program ended before a window opened") == 1);
    CHECK(left.said(test.why));
    CHECK(left.files.empty());
  }
}

TEST_CASE("there is no session where it is switched off, or its options are wrong", "[session]") {
  const auto none = [] {
    EXPECT(Session::start() == nullptr);
    EXPECT(Session::start() == nullptr);
    EXPECT(Session::get() == nullptr);
  };
  const Left off = play("off", none);
  check_end(off);
  CHECK(off.log.empty());
  CHECK(off.files.empty());
  const Left wrong = play("sometimes", none);
  check_end(wrong);
  CHECK(wrong.times_said("profiling is off") == 1);
  CHECK(wrong.files.empty());
}

TEST_CASE("a forked child has no session, and leaves its parent's alone", "[session]") {
  const Left left = play("always", [] {
    Session* const parents = &session();
    call();
    const Left none = play("always", [] {
      EXPECT(Session::get() == nullptr);
      EXPECT(Session::start() == nullptr);
      call();
    });
    EXPECT(none.unmet.empty() && none.status == 0 && none.files.empty());
    EXPECT(Session::get() == parents);
    EXPECT(parents->is_open());
  });
  check_end(left);
  CHECK(left.reasons() == Reasons{"always"});
  CHECK(left.by_window("API Calls") == std::vector<int>{1});
}

TEST_CASE("a session tells its state", "[session]") {
  const Left left = play("apix2", [] {
    Session::Status status = session().status();
    EXPECT(status.state == std::string("waiting"));
    EXPECT(status.window == 0 && status.opened == 0 && status.reason.empty() && status.folder.empty());
    EXPECT(status.trigger == "apix2");
    EXPECT(status.base == session().base());
    start();
    status = session().status();
    EXPECT(status.state == std::string("open"));
    EXPECT(status.window == 1 && status.opened == 1 && status.reason == "api");
    stop();
    EXPECT(session().user_flush());
    status = session().status();
    EXPECT(status.state == std::string("waiting"));
    EXPECT(status.window == 0 && status.opened == 1 && status.reason.empty());
    EXPECT(std::filesystem::is_directory(status.folder));
    start();
    stop();
    EXPECT(comes([] { return state() == "finished"; }));
    session().finish();
    EXPECT(state() == "finished");
    EXPECT(session().request_window("asked") == Session::Opened::kEnding);
    session().finish();  // no effect the second time
  });
  check_end(left);
  CHECK(left.reasons() == Reasons{"api", "api"});
}

TEST_CASE("flushing waits until what is closed is on disk", "[session]") {
  const Left left = play("api", [] {
    EXPECT(session().user_flush());  // there is nothing to flush
    for (std::size_t windows = 1; windows <= 3; ++windows) {
      start();
      call();
      stop();
      EXPECT(session().user_flush());
      std::ifstream file(session().status().folder + "/run.json");
      const nlohmann::json run = nlohmann::json::parse(file);
      EXPECT(run.at("windows").size() == windows);
      EXPECT(run.at("windows").back().at("state") == "closed");
    }
  });
  check_end(left);
  INFO(left.run.at("windows").dump() << left.files.at("window_sum.csv") << left.files.at("cuda_api_sum.csv"));
  CHECK(left.by_window("API Calls") == std::vector<int>{1, 1, 1});
}

TEST_CASE("flushing does not wait for windows that open and close meanwhile", "[session]") {
  const Left left = play("time:0s+20ms/40ms", [] {
    EXPECT(comes([] { return session().status().opened >= 3; }));
    const std::uint32_t closed = session().status().opened - 1;
    EXPECT(session().user_flush());
    EXPECT(session().status().opened > closed + 1);
    std::ifstream file(session().status().folder + "/run.json");
    EXPECT(nlohmann::json::parse(file).at("windows").size() >= closed);
  });
  check_end(left);
}

TEST_CASE("a short window is said to be open, and to be closed once its files are there", "[session]") {
  const Left left = play("api", [] {
    session();
    session().profiler_start(false);
    call();
    // Our thread has seen it by then.
    EXPECT(comes([] { return std::ifstream(session().status().folder + "/run.json").is_open(); }));
    session().profiler_stop(false);
    EXPECT(session().user_flush());
  });
  check_end(left);
  CHECK(left.times_said("window 1 opened (api)") == 1);
  CHECK(left.times_said("window 1 closed; files are in ") == 1);
}

TEST_CASE("where the folder can't be made the program goes on, and is told", "[session]") {
  const TemporaryFolder folder;
  const Left left = play({{"INJECT_WINDOW", "api"}, {"INJECT_OUT", "/dev/null/out"}}, [] {
    for (int i = 0; i < 2; ++i) {
      start();
      call();
      stop();
      EXPECT(session().user_flush());
    }
    EXPECT(session().status().folder.empty());
    EXPECT(session().status().opened == 2);
  });
  check_end(left);
  CHECK(left.times_said("no files are written: INJECT_OUT=/dev/null/out: ") == 1);
  CHECK(left.files.empty());
}

TEST_CASE("what follows the last window writes the files and ends the session", "[session]") {
  const Left left = play("apix1", [] {
    session_companions.last_window_closed = []() noexcept { ++windows_last_closed; };
    EXPECT(session().conclude(false) == Session::Conclusion::kNotYet);
    start();
    call();
    EXPECT(session().conclude(false) == Session::Conclusion::kNotYet);
    EXPECT(session().is_open());
    stop();
    EXPECT(comes([] { return windows_last_closed != 0; }));
    EXPECT(session().conclude(false) == Session::Conclusion::kDone);
    EXPECT(std::filesystem::exists(session().status().folder + "/window_sum.csv"));
    EXPECT(state() == "finished");
    EXPECT(session().request_window("asked") == Session::Opened::kEnding);
    EXPECT(session().conclude(false) == Session::Conclusion::kExiting);
    call();
  });
  check_end(left);
  CHECK(left.run.at("state") == "closed");
  CHECK(left.by_window("API Calls") == std::vector<int>{1});
}

TEST_CASE("INJECT_TIMEOUT ends the window that is open, and says if there has been none", "[session]") {
  const Left open = play("always", [] {
    session();
    call();
    EXPECT(session().conclude(true) == Session::Conclusion::kDone);
    EXPECT(!session().is_open());
    call();
  });
  check_end(open);
  CHECK(open.reasons() == Reasons{"always"});
  CHECK(open.window(1).at("state") == "closed");
  CHECK(open.by_window("API Calls") == std::vector<int>{1});

  for (const char* window : {"api", "iter:100+5", "time:1h+1s"}) {
    INFO(window);
    const Left none = play(window, [] {
      session();
      EXPECT(session().conclude(true) == Session::Conclusion::kDone);
      EXPECT(state() == "finished");
    });
    check_end(none);
    CHECK(none.times_said("INJECT_TIMEOUT expired before a window opened") == 1);
    CHECK(none.times_said("the program ended before a window opened") == 0);
    CHECK(none.files.empty());
  }
}

TEST_CASE("what goes along with a session is told in order", "[session]") {
  static std::string told;
  const Left left = play("always", [] {
    session_companions.made = [](Session& made) noexcept { told += made.is_open() ? "open " : "made "; };
    session_companions.armed = [](Session& armed) noexcept {
      told += armed.is_open() ? "armed " : "closed ";
    };
    session_companions.exiting = []() noexcept { EXPECT(told == "made armed "); };
    session();
    EXPECT(told == "made armed ");
  });
  check_end(left);
}

TEST_CASE("threads that start and stop windows at a time come to an end", "[session]") {
  const Left left = play("api", [] {
    session();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 25; ++i) {
          session().profiler_start(false);
          call();
          session().profiler_stop(false);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT(!session().is_open());
    EXPECT(session().user_flush());
    // Each start may have met another thread's stop before its window was open; this one does not.
    session().profiler_start(false);
    EXPECT(session().is_open());
    call();
    session().profiler_stop(false);
  });
  check_end(left);
  const std::size_t windows = left.reasons().size();
  CHECK(windows >= 1);
  CHECK(windows <= 101);
  for (const auto& window : left.run.at("windows")) CHECK(window.at("state") == "closed");
}
