// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <string>
#include <vector>

#include "libinject/base/text.h"
#include "libinject/base/time.h"
#include "libinject/record/nvtx_trigger.h"
#include "libinject/record/watched_ranges.h"
#include "libinject/session/occurrences.h"
#include "libinject/session/once_log.h"
#include "libinject/session/schedule.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

WindowSpec spec(std::string_view text) {
  const WindowSpecResult result = parse_window_spec(text);
  REQUIRE(result.error.empty());
  return result.spec;
}

}  // namespace

TEST_CASE("a pattern stands for all of a text", "[config]") {
  struct Case {
    const char* pattern;
    const char* text;
    bool matches;
  };
  const Case cases[] = {
      {"", "", true},
      {"", "a", false},
      {"step", "step", true},
      {"step", "steps", false},
      {"step", "ste", false},
      {"step", "Step", false},
      {"*", "", true},
      {"*", "anything", true},
      {"***", "x", true},
      {"step*", "step", true},
      {"step*", "step 12", true},
      {"*step", "a step", true},
      {"*step", "step a", false},
      {"*a*b*", "xxaxxbxx", true},
      {"*a*b*", "xxbxxaxx", false},
      {"*ab", "aab", true},
      {"a*ab", "aab", true},
      {"a*ab", "ab", false},
      {"?", "", false},
      {"?", "x", true},
      {"?", "xy", false},
      {"s?ep", "step", true},
      {"*?", "", false},
      {"?*?", "x", false},
      {"?*?", "xy", true},
      {"\xC3\xBC?", "\xC3\xBC\xE2\x82\xAC", true},  // one character, three bytes
      {"??", "\xC3\xBC", false},
      {R"(a\*b)", "a*b", true},
      {R"(a\*b)", "axb", false},
      {R"(a\?)", "a?", true},
      {R"(a\?)", "ab", false},
      {R"(a\\*)", R"(a\b)", true},
      {R"(a\\*)", "ab", false},
      {R"(a\b)", R"(a\b)", true},
      {R"(a\)", R"(a\)", true},
      {R"(*\*)", "x*", true},
      {R"(*\*)", "xx", false},
  };
  for (const Case& test : cases) {
    INFO("'" << test.pattern << "' '" << test.text << "'");
    CHECK(glob_matches(test.pattern, test.text) == test.matches);
  }
  // No pattern takes long: the work is bounded by the product of the lengths.
  std::string many;
  for (int i = 0; i < 200; ++i) many += "*a";
  CHECK_FALSE(glob_matches(many + "b", std::string(1024, 'a')));
}

TEST_CASE("of what the program starts, the first and each EVERYth is a window", "[window]") {
  const auto windows = [](std::string_view text) {
    Occurrences occurrences(spec(text));
    std::vector<int> chosen;
    for (int i = 0; i < 10; ++i) {
      const bool first = occurrences.begin();
      CHECK(occurrences.inside());
      // A start within an occurrence is none of its own, and returns the same.
      CHECK(occurrences.begin() == first);
      occurrences.end();
      occurrences.end();
      CHECK_FALSE(occurrences.inside());
      if (first) chosen.push_back(i);
    }
    return chosen;
  };
  CHECK(windows("api").size() == 10);
  CHECK(windows("nvtx:a/1").size() == 10);
  CHECK(windows("nvtx:a/4") == std::vector<int>{0, 4, 8});
  CHECK(windows("api/100") == std::vector<int>{0});
}

TEST_CASE("signals toggle, and open a window each EVERY signals", "[window]") {
  const auto opening = [](std::string_view text) {
    SignalCount count(spec(text));
    std::vector<int> openings;
    bool open = false;
    for (int i = 0; i < 10; ++i) {
      if (open) {
        count.closing();
        open = false;
      } else if (count.opening()) {
        openings.push_back(i);
        open = true;
      }
    }
    return openings;
  };
  CHECK(opening("signal") == std::vector<int>{0, 2, 4, 6, 8});
  CHECK(opening("signal/2") == std::vector<int>{0, 2, 4, 6, 8});
  CHECK(opening("signal/3") == std::vector<int>{0, 3, 6, 9});
  CHECK(opening("signal/5") == std::vector<int>{0, 5});

  // Windows closed by something else: the next signal does not wait for their second one.
  SignalCount count(spec("signal"));
  CHECK(count.opening());
  CHECK(count.opening());
}

TEST_CASE("what is said once is said once, whatever else is said", "[window]") {
  OnceLog once;
  CHECK_FALSE(once.said(OnceLog::Topic::kFolder));
  CHECK(once.first(OnceLog::Topic::kFolder));
  CHECK_FALSE(once.first(OnceLog::Topic::kFolder));
  CHECK(once.said(OnceLog::Topic::kFolder));
  CHECK_FALSE(once.said(OnceLog::Topic::kNoMemory));
  CHECK(once.first(OnceLog::Topic::kNoMemory));
  CHECK(once.said(OnceLog::Topic::kFolder));
}

TEST_CASE("a thread's outermost watched range counts in each domain", "[nvtx]") {
  WatchedRanges ranges;
  CHECK_FALSE(ranges.push(1, false));
  CHECK(ranges.push(1, true));
  CHECK_FALSE(ranges.push(1, true));
  CHECK_FALSE(ranges.push(1, false));
  CHECK(ranges.push(2, true));
  CHECK_FALSE(ranges.pop(3));
  CHECK_FALSE(ranges.pop(1));
  CHECK_FALSE(ranges.pop(1));
  CHECK(ranges.pop(2));
  CHECK(ranges.pop(1));
  // The range pushed before it, and one pop too many.
  CHECK_FALSE(ranges.pop(1));
  CHECK_FALSE(ranges.pop(1));
  CHECK(ranges.push(1, true));
}

TEST_CASE("a fifth domain's watched ranges are passed over, and end nothing", "[nvtx]") {
  WatchedRanges ranges;
  for (std::uint32_t domain = 1; domain <= WatchedRanges::kMaxDomains; ++domain)
    CHECK(ranges.push(domain, true));
  CHECK_FALSE(ranges.push(9, true));
  CHECK_FALSE(ranges.pop(9));
  CHECK(ranges.pop(1));
  CHECK(ranges.push(9, true));
  CHECK(ranges.pop(9));
}

namespace {
int told = 0;
}  // namespace

TEST_CASE("the NVTX trigger counts open ranges and tells its listener", "[nvtx]") {
  NvtxTrigger trigger(spec("nvtx:step*@lib"));
  CHECK(trigger.armed());
  CHECK(trigger.watches_name("step 3"));
  CHECK_FALSE(trigger.watches_name("a step"));
  CHECK(trigger.watches_domain("lib"));
  CHECK_FALSE(trigger.watches_default_domain());
  CHECK(NvtxTrigger(spec("nvtx:a@*")).watches_default_domain());
  CHECK(NvtxTrigger(spec("nvtx:a")).watches_default_domain());
  CHECK_FALSE(NvtxTrigger(spec("nvtx:a")).watches_domain("lib"));

  told = 0;
  trigger.opened();  // before there is a session
  CHECK(told == 0);
  trigger.listen([]() noexcept { ++told; });
  trigger.opened();
  trigger.closed();
  CHECK(told == 2);
  CHECK(trigger.open_ranges() == 1);
}

TEST_CASE("a trigger of another kind watches no range", "[nvtx]") {
  const NvtxTrigger trigger(spec("api"));
  CHECK_FALSE(trigger.armed());
  CHECK_FALSE(trigger.watches_name(""));
  CHECK_FALSE(trigger.watches_default_domain());
}

TEST_CASE("the NVTX trigger says why there was no window", "[nvtx]") {
  NameTable names(100, 10'000);
  NvtxTrigger trigger(spec("nvtx:step"));
  CHECK(trigger.why_none(names) == "the program opened no NVTX range");
  trigger.passed_over(names.intern("fwd"), NameTable::kEmpty);
  trigger.passed_over(names.intern("fwd"), NameTable::kEmpty);
  trigger.passed_over(names.intern("step"), names.intern("lib"));
  CHECK(trigger.why_none(names) ==
        "no such NVTX range was opened; the first ones opened were 'fwd', 'step'@'lib'");
  for (const char* name : {"a", "b", "c", "d", "e"})
    trigger.passed_over(names.intern(name), NameTable::kEmpty);
  const std::string why = trigger.why_none(names);
  CHECK(why.find("'c', ...") != std::string::npos);
  CHECK(why.find("'d'") == std::string::npos);
}

TEST_CASE("a month of samples keeps its distances, whatever is late or missed", "[window]") {
  const WindowSpec sampling = spec("time:60s+2s/600s");
  Schedule schedule(sampling);
  std::uint64_t time = 0;
  int windows = 0;
  for (;;) {
    const auto window = schedule.next(time);
    REQUIRE(window);
    if (window->begin >= 30u * 24 * 3600 * kSecond) break;
    REQUIRE((window->begin - 60 * kSecond) % (600 * kSecond) == 0);
    REQUIRE(window->end == window->begin + 2 * kSecond);
    // Every hundredth window opens late and still has its full length; every thousandth is missed.
    const std::uint64_t opened = window->begin + (windows % 100 == 7 ? kSecond : 3'000'000);
    time = windows % 1000 == 9 ? window->end + kSecond : opened + 2 * kSecond + 5'000'000;
    if (windows % 1000 != 9) schedule.advance();
    ++windows;
  }
  CHECK(windows == 30 * 24 * 6);
}
