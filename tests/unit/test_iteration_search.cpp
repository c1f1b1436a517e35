// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/iteration_search.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "libinject/base/mapping.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

struct Searching {
  SignRecord sign(std::uint64_t at, SignKind kind, std::uint64_t function, std::uint64_t shape = 1) const {
    SignRecord record;
    record.sign = kind;
    record.sequence = record.ticks = base + at;
    record.function = function;
    record.shape = shape;
    record.stream = 3;
    return record;
  }
  SignRecord boundary(std::uint64_t at, std::uint32_t count) const {
    SignRecord record;
    record.sign = SignKind::kBoundary;
    record.sequence = base + at;
    record.name = count;
    record.shape = now();
    return record;
  }
  SignRecord named(std::uint64_t at, std::uint64_t function, const char* name) {
    SignRecord record;
    record.sign = SignKind::kName;
    record.sequence = base + at;
    record.function = function;
    record.name = mangled.intern(name);
    return record;
  }
  void record() { REQUIRE(search.record_to(folder.path() + "/stream")); }
  /// The lines that report findings, without their times.
  std::vector<std::string> lines() const {
    std::vector<std::string> found;
    std::istringstream text(folder.read("stream"));
    for (std::string line; std::getline(text, line);) {
      if (line[0] == 'X' || line[0] == 'I') continue;
      const std::size_t time = line.find(' ') + 1;
      if (line[0] != 'F' && line[0] != 'O' && line[0] != 'C' && line[0] != 'R')
        line.erase(time, line.find(' ', time) + 1 - time);
      found.push_back(line);
    }
    return found;
  }

  TemporaryFolder folder;
  NameTable mangled{1000, 100'000};
  NameTable names{1000, 100'000};
  IterationSearch search{mangled, names};
  const std::uint64_t base = ticks();
};

}  // namespace

TEST_CASE_METHOD(Searching, "signs of a source before are not taken for those of the next", "[iterations]") {
  search.take(1, sign(10, SignKind::kKernel, 100));
  search.restart();
  search.ignore_before(base + 20);
  search.take(1, sign(15, SignKind::kKernel, 100));
  search.take(1, sign(20, SignKind::kKernel, 101));
  search.finish();
  CHECK(search.detector().events() == 1);
}

TEST_CASE_METHOD(Searching, "signs without a time lie between those with one", "[iterations]") {
  record();
  // Ticks are nanoseconds or shorter, by a factor that depends on the machine.
  for (std::uint64_t i = 0; i < 9; ++i) {
    SignRecord untimed = sign(1000 * i, SignKind::kKernel, 100 + i);
    if (i % 4 != 0) untimed.ticks = 0;
    search.take(1, untimed);
  }
  search.finish();
  std::vector<double> apart;
  std::istringstream text(folder.read("stream"));
  for (std::string line; std::getline(text, line);) {
    if (line[0] == 'K') apart.push_back(std::strtod(line.c_str() + 2, nullptr));
  }
  REQUIRE(apart.size() == 9);
  for (std::size_t i = 2; i < 9; ++i) CHECK(std::abs(apart[i] - apart[1]) <= 2);
}

TEST_CASE_METHOD(Searching, "signs of all threads come in one order", "[iterations]") {
  record();
  // Each thread's signs are in order, one thread after the other.
  search.take(1, sign(10, SignKind::kKernel, 100));
  search.take(1, sign(30, SignKind::kCopyToHost, 101));
  search.take(1, sign(50, SignKind::kSync, 102));
  search.take(2, sign(20, SignKind::kKernel, 103));
  search.take(2, sign(40, SignKind::kMemset, 104, 2));
  search.advance({base + 100, now()});
  CHECK(search.detector().events() == 5);
  search.finish();
  CHECK(lines() == std::vector<std::string>{"K 1 1 1 1", "K 2 1 2 1", "D 1 1 3 1", "S 2 1 4 2", "Y 1 1 5 1"});
}

TEST_CASE_METHOD(Searching, "what may still be overtaken waits", "[iterations]") {
  record();
  search.take(1, sign(10, SignKind::kKernel, 100));
  search.take(1, sign(30, SignKind::kKernel, 101));
  search.advance({base + 20, now()});
  CHECK(search.detector().events() == 1);
  // Published after the previous pass, but made before the signs that wait.
  search.take(2, sign(25, SignKind::kKernel, 102));
  search.advance({base + 30, now()});
  CHECK(search.detector().events() == 2);
  search.finish();
  CHECK(search.detector().events() == 3);
  CHECK(lines() == std::vector<std::string>{"K 1 1 1 1", "K 2 1 2 1", "K 1 1 3 1"});
}

TEST_CASE_METHOD(Searching, "signs that are held are looked at when there are too many", "[iterations]") {
  constexpr std::uint64_t kMax = 1u << 18;
  for (std::uint64_t i = 0; i < kMax - 1; ++i) search.take(1, sign(i, SignKind::kKernel, 100 + i % 7));
  search.advance({base + kMax, now()}, true);
  CHECK(search.detector().events() == 0);
  search.take(1, sign(kMax, SignKind::kKernel, 100));
  search.advance({base + kMax, now()}, true);
  CHECK(search.detector().events() == kMax - 1);  // an earlier sign may still arrive before the newest
  search.advance({base + kMax + 1, now()}, true);
  CHECK(search.detector().events() == kMax - 1);
  search.advance({base + kMax + 1, now()});
  CHECK(search.detector().events() == kMax);
}

TEST_CASE_METHOD(Searching, "a boundary stays before its sign, whoever else came at that tick",
                 "[iterations]") {
  record();
  search.take(1, sign(10, SignKind::kKernel, 100));
  search.take(1, boundary(20, 1));
  search.take(1, sign(20, SignKind::kKernel, 101));
  search.take(2, sign(15, SignKind::kKernel, 102));
  search.advance({base + 100, now()});
  search.note_window(true, 1, 1);
  search.note_window(false, 6, 1);
  search.finish();
  CHECK(lines() ==
        std::vector<std::string>{"K 1 1 1 1", "K 2 1 2 1", "B 1 1", "K 1 1 3 1", "O 1 1", "C 6 1"});
  CHECK(search.detector().events() == 3);
}

TEST_CASE_METHOD(Searching, "the watch's count and the iterations' numbers", "[iterations]") {
  std::uint64_t at = 0;
  const auto iteration = [&](std::uint32_t count) {
    if (count != 0) search.take(1, boundary(at, count));
    for (std::uint64_t function = 1; function <= 20; ++function, at += 20'000)
      search.take(1, sign(at, SignKind::kKernel, function, function + 1000));
  };
  for (int k = 0; k < 12; ++k) iteration(0);
  search.advance({base + at, now()});
  REQUIRE(search.detector().lock());
  CHECK_FALSE(search.offset());
  // Armed late: the watch has counted to 41 with other marks, and sees iteration 12 first.
  search.armed(41);
  iteration(41);  // counted by the earlier marks
  search.advance({base + at, now()});
  CHECK_FALSE(search.offset());
  iteration(42);
  search.advance({base + at, now()});
  REQUIRE(search.offset());
  CHECK(*search.offset() == 13 - 42);
  iteration(43);
  search.advance({base + at, now()});
  CHECK(*search.offset() == 14 - 43);

  search.restart();
  CHECK_FALSE(search.offset());
  CHECK_FALSE(search.detector().lock());
  CHECK(search.detector().events() == 0);
}

TEST_CASE_METHOD(Searching, "a recording tells the detector what the program told it",
                 "[iterations][native]") {
  record();
  std::mt19937 random(5);
  std::uint64_t at = 0;
  const auto emit = [&](SignKind kind, std::uint64_t function, std::uint64_t size = 0) {
    search.take(1 + static_cast<std::uint32_t>(random() % 3),
                sign(at += 1000, kind, hash_mix(function), hash_mix(function * 1000 + size)));
  };
  std::uint64_t changes = 0;
  std::vector<IterationSpan> told;
  for (unsigned k = 0; k < 60; ++k) {
    SignRecord mark;
    mark.sign = SignKind::kMark;
    mark.sequence = base + at + 1;
    mark.name = names.intern("truth:" + std::to_string(k));
    search.take(1, mark);
    emit(SignKind::kCopyToDevice, 1);
    for (std::uint64_t i = 0; i < 5 + random() % 10; ++i) {
      for (std::uint64_t function = 10; function < 20; ++function) emit(SignKind::kKernel, function, i);
    }
    for (std::uint64_t function = 50; function < 53; ++function) emit(SignKind::kKernel, function);
    if (k == 0) search.take(2, named(at + 1, hash_mix(50), "multi_tensor_apply_kernel with spaces <1, 2>"));
    if (k % 10 == 9) {
      emit(SignKind::kCopyToHost, 2);
      emit(SignKind::kSync, 3);
    }
    search.advance({base + at, now()});
    if (changes != search.detector().changes()) {
      changes = search.detector().changes();
      told.clear();
    }
    for (const IterationSpan& span : search.take_spans()) told.push_back(span);
  }
  search.finish();
  for (const IterationSpan& span : search.take_spans()) told.push_back(span);
  REQUIRE(changes != 0);
  CHECK(search.detector().begun() == 60);

  constexpr std::string_view kLetters = "KGHDPSYL";
  IterationDetector again;
  std::vector<IterationSpan> found;
  std::vector<std::uint64_t> marks;
  Nanoseconds time = 0;
  changes = 0;
  std::istringstream text(folder.read("stream"));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line.substr(2));
    std::uint64_t first = 0;
    words >> first;
    if (line[0] == 'F') {
      std::string name;
      std::getline(words >> std::ws, name);
      again.name(hash_mix(first), name);
    }
    if (line[0] == 'M') marks.push_back(again.events());
    if (line[0] == 'M' || line[0] == 'B') time += first;
    const std::size_t kind = kLetters.find(line[0]);
    if (kind == std::string_view::npos) continue;
    LaunchSign sign;
    std::uint64_t function = 0;
    std::uint64_t shape = 0;
    words >> sign.thread >> sign.stream >> function >> shape;
    sign.kind = static_cast<SignKind>(kind);
    sign.function = hash_mix(function);
    sign.shape = hash_mix(shape + 1'000'000);
    sign.time = time += first;
    again.add(sign);
    if (changes != again.changes()) {
      changes = again.changes();
      found.clear();
    }
    for (const IterationSpan& span : again.take_spans()) found.push_back(span);
  }
  REQUIRE(again.lock());
  CHECK(again.lock()->anchor_name == search.detector().lock()->anchor_name);
  CHECK(again.lock()->locked_at == search.detector().lock()->locked_at);
  CHECK(again.lock()->optimizer);
  CHECK(again.begun() == 60);
  REQUIRE(marks.size() == 60);
  REQUIRE(found.size() == told.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].number == told[i].number);
    CHECK(found[i].first_event == told[i].first_event);
    // The clock is adjusted while the program runs; the recording's times never go back.
    const auto difference = static_cast<std::int64_t>(found[i].end - found[i].begin) -
                            static_cast<std::int64_t>(told[i].end - told[i].begin);
    CHECK(std::abs(difference) < 5000);
  }
  for (const IterationSpan& span : found) CHECK(span.first_event == marks[span.number]);
}

TEST_CASE_METHOD(Searching, "a name keeps to its line of the recording", "[iterations]") {
  record();
  SignRecord mark;
  mark.sign = SignKind::kMark;
  mark.sequence = 10;
  mark.name = names.intern("range\nK 1 1 1 1 1");
  search.take(1, mark);
  search.take(1, named(20, 100, "kernel\r\nI 0 0 0"));
  search.finish();
  std::istringstream text(folder.read("stream"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "M 0 1 range?K 1 1 1 1 1");
  CHECK(lines[1] == "F 1 kernel??I 0 0 0");
}

TEST_CASE_METHOD(Searching, "a recording that can't be made says why", "[iterations]") {
  CHECK_FALSE(search.record_to(folder.path() + "/none/stream"));
  CHECK(search.recording_error().find("none/stream") != std::string::npos);
  search.take(1, sign(10, SignKind::kKernel, 100));
  search.note_window(true, 1, 1);
  search.finish();
  CHECK(search.detector().events() == 1);
}
