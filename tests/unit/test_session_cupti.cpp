// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The session and CUPTI: when it is attached and released, and who else uses it.
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "libinject/base/log.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/record/core.h"
#include "libinject/session/session.h"
#include "tests/unit/catch.h"
#include "tests/unit/fake_cupti.h"
#include "tests/unit/session_program.h"

using namespace inject;

namespace {

using Reasons = std::vector<std::string>;

FakeCupti& cupti() {
  return FakeCupti::get();
}

std::string state() {
  return session().status().state;
}

void launches(int count) {
  for (int i = 0; i < count; ++i) cupti().launch();
}

/// With CUPTI.
Left play_cupti(const std::string& window, const std::function<void()>& program) {
  return play(window, [&] {
    cupti().present = true;
    program();
  });
}

// The profiler's calls as reported by CUPTI's callbacks. A callback never waits long, so a call may have no
// effect on a busy machine.
void start_in_callback() {
  EXPECT(comes([] {
    if (!session().is_open()) cupti().profiler_start();
    return session().is_open();
  }));
}
void stop_in_callback() {
  EXPECT(comes([] {
    if (session().is_open()) cupti().profiler_stop();
    return !session().is_open();
  }));
}

// The program's own client; its calls are reported by the hooks around them.
CUptiResult client_subscribes() {
  foreign_client.arrive();
  session().arbiter().on_call(ForeignCall::kSubscribe);
  const CUptiResult result = cupti().other_subscribes();
  if (result == CUPTI_SUCCESS) foreign_client.subscribed();
  foreign_client.arrived();
  return result;
}
void client_leaves() {
  cupti().other_unsubscribes();
  foreign_client.unsubscribed();
  session().arbiter().on_left(false);
}
void client_finalizes() {
  foreign_client.arrive();
  session().arbiter().on_call(ForeignCall::kFinalize);
  cupti().finalize();
  foreign_client.finalized();
  foreign_client.arrived();
  session().arbiter().on_finalized(true);
  session().arbiter().on_left(true);
}

}  // namespace

TEST_CASE("windows have the kernels that were launched in them", "[session]") {
  struct Case {
    const char* window;
    void (*program)();
    Reasons reasons;
    std::vector<int> kernels;
  };
  const Case cases[] = {
      {"api",
       [] {
         session();
         launches(2);
         start();
         launches(3);
         stop();
         launches(4);
         start();
         launches(5);
       },
       {"api", "api"},
       {3, 5}},
      {"api",  // without passing a hook
       [] {
         session();
         for (int i = 0; i < 2; ++i) {
           start_in_callback();
           launches(2);
           stop_in_callback();
           EXPECT(session().user_flush());
         }
       },
       {"api", "api"},
       {2, 2}},
      {"always",
       [] {
         session();
         launches(7);
       },
       {"always"},
       {7}},
      {"time:0+20ms",
       [] {
         session();
         EXPECT(comes([] { return session().is_open() || state() == "finished"; }));
         EXPECT(comes([] { return state() == "finished"; }));
         launches(2);
       },
       {"time:0s+20ms"},
       {0}},
      {"launch:2+3",
       [] {
         session();
         launches(2);
         EXPECT(!session().is_open());
         launches(3);
         EXPECT(session().is_open());
         launches(1);
         EXPECT(!session().is_open());
         EXPECT(session().request_window("asked") == Session::Opened::kByItself || state() == "finished");
       },
       {"launch:2+3"},
       {3}},
      {"launch:2+3/6x2",
       [] {
         session();
         launches(40);
         EXPECT(comes([] { return state() == "finished"; }));
       },
       {"launch:2+3/6x2", "launch:2+3/6x2"},
       {3, 3}},
      {"launch:5+5",
       [] {
         session();
         launches(7);
       },
       {"launch:5+5"},
       {2}},
      {"nvtx:step",
       [] {
         session();
         for (int i = 0; i < 2; ++i) {
           launches(1);
           Core::get()->nvtx_trigger.opened();
           EXPECT(comes([] { return session().is_open(); }));
           launches(2);
           Core::get()->nvtx_trigger.closed();
         }
       },
       {"nvtx:\"step\"", "nvtx:\"step\""},
       {2, 2}},
  };
  for (const Case& test : cases) {
    INFO(test.window);
    const Left left = play_cupti(test.window, test.program);
    check_end(left);
    CHECK(left.reasons() == test.reasons);
    CHECK(left.by_window("Kernels") == test.kernels);
    REQUIRE(left.run.is_object());
    for (const auto& window : left.run.at("windows")) {
      CHECK(window.at("state") == "closed");
      CHECK_FALSE(window.contains("no_device_activity"));
      for (const auto& [what, lost] : window.at("lost").items()) CHECK(lost == 0);
    }
    CHECK_FALSE(left.said("] warning: "));
    CHECK_FALSE(left.said("] error: "));
  }
}

TEST_CASE("a program that launches too little has no window, and is told how little", "[session]") {
  const Left left = play_cupti("launch:5+5", [] {
    session();
    launches(2);
  });
  check_end(left);
  CHECK(left.times_said("(INJECT_WINDOW=launch:5+5): it launched 2 kernels;") == 1);
}

TEST_CASE("CUPTI is there for windows alone, and stays between those that follow one another", "[session]") {
  const Left left = play_cupti("nvtx:step", [] {
    const auto range = [] {
      Core::get()->nvtx_trigger.opened();
      EXPECT(comes([] { return session().is_open(); }));
      EXPECT(cupti().subscribed() && cupti().records_kernels());
      launches(1);
      Core::get()->nvtx_trigger.closed();
    };
    session();
    EXPECT(!cupti().subscribed());
    range();
    EXPECT(session().user_flush());
    EXPECT(!cupti().subscribed());
    EXPECT(cupti().attachments() == 1 && cupti().count("Finalize") == 1);
    // The first of these begins soon after the one before. On a busy machine it may not; then a later one
    // does.
    bool reused = false;
    for (int i = 0; i < 20 && !reused; ++i) {
      range();
      const int attachments = cupti().attachments();
      range();
      reused = cupti().attachments() == attachments;
    }
    EXPECT(reused);
    EXPECT(comes([] { return cupti().attachments() == cupti().count("Finalize"); }));
  });
  check_end(left);
  for (const int kernels : left.by_window("Kernels")) CHECK(kernels == 1);
  CHECK(left.run.at("overhead").at("attachments") == left.run.at("overhead").at("finalizations"));
}

TEST_CASE("a window is closing until its kernels have ended, and who flushes waits for them", "[session]") {
  const Left left = play_cupti("apix2", [] {
    start();
    cupti().running = true;
    launches(3);
    stop();
    EXPECT(state() == "closing");
    std::thread device([] {
      usleep(30'000);
      cupti().running = false;
    });
    EXPECT(session().user_flush());
    EXPECT(!cupti().running);
    EXPECT(state() == "waiting");
    device.join();
    // A window that opens meanwhile is independent.
    start();
    launches(2);
  });
  check_end(left);
  CHECK(left.by_window("Kernels") == std::vector<int>{3, 2});
}

TEST_CASE("a program that ends does not wait for kernels that run on", "[session]") {
  const Left left = play_cupti("always", [] {
    session();
    launches(3);
    cupti().running = true;
  });
  check_end(left);
  CHECK(left.times_said("the device has not finished what was launched in the last window") == 1);
  CHECK(left.run.at("state") == "closed");
  CHECK(left.window(1).at("lost").at("invalid_timestamps") == 3);
}

TEST_CASE("INJECT_AFTER's end collects the last window's kernels, and gives CUPTI up", "[session]") {
  const Left left = play_cupti("apix1", [] {
    start();
    launches(3);
    stop();
    EXPECT(session().conclude(false) == Session::Conclusion::kDone);
    EXPECT(!cupti().subscribed());
    launches(2);
  });
  check_end(left);
  CHECK(left.by_window("Kernels") == std::vector<int>{3});

  // It was attached for windows, of which there were none.
  const Left none = play_cupti("api", [] {
    session();
    EXPECT(cupti().subscribed());
    EXPECT(session().conclude(true) == Session::Conclusion::kDone);
    EXPECT(!cupti().subscribed());
  });
  check_end(none);
  CHECK(none.times_said("INJECT_TIMEOUT expired before a window opened") == 1);
}

TEST_CASE("a client of the program's takes CUPTI in a window", "[session]") {
  // The window is closed early; `always` opens another once the client has left.
  const Left always = play_cupti("always", [] {
    session();
    launches(3);
    EXPECT(client_subscribes() == CUPTI_SUCCESS);
    EXPECT(!session().is_open());
    launches(2);
    client_leaves();
    EXPECT(comes([] { return session().is_open(); }));
    launches(4);
  });
  check_end(always);
  CHECK(always.reasons() == Reasons{"always", "always"});
  CHECK(always.by_window("Kernels") == std::vector<int>{3, 4});
  CHECK(always.window(1).at("ended_by") == "the program subscribes to CUPTI");
  CHECK_FALSE(always.window(2).contains("ended_by"));
  CHECK(always.times_said("window 1 closed early and CUPTI released: the program subscribes to CUPTI") == 1);

  // A program that opens windows itself meanwhile continues to do so.
  const Left taken_over = play_cupti("always", [] {
    session();
    EXPECT(client_subscribes() == CUPTI_SUCCESS);
    EXPECT(session().user_start());
    EXPECT(comes([] { return session().is_open(); }));
    client_leaves();
    EXPECT(session().user_stop());
    EXPECT(comes([] { return state() == "finished"; }));
  });
  check_end(taken_over);
  CHECK(taken_over.reasons() == Reasons{"always", "inject_start"});

  // A window that the program requests meanwhile has no device activity.
  const Left api = play_cupti("api", [] {
    start();
    launches(3);
    EXPECT(client_subscribes() == CUPTI_SUCCESS);
    EXPECT(!session().is_open());
    stop();
    start();
    launches(2);
    call();
    stop();
    client_leaves();
    EXPECT(comes([] { return cupti().subscribed(); }));  // to see the profiler's start and stop
    start();
    launches(1);
    stop();
  });
  check_end(api);
  CHECK(api.reasons() == Reasons{"api", "api", "api"});
  CHECK(api.by_window("Kernels") == std::vector<int>{3, 0, 1});
  CHECK(api.by_window("API Calls").at(1) == 1);
  const std::string why = api.window(2).at("no_device_activity");
  CHECK(why == "another profiler is attached to this process: another tool, the program itself (error 39)");

  // Launches can no longer be counted.
  const Left launch = play_cupti("launch:2+3/10", [] {
    session();
    launches(7);
    EXPECT(client_subscribes() == CUPTI_SUCCESS);
    launches(20);
    EXPECT(comes([] { return state() == "finished"; }));
  });
  check_end(launch);
  CHECK(launch.by_window("Kernels") == std::vector<int>{3});
  CHECK(launch.times_said("no further window opens, as launches can't be counted: "
                          "the program subscribes to CUPTI") == 1);
}

TEST_CASE("a client of the program's takes CUPTI while no window is open", "[session]") {
  const Left left = play_cupti("api", [] {
    session();
    EXPECT(cupti().subscribed());
    EXPECT(client_subscribes() == CUPTI_SUCCESS);
    client_leaves();
    EXPECT(comes([] { return cupti().subscribed(); }));
    start_in_callback();
    launches(1);
    stop_in_callback();
  });
  check_end(left);
  CHECK(left.by_window("Kernels") == std::vector<int>{1});
  CHECK(left.times_said("CUPTI is released: the program subscribes to CUPTI; cuProfilerStart opens no window "
                        "until the other client has released CUPTI") == 1);
}

TEST_CASE("a window is asked for before the session is armed", "[session]") {
  const Left left = play_cupti("api", [] {
    session_companions.made = [](Session& made) noexcept {
      std::thread another([&made] { EXPECT(made.user_start()); });  // waits, for a bounded time
      another.join();
      EXPECT(cupti().count("Subscribe") == 0);
    };
    session();
    EXPECT(comes([] { return session().is_open(); }));
    launches(2);
    EXPECT(session().user_stop());
  });
  check_end(left);
  CHECK(left.reasons() == Reasons{"inject_start"});
  CHECK(left.by_window("Kernels") == std::vector<int>{2});
  CHECK_FALSE(left.window(1).contains("no_device_activity"));
}

TEST_CASE("the clock's window is stopped before it begins", "[session]") {
  const Left left = play_cupti("time:100ms+100ms", [] {
    cupti().answer("Subscribe", CUPTI_ERROR_UNKNOWN);  // when attaching ahead of the window
    cupti().hold("Subscribe");
    session();
    EXPECT(comes([] { return cupti().holds(); }));
    EXPECT(session().user_stop());
    std::thread another([] { EXPECT(session().user_start()); });
    usleep(50'000);  // usually the other thread waits by then; the result is the same if it does not
    cupti().hold("");
    another.join();
    EXPECT(comes([] { return session().is_open(); }));
    launches(1);
    usleep(300'000);
    EXPECT(session().is_open());
    launches(1);
    EXPECT(session().user_stop());
    EXPECT(comes([] { return state() == "finished"; }));
  });
  check_end(left);
  CHECK(left.reasons() == Reasons{"inject_start"});
  CHECK(left.by_window("Kernels") == std::vector<int>{2});

  // Stopped twice, the program's own window as well; no window is left to come.
  const Left none = play_cupti("time:100ms+100ms", [] {
    cupti().answer("Subscribe", CUPTI_ERROR_UNKNOWN);
    cupti().hold("Subscribe");
    session();
    EXPECT(comes([] { return cupti().holds(); }));
    EXPECT(session().user_stop());
    EXPECT(session().user_start());
    EXPECT(session().user_stop());
    cupti().hold("");
    EXPECT(comes([] { return state() == "finished"; }));
    EXPECT(session().conclude(false) == Session::Conclusion::kDone);
    EXPECT(session().user_flush());
  });
  check_end(none);
  CHECK(none.files.empty());
  CHECK(none.times_said("the window was stopped before a window opened (INJECT_WINDOW=time:100ms+100ms)") ==
        1);
}

TEST_CASE("the time is over while CUPTI is being attached", "[session]") {
  const Left left = play_cupti("api", [] {
    session();
    EXPECT(comes([] { return cupti().subscribed(); }));  // to see the profiler's start and stop
    cupti().hold("ActivityEnable");
    std::thread program([] { session().user_start(); });
    EXPECT(comes([] { return cupti().holds(); }));
    std::thread timer([] { EXPECT(session().conclude(true) == Session::Conclusion::kDone); });
    usleep(50'000);
    cupti().hold("");
    program.join();
    timer.join();
    EXPECT(!cupti().subscribed());
  });
  check_end(left);
}

TEST_CASE("no window attaches CUPTI while a client has activity buffers", "[session]") {
  const Left left = play_cupti("nvtx:step", [] {
    session();
    foreign_client.registered(nullptr, nullptr, nullptr);
    EXPECT(session().user_start());
    EXPECT(comes([] { return session().is_open(); }));
    EXPECT(!cupti().subscribed());
    EXPECT(session().user_stop());
    foreign_client.flushed();
    EXPECT(session().user_start());
    EXPECT(comes([] { return session().is_open(); }));
    launches(2);
    EXPECT(session().user_stop());
  });
  check_end(left);
  CHECK(left.by_window("Kernels") == std::vector<int>{0, 2});
  CHECK(left.window(1).at("no_device_activity") ==
        "the program has registered activity buffers with CUPTI, and is not done with them");
}

TEST_CASE("the program finalizes CUPTI", "[session]") {
  const Left hooked = play_cupti("always", [] {
    session();
    launches(3);
    client_finalizes();
    EXPECT(comes([] { return session().is_open(); }));
    launches(2);
  });
  check_end(hooked);
  CHECK(hooked.by_window("Kernels") == std::vector<int>{3, 2});
  CHECK(hooked.window(1).at("ended_by") == "the program finalizes CUPTI");

  // The call is made, but was not reported before.
  const Left after = play_cupti("api", [] {
    start();
    launches(3);
    cupti().finalize();
    session().arbiter().on_finalized(true);
    EXPECT(session().is_open());
    launches(2);
    stop();
    start();
    launches(4);
    stop();
  });
  check_end(after);
  CHECK(after.times_said("the program has finalized CUPTI in an open window") == 1);
  CHECK(after.by_window("Kernels") == std::vector<int>{0, 4});

  // Without passing a hook.
  const Left past = play_cupti("nvtx:step", [] {
    EXPECT(session().user_start());
    EXPECT(comes([] { return session().is_open(); }));
    launches(3);
    cupti().finalize();
    EXPECT(session().user_stop());
    EXPECT(session().user_flush());
    EXPECT(session().user_start());
    EXPECT(comes([] { return session().is_open(); }));
    launches(4);
  });
  check_end(past);
  CHECK(past.times_said("another client has finalized CUPTI") == 1);
  CHECK(past.by_window("Kernels") == std::vector<int>{0, 4});

  // The finalization failed, so nothing has changed.
  const Left failed = play_cupti("api", [] {
    start();
    launches(3);
    session().arbiter().on_finalized(false);
    launches(1);
  });
  check_end(failed);
  CHECK(failed.by_window("Kernels") == std::vector<int>{4});
}

TEST_CASE("where CUPTI is refused, windows have no device activity and say why", "[session]") {
  struct Case {
    const char* what;
    void (*refuse)();
    const char* why;
  };
  const Case cases[] = {
      {"another client", [] { cupti().other_subscribes(); },
       "another profiler is attached to this process: another tool (error 39)"},
      {"no rights", [] { cupti().answer("Subscribe", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, 100); },
       "cuptiSubscribe failed: error 35"},
      {"launches", [] { cupti().answer("EnableCallback", CUPTI_ERROR_NOT_INITIALIZED, 10'000); },
       "launch callbacks can't be enabled: error 15"},
      {"buffers", [] { cupti().answer("ActivityRegisterCallbacks", CUPTI_ERROR_INVALID_PARAMETER, 100); },
       "activity buffers can't be registered: error 1"},
      {"kernels", [] { cupti().answer("ActivityEnable", CUPTI_ERROR_NOT_COMPATIBLE, 100); },
       "kernel activity can't be enabled: error 14"},
  };
  for (const Case& test : cases) {
    INFO(test.what);
    const Left left = play_cupti("nvtx:step", [&] {
      test.refuse();
      for (int i = 0; i < 2; ++i) {
        EXPECT(session().user_start());
        EXPECT(comes([] { return session().is_open(); }));
        launches(2);
        call();
        EXPECT(session().user_stop());
      }
      EXPECT(!cupti().subscribed());
    });
    check_end(left);
    CHECK(left.by_window("Kernels") == std::vector<int>{0, 0});
    CHECK(left.by_window("API Calls") == std::vector<int>{1, 1});
    CHECK(left.window(1).at("no_device_activity") == test.why);
    CHECK(left.window(2).at("no_device_activity") == test.why);
    CHECK(left.times_said("no device activity is recorded: ") == 1);
  }

  // The other client leaves, and the next window is normal.
  const Left left = play_cupti("nvtx:step", [] {
    for (const int other : {1, 0}) {
      if (other != 0) cupti().other_subscribes();
      EXPECT(session().user_start());
      EXPECT(comes([] { return session().is_open(); }));
      launches(2);
      EXPECT(session().user_stop());
      cupti().other_unsubscribes();
    }
  });
  check_end(left);
  CHECK(left.by_window("Kernels") == std::vector<int>{0, 2});
  CHECK_FALSE(left.window(2).contains("no_device_activity"));
}

TEST_CASE("CUPTI's fatal error is said once, and the windows before it stay", "[session]") {
  const Left left = play_cupti("api", [] {
    start();
    launches(2);
    stop();
    EXPECT(session().user_flush());
    start();
    cupti().fail();
    cupti().finalize();
    EXPECT(comes([] {
      for (const std::string& line : Log::notable()) {
        if (line.find("fatal error") != std::string::npos) return true;
      }
      return false;
    }));
    launches(2);
    stop();
  });
  check_end(left);
  CHECK(left.times_said("CUPTI has stopped with a fatal error") == 1);
  CHECK(left.by_window("Kernels") == std::vector<int>{2, 0});
}

TEST_CASE("with graphs CUPTI is not finalized, and that is said once", "[session]") {
  const Left left = play_cupti("nvtx:step", [] {
    for (int i = 0; i < 2; ++i) {
      EXPECT(session().user_start());
      EXPECT(comes([] { return session().is_open(); }));
      cupti().launch_graph();
      EXPECT(session().user_stop());
      EXPECT(session().user_flush());
      EXPECT(!cupti().subscribed());
    }
    EXPECT(cupti().count("Finalize") == 0);
  });
  check_end(left);
  CHECK(left.times_said("CUPTI is not finalized because the program uses CUDA graphs") == 1);
  CHECK(left.by_window("Kernels") == std::vector<int>{1, 1});
}
