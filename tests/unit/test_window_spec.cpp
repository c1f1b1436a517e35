// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <signal.h>

#include <random>

#include "libinject/base/time.h"
#include "libinject/config/window_spec.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

WindowSpec parsed(std::string_view text) {
  const WindowSpecResult result = parse_window_spec(text);
  INFO(text << ": " << result.error);
  REQUIRE(result.error.empty());
  return result.spec;
}

std::string refused(std::string_view text) {
  const WindowSpecResult result = parse_window_spec(text);
  INFO(text);
  REQUIRE(!result.error.empty());
  CHECK(result.spec == WindowSpec{});
  return result.error;
}

}  // namespace

TEST_CASE("Triggers without an argument", "[config]") {
  CHECK(parsed("auto") == WindowSpec{});
  CHECK(parsed("api").kind == WindowKind::kApi);
  CHECK(parsed("api").max_windows == 0);
  CHECK(parsed("always").kind == WindowKind::kAlways);
  CHECK(parsed("always").max_windows == 1);
  CHECK(parsed("off").kind == WindowKind::kOff);
  CHECK(parsed("apix3").max_windows == 3);
  CHECK(parsed("api/10").every == 10);
  CHECK(parsed("api/10").max_windows == 0);
  CHECK(parsed("api/10x3").every == 10);
  CHECK(parsed("api/10x3").max_windows == 3);
}

TEST_CASE("Windows by time", "[config]") {
  const WindowSpec once = parsed("time:20s+5s");
  CHECK(once.kind == WindowKind::kTime);
  CHECK(once.start == 20 * kSecond);
  CHECK(once.count == 5 * kSecond);
  CHECK(once.every == 0);
  CHECK(once.max_windows == 1);

  const WindowSpec repeated = parsed("time:1m+250ms/2hx10");
  CHECK(repeated.start == 60 * kSecond);
  CHECK(repeated.count == kSecond / 4);
  CHECK(repeated.every == 7200 * kSecond);
  CHECK(repeated.max_windows == 10);

  CHECK(parsed("time:0+1s").start == 0);
  CHECK(parsed("time:1.5s+0.25ms").start == 1'500'000'000);
  CHECK(parsed("time:1.5s+0.25ms").count == 250'000);
  CHECK(parsed("time:5s+1s/1s").max_windows == 0);
}

TEST_CASE("Windows by launches and iterations", "[config]") {
  const WindowSpec launches = parsed("launch:1000+500/2000x3");
  CHECK(launches.kind == WindowKind::kLaunch);
  CHECK(launches.start == 1000);
  CHECK(launches.count == 500);
  CHECK(launches.every == 2000);
  CHECK(launches.max_windows == 3);
  CHECK(parsed("iter:20+5").kind == WindowKind::kIteration);
  CHECK(parsed("iter:0+1x1").max_windows == 1);
}

TEST_CASE("Windows by NVTX ranges", "[config]") {
  CHECK(parsed("nvtx:step").name == "step");
  CHECK(parsed("nvtx:step").domain.empty());
  CHECK(parsed("nvtx:step@torch").domain == "torch");
  CHECK(parsed("nvtx:stepx3").name == "step");
  CHECK(parsed("nvtx:stepx3").max_windows == 3);
  CHECK(parsed("nvtx:step/10x3").every == 10);

  const WindowSpec quoted = parsed(R"(nvtx:"a/b x3")");
  CHECK(quoted.name == "a/b x3");
  CHECK(quoted.max_windows == 0);
  CHECK(quoted.every == 0);

  const WindowSpec full = parsed(R"(nvtx:"say \"hi\" \\ @home"@"my/domain"/4x2)");
  CHECK(full.name == R"(say "hi" \ @home)");
  CHECK(full.domain == "my/domain");
  CHECK(full.every == 4);
  CHECK(full.max_windows == 2);
}

TEST_CASE("Windows by signals", "[config]") {
  CHECK(parsed("signal").signal == SIGUSR2);
  CHECK(parsed("signalx2").max_windows == 2);
  CHECK(parsed("signal:SIGUSR1").signal == SIGUSR1);
  CHECK(parsed("signal:HUPx4").signal == SIGHUP);
  CHECK(parsed("signal:HUPx4").max_windows == 4);
  CHECK(parsed("signal:SIGRTMIN+3").signal == SIGRTMIN + 3);
  CHECK(parsed("signal/4").signal == SIGUSR2);
  CHECK(parsed("signal/4").every == 4);
  CHECK(parsed("signal:USR1/2x5").signal == SIGUSR1);
  CHECK(parsed("signal:USR1/2x5").every == 2);
  CHECK(parsed("signal:USR1/2x5").max_windows == 5);
}

TEST_CASE("Refused windows say what is wrong", "[config]") {
  struct Case {
    const char* text;
    const char* says;
  };
  const Case cases[] = {
      {"", "empty"},
      {"tiem:1s+1s", "'tiem' is not a trigger"},
      {"AUTO", "'AUTO' is not a trigger"},
      {" api", "' api' is not a trigger"},
      {"time", "time:DELAY+DURATION"},
      {"time:", "+DURATION is missing"},
      {"time:20s", "+DURATION is missing"},
      {"time:20s+", "DURATION is missing"},
      {"time:+5s", "DELAY is missing"},
      {"time:20+5s", "has no unit"},
      {"time:20s+5", "has no unit"},
      {"time:20s+5d", "unknown unit"},
      {"time:20s+5 s", "unknown unit"},
      {"time:20s+0s", "DURATION is 0"},
      {"time:-1s+5s", "not a time"},
      {"time:1e3s+5s", "unknown unit"},
      {"time:1.s+5s", "not a time"},
      {"time:.5s+5s", "not a time"},
      {"time:1.2.3s+5s", "not a time"},
      {"time:1s+5s/4s", "/EVERY is shorter than DURATION"},
      {"time:1s+5s/", "EVERY is missing"},
      {"time:1s+5s/0", "/EVERY is shorter"},
      {"time:1s+5sx3", "needs an /EVERY"},
      {"time:1s+5s/10sx0", "x0 is not a number of windows"},
      {"time:1s+5s/10sx4294967296", "is not a number of windows"},
      {"time:9999999999h+5s", "too large"},
      {"time:99999999999999999999s+5s", "too large"},
      {"launch", "launch:START+COUNT"},
      {"launch:10", "+COUNT is missing"},
      {"launch:10+0", "COUNT is 0"},
      {"launch:x+1", "'x' is not a whole number"},
      {"launch:1.5+1", "not a whole number"},
      {"launch:10s+5", "not a whole number"},
      {"launch:18446744073709551615+1", "too large"},
      {"launch:99999999999999999999999+1", "too large"},
      {"launch:0+10/5", "/EVERY is shorter than COUNT"},
      {"iter:0+10/x3", "EVERY is missing"},
      {"auto/5", "does not take /EVERY"},
      {"autox2", "auto does not take xN"},
      {"alwaysx1", "always does not take xN"},
      {"offx1", "off does not take xN"},
      {"always/5", "always does not take /EVERY"},
      {"off/5x3", "off does not take /EVERY"},
      {"api/", "EVERY is missing"},
      {"api/0", "/EVERY is 0"},
      {"api/5s", "'5s' is not a whole number"},
      {"api:5", "api takes no argument"},
      {"off:", "off takes no argument"},
      {"nvtx", "nvtx:NAME[@DOMAIN]"},
      {"nvtx:", "name is missing"},
      {"nvtx:\"\"", "name is missing"},
      {"nvtx:\"abc", "closing quote"},
      {"nvtx:\"abc\"def", "'def' after the range's name"},
      {"nvtx:abc@", "domain's name is missing"},
      {"nvtx:abc/0", "/EVERY is 0"},
      {"nvtx:abc/5s", "'5s' is not a whole number"},
      {"signal:SIGKILL", "not a signal that can toggle"},
      {"signal:", "not a signal that can toggle"},
      {"signal:SIGRTMIN+31", "not a signal that can toggle"},
      {"signal:SIGSTOP", "not a signal that can toggle"},
      {"signal:SIGSEGV", "not a signal that can toggle"},
      {"signal:12", "not a signal that can toggle"},
      {"signal:usr1", "not a signal that can toggle"},
      {"signal/1", "less than the two signals"},
      {"signal:USR1/0", "/EVERY is 0"},
      {"signal:USR1/", "EVERY is missing"},
      {"signal:/4", "not a signal that can toggle"},
  };
  for (const Case& test : cases) {
    INFO(test.text << ": " << refused(test.text));
    CHECK(refused(test.text).find(test.says) != std::string::npos);
  }
}

TEST_CASE("A window's text reads back to the same window", "[config]") {
  for (const char* text : {"auto",
                           "api",
                           "apix3",
                           "api/10",
                           "api/10x3",
                           "signal/4",
                           "signal:SIGHUP/6x2",
                           R"(nvtx:"a\*\\?*"/3)",
                           "always",
                           "off",
                           "time:20s+5s",
                           "time:1.5s+250ms/2hx10",
                           "time:0+1m/90s",
                           "time:0.000001ms+0.123456ms",
                           "launch:1000+500/2000x3",
                           "iter:20+5",
                           "nvtx:\"a/b x3\"",
                           R"(nvtx:"q\"\\"@"d/d"/4x2)",
                           "nvtx:step@torch",
                           "signal:SIGUSR1x2",
                           "signal:SIGRTMIN+7"}) {
    const WindowSpec spec = parsed(text);
    INFO(text << " -> " << to_string(spec));
    CHECK(parsed(to_string(spec)) == spec);
  }
  CHECK(to_string(parsed("time:90000ms+3600s/2h")) == "time:90s+1h/2h");
}

TEST_CASE("Any text is either a window that reads back or an error", "[config]") {
  std::mt19937 random(7);
  const std::string_view pieces[] = {"time:", "launch:", "iter:", "nvtx:", "signal:", "auto", "api",
                                     "1",     "20",      "s",     "ms",    "+",       "/",    "x",
                                     "3",     "\"",      "@",     "\\",    "name",    "."};
  int good = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string text;
    const unsigned length = 1 + random() % 8;
    for (unsigned j = 0; j < length; ++j) text += pieces[random() % std::size(pieces)];
    const WindowSpecResult result = parse_window_spec(text);
    if (!result.error.empty()) continue;
    ++good;
    const WindowSpecResult again = parse_window_spec(to_string(result.spec));
    INFO(text << " -> " << to_string(result.spec) << ": " << again.error);
    REQUIRE(again.error.empty());
    REQUIRE(again.spec == result.spec);
  }
  CHECK(good > 100);
}
