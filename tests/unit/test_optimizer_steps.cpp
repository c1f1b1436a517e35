// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "libinject/base/mapping.h"
#include "libinject/iterations/iteration_detector.h"
#include "libinject/iterations/iteration_search.h"
#include "libinject/iterations/step_cycle.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kSecondOfSteps = 1'000'000'000;
/// Taken for an optimizer's kernel in the absence of better evidence.
constexpr const char* kForeachCopy = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18UnaryOp";

/// A program that reports its optimizers' steps.
class SteppedTraining {
 public:
  explicit SteppedTraining(bool told = true) {
    if (told) detector.expect_steps(false);
    detector.name(function_of(kCopies), kForeachCopy);
  }

  void event(SignKind kind, std::uint64_t function, std::uint64_t shape = 0) {
    LaunchSign sign;
    sign.kind = kind;
    sign.thread = 1;
    sign.function = function_of(function);
    sign.shape = hash_mix(sign.function + shape + 2);
    sign.time = time += apart;
    sign.in_step = in_step;
    if (kind != SignKind::kStep) contents += sign.shape;
    add(sign);
  }
  void kernel(std::uint64_t function, std::uint64_t shape = 0) { event(SignKind::kKernel, function, shape); }
  void begin() { begins.push_back(detector.events()); }
  /// A step of an optimizer of that class with parameters of these sizes; the first step creates its state.
  void step(std::uint64_t optimizer, const std::vector<std::uint64_t>& sizes, bool captured = false) {
    contents = 0;
    in_step = true;
    const std::uint64_t before = detector.events();
    if (states.emplace(std::pair(optimizer, sizes), true).second) event(SignKind::kMemset, 800, 1);
    for (const std::uint64_t size : sizes) kernel(810, size);
    in_step = false;
    LaunchSign sign;
    sign.kind = SignKind::kStep;
    sign.thread = 1;
    sign.function = function_of(900 + optimizer);
    sign.shape = hash_mix((sign.function ^ contents) * kHashSeed);
    sign.stream = detector.events() - before;
    sign.captured = captured;
    sign.optimizer = object;
    sign.time = time += apart;
    add(sign);
  }

  /// The first iteration from number `from` on that was reported incorrectly; empty if none was. The last one
  /// has no end yet.
  std::string difference(std::uint64_t from) const {
    std::map<std::uint64_t, std::uint64_t> told;
    for (const IterationSpan& span : spans) {
      if (!span.phase) told[span.number] = span.first_event;
    }
    for (std::uint64_t k = from; k + 1 < begins.size(); ++k) {
      const auto it = told.find(k);
      if (it == told.end()) return std::to_string(k) + " is missing";
      if (it->second != begins[k])
        return std::to_string(k) + " begins at " + std::to_string(it->second) + ", not " +
               std::to_string(begins[k]);
    }
    return told.size() > begins.size() - 1 ? "more than there were" : "";
  }

  static constexpr std::uint64_t kCopies = 700;
  IterationDetector detector;
  Nanoseconds time = 1'000'000;
  Nanoseconds apart = 40'000;
  std::uint32_t object = 0;  // that steps
  std::vector<std::uint64_t> begins;
  std::vector<IterationSpan> spans;
  std::uint64_t changes = 0;
  std::size_t first_locked_in = 0;

 private:
  static std::uint64_t function_of(std::uint64_t function) { return hash_mix(function * kHashSeed + 1); }
  void add(const LaunchSign& sign) {
    detector.add(sign);
    if (detector.changes() != changes) {
      if (changes == 0) first_locked_in = begins.size();
      changes = detector.changes();
      spans.clear();
    }
    for (const IterationSpan& span : detector.take_spans()) spans.push_back(span);
  }

  bool in_step = false;
  std::uint64_t contents = 0;
  std::map<std::pair<std::uint64_t, std::vector<std::uint64_t>>, bool> states;
};

/// An optimizer in an iteration's sequence of steps.
struct Optimizer {
  std::uint64_t kind;
  std::vector<std::uint64_t> sizes;
  bool operator==(const Optimizer&) const = default;
};

/// Whether the sequence repeats within itself, or its last step occurs more than once. No claim is made for
/// such sequences.
bool is_ambiguous(const std::vector<Optimizer>& sequence) {
  for (std::size_t length = 1; length < sequence.size(); ++length) {
    if (sequence.size() % length != 0) continue;
    bool same = true;
    for (std::size_t i = length; i < sequence.size(); ++i) same = same && sequence[i] == sequence[i - length];
    if (same) return true;
  }
  return std::ranges::count(sequence, sequence.back()) != 1;
}

}  // namespace

TEST_CASE("a graph that is replayed many times between two steps is no iteration", "[iterations]") {
  // A graph accumulates gradients; before that, the passes that are captured have run without it.
  for (const unsigned replays : {2u, 8u, 32u, 60u}) {
    CAPTURE(replays);
    SteppedTraining program;
    for (unsigned pass = 0; pass < 4; ++pass) {
      for (std::uint64_t layer = 0; layer < 40; ++layer) program.kernel(100 + layer);
    }
    for (int k = 0; k < 80; ++k) {
      program.begin();
      program.kernel(500);
      for (unsigned i = 0; i < replays; ++i) program.event(SignKind::kGraph, 800);
      program.step(1, {64, 128});
    }
    REQUIRE(program.detector.lock());
    CHECK(program.first_locked_in <= 40);  // 200 signs
    CHECK(program.difference(45) == "");
  }
}

TEST_CASE("a graph that holds the step is an iteration at once", "[iterations]") {
  SteppedTraining program;
  for (unsigned pass = 0; pass < 4; ++pass) {
    for (std::uint64_t layer = 0; layer < 40; ++layer) program.kernel(100 + layer);
    program.step(1, {64, 128}, pass == 3);
  }
  for (int k = 0; k < 60; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 801);
    program.event(SignKind::kGraph, 800);
  }
  REQUIRE(program.detector.lock());
  CHECK(program.first_locked_in <= 6);
  CHECK(program.detector.changes() == 1);
  CHECK(program.detector.lock()->steps == 0);
  CHECK(program.detector.lock()->events == Approx(2));
}

TEST_CASE("a graph is an iteration as well if no step comes for long", "[iterations]") {
  SteppedTraining program;
  for (std::uint64_t layer = 0; layer < 40; ++layer) program.kernel(100 + layer);
  for (int k = 0; k < 100; ++k) {
    program.begin();
    program.event(SignKind::kGraph, 800);
  }
  REQUIRE(program.detector.lock());
  CHECK(program.first_locked_in > 60);
  CHECK(program.first_locked_in <= 70);
}

TEST_CASE("the cycle of any sequence of steps is found, and what ends it", "[steps]") {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    std::vector<std::uint32_t> cycle(1 + random() % 40);
    const auto kinds = 1 + static_cast<unsigned>(random() % 5);
    for (std::uint32_t& step : cycle) step = 1 + static_cast<std::uint32_t>(random() % kinds);
    std::size_t shortest = cycle.size();
    for (std::size_t length = cycle.size(); length-- > 1;) {
      bool same = true;
      for (std::size_t i = 0; i < cycle.size(); ++i)
        same = same && cycle[i] == cycle[(i + length) % cycle.size()];
      if (same && cycle.size() % length == 0) shortest = length;
    }
    StepSequence steps;
    const std::size_t total = 50 * cycle.size() + StepSequence::kMinSteps;
    for (std::size_t i = 0; i < total; ++i) {
      // First steps differ.
      const std::uint32_t contents = i < cycle.size() ? 100 : cycle[i % cycle.size()];
      steps.add({1, contents, 40 * i}, i);
    }
    REQUIRE(steps.cycle());
    CHECK(steps.cycle()->length == shortest);
    CHECK(steps.cycle()->key == StepKey::kContents);
    const std::uint32_t last = cycle[shortest - 1];
    const auto times =
        std::ranges::count(cycle.begin(), cycle.begin() + static_cast<std::ptrdiff_t>(shortest), last);
    CHECK(steps.cycle()->last == (times == 1 ? last : 0));
    CHECK(steps.count() == total);
    CHECK(steps.count_before(40 * (total - 3)) == total - 3);
    CHECK(steps.longest_gap() == 40);
  }
}

TEST_CASE("steps are told apart by class where their contents vary, once a cycle would have shown",
          "[steps]") {
  StepSequence steps;
  for (std::uint32_t i = 0; i < 200; ++i) {
    steps.add({1 + i % 2, 10 + i, 40 * i}, i * kSecondOfSteps / 10);
    CAPTURE(i);
    CHECK(steps.cycle().has_value() == (i >= 100));
  }
  CHECK(*steps.cycle() == StepCycle{2, StepKey::kClass, 2});
  // With fast steps, the wait is shorter.
  StepSequence fast;
  for (std::uint32_t i = 0; i < StepSequence::kPatience; ++i) fast.add({1, 10 + i, 40 * i}, i);
  CHECK(*fast.cycle() == StepCycle{1, StepKey::kClass, 1});
}

TEST_CASE("optimizers of one class are told apart by the object where their contents vary", "[steps]") {
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    // Each object has a class; in an iteration they step in any order, the last one only once.
    std::vector<std::uint32_t> objects(3 + random() % 6);
    for (std::uint32_t& object : objects) object = 1 + static_cast<std::uint32_t>(random() % 3);
    objects.back() = 9;
    StepSequence steps;
    for (std::uint32_t i = 0; i < 30 * objects.size(); ++i) {
      const std::uint32_t object = objects[i % objects.size()];
      steps.add({1 + object % 2, 100 + i, 40 * i, 3, object}, i * kSecondOfSteps / 1000);
    }
    CHECK(*steps.cycle() == StepCycle{objects.size(), StepKey::kObject, 9});
    CHECK_FALSE(steps.are_doubtful());
    CHECK(steps.is_last(40 * (objects.size() * 28 - 1)));
    CHECK_FALSE(steps.is_last(40 * (objects.size() * 28)));
    CHECK(steps.has_mark(40 * (objects.size() * 28 - 1), optimizer_mark(9)));
    CHECK(steps.class_of_last() == 2);
  }
}

TEST_CASE("one step of an unknown object is enough for objects not to tell", "[steps]") {
  StepSequence steps;
  for (std::uint32_t i = 0; i < 300; ++i)
    steps.add({1, 100 + i, 40 * i, 3, i == 290 ? 0 : 1 + i % 3}, i * kSecondOfSteps / 1000);
  CHECK_FALSE(steps.cycle());
}

TEST_CASE("it is doubtful where optimizers that launch the same are other objects each time", "[steps]") {
  const auto doubtful = [](auto object, auto thread) {
    StepSequence steps;
    for (std::uint32_t i = 0; i < 90; ++i) steps.add({1, 1 + i % 3, 100 * i, 3, object(i), thread(i)}, i);
    CHECK(*steps.cycle() == StepCycle{3, StepKey::kContents, 3});
    return steps.are_doubtful();
  };
  const auto of_three = [](std::uint32_t i) { return 1 + i % 3; };
  const auto none = [](std::uint32_t) { return 0u; };
  CHECK_FALSE(doubtful(of_three, none));
  CHECK_FALSE(doubtful(none, none));
  // An ensemble of two.
  CHECK(doubtful([](std::uint32_t i) { return 1 + i % 6; }, none));
  // A new object each time.
  CHECK(doubtful([](std::uint32_t i) { return 1 + i; }, none));
  CHECK(doubtful(of_three, [](std::uint32_t i) { return i / 3 % 2; }));
}

TEST_CASE("an optimizer for each of many parameters is not taken for one, however slow it is", "[steps]") {
  std::mt19937 random(9);
  for (const std::uint32_t length : {300u, 800u, 2000u}) {
    CAPTURE(length);
    std::vector<std::uint32_t> contents(length);
    for (std::uint32_t& own : contents) own = 1 + static_cast<std::uint32_t>(random() % 12);
    StepSequence steps;
    for (std::uint64_t i = 0; i < 7 * length; ++i) {
      // Four seconds per iteration; the first one creates the state.
      const std::uint32_t own = contents[i % length] + (i < length ? 100 : 0);
      steps.add({1, own, 5 * i}, i * 4 * kSecondOfSteps / length);
      if (steps.cycle()) CHECK(steps.cycle()->length == length);
    }
    CHECK(steps.cycle());
  }
}

TEST_CASE("a critic's many steps are not taken for iterations before the generator's", "[steps]") {
  for (const std::uint32_t critic : {2u, 3u, 5u}) {
    CAPTURE(critic);
    StepSequence steps;
    for (std::uint32_t i = 0; i < 20 * (critic + 1); ++i) {
      const bool generator = i % (critic + 1) == critic;
      // Both create their state in their first step.
      const std::uint32_t contents = i == 0 ? 11 : i == critic ? 12 : generator ? 2 : 1;
      steps.add({1, contents, 100 * i}, i);
      if (steps.cycle()) CHECK(steps.cycle()->length == critic + 1);
    }
    CHECK(*steps.cycle() == StepCycle{critic + 1, StepKey::kContents, 2});
  }
}

TEST_CASE("what windows show of steps is compared within each", "[steps]") {
  std::mt19937 random(4);
  StepSequence steps;
  steps.expect_few();
  for (std::uint32_t i = 0, left = 0; i < 2000; ++i) {
    if (left-- == 0) {
      i += static_cast<std::uint32_t>(random() % 7);
      left = 4 + static_cast<std::uint32_t>(random() % 9);
      steps.resume();
    }
    const std::uint32_t contents = i % 3 == 2 ? 2 : 1;
    steps.add({1, contents, 100 * i}, i);
    if (steps.cycle()) CHECK(steps.cycle()->length == 3);
  }
  CHECK(steps.cycle());
  // Five steps of a single optimizer are enough.
  StepSequence one;
  one.expect_few();
  for (std::uint32_t i = 0; i < 5; ++i) one.add({1, 1, 10 * i}, i);
  CHECK(*one.cycle() == StepCycle{1, StepKey::kContents, 1});
}

TEST_CASE("a step that was left out does not make another one the last", "[steps]") {
  StepSequence steps;
  std::uint64_t position = 0;
  const auto iteration = [&](bool skip) {
    for (const std::uint32_t contents : {1u, 1u, 2u, 3u}) {
      if (skip && contents == 2) continue;
      position += 40;
      steps.add({1, contents, position}, position);
    }
  };
  for (int i = 0; i < 10; ++i) iteration(false);
  CHECK(*steps.cycle() == StepCycle{4, StepKey::kContents, 3});
  iteration(true);
  CHECK_FALSE(steps.cycle());
  for (int i = 0; i < 7; ++i) iteration(false);
  CHECK(*steps.cycle() == StepCycle{4, StepKey::kContents, 3});
}

TEST_CASE("optimizers that launch the same and step one right after the other are steps of one iteration",
          "[steps]") {
  for (const std::uint32_t optimizers : {2u, 3u, 8u, 64u}) {
    for (const std::uint64_t signs : {std::uint64_t{2}, std::uint64_t{100}}) {
      for (const bool few : {false, true}) {
        CAPTURE(optimizers, signs, few);
        StepSequence steps;
        if (few) steps.expect_few();
        std::uint64_t position = 0;
        for (std::uint32_t k = 0; k < 40; ++k) {
          position += 30;
          for (std::uint32_t i = 0; i < optimizers; ++i) {
            position += signs + 1;
            steps.add({1, 1, position, signs, 1 + i}, k * kSecondOfSteps);
            if (steps.cycle()) CHECK(steps.cycle()->length == optimizers);
          }
        }
        CHECK(*steps.cycle() == StepCycle{optimizers, StepKey::kObject, optimizers});
      }
    }
  }
}

TEST_CASE("an optimizer whose closure does all of the work is an iteration, also if a report comes at times",
          "[steps]") {
  for (const std::uint32_t report : {2u, 5u, 10u, 50u, 10'000u}) {
    for (const std::uint64_t signs : {std::uint64_t{100}, std::uint64_t{400}}) {
      for (const std::uint32_t object : {0u, 7u}) {
        CAPTURE(report, signs, object);
        StepSequence steps;
        std::uint64_t position = 0;
        for (std::uint32_t k = 0; k < 500; ++k) {
          position += signs + 1 + (k % report == 0 ? 2 : 0);
          steps.add({1, 1, position, signs, object}, k * kSecondOfSteps);
          if (k >= 10) CHECK((steps.cycle() && steps.cycle()->length == 1));
        }
        CHECK(steps.are_doubtful() == (object == 0));
      }
    }
  }
}

TEST_CASE("numbers start over where iterations turn out to have other steps, unless they have been shown",
          "[steps][iterations]") {
  for (const bool shown : {false, true}) {
    CAPTURE(shown);
    SteppedTraining program;
    const auto critic = [&] {
      for (unsigned i = 10; i < 22; ++i) program.kernel(i);
      program.step(1, {1, 2});
    };
    for (unsigned i = 0; i < 60; ++i) critic();
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->steps == 1);
    if (shown) program.detector.keep_numbers(program.detector.begun(), program.time);
    for (unsigned k = 0; k < 200; ++k) {
      for (unsigned i = 0; i < 5; ++i) critic();
      for (unsigned i = 30; i < 50; ++i) program.kernel(i);
      program.step(1, {3, 4});
    }
    REQUIRE(program.detector.lock()->steps == 6);
    CHECK(program.detector.lock()->mixed == shown);
    if (shown) CHECK(program.detector.lock()->rough);
    // All of the program's steps, in groups of six.
    if (!shown) CHECK(program.detector.begun() == (60u + 200u * 6) / 6);
  }
}

TEST_CASE("steps of different optimizers in no order are no cycle", "[steps]") {
  StepSequence steps;
  std::mt19937 random(3);
  for (std::uint32_t i = 0; i < StepSequence::kPatience + 1; ++i) {
    const auto kind = 1 + static_cast<std::uint32_t>(random() % 2);
    steps.add({kind, kind, 40 * i}, i * kSecondOfSteps);
    if (i >= 1000 && i % 47 == 0) CHECK_FALSE(steps.cycle());
  }
  CHECK_FALSE(steps.is_open());
}

TEST_CASE("layers that copy their parameters as an optimizer does are no iterations", "[steps][iterations]") {
  for (const bool told : {true, false}) {
    CAPTURE(told);
    SteppedTraining program(told);
    for (unsigned k = 0; k < 40; ++k) {
      program.begin();
      program.event(SignKind::kCopyToDevice, 1, 5);
      for (unsigned layer = 0; layer < 32; ++layer) {
        program.kernel(SteppedTraining::kCopies);
        for (unsigned i = 10; i < 20; ++i) program.kernel(i);
      }
      if (told) program.step(1, {7, 8, 9});
    }
    REQUIRE(program.detector.lock());
    // Without the steps, the copies are taken for an optimizer, which is what this test is about.
    CHECK(program.difference(0).empty() == told);
    if (!told) continue;
    CHECK(program.detector.lock()->steps == 1);
    CHECK(program.detector.begun() == program.begins.size());
    CHECK(program.changes == 1);
    CHECK(program.first_locked_in <= StepSequence::kMinSteps + 1);
  }
}

TEST_CASE("whatever lies between the steps, an iteration is one cycle of them", "[steps][iterations]") {
  std::mt19937 random(11);
  unsigned claimed = 0;
#ifdef __SANITIZE_ADDRESS__
  constexpr int kRounds = 20;  // each takes half a second there
#else
  constexpr int kRounds = 150;
#endif
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    const auto below = [&](unsigned bound) { return static_cast<unsigned>(random() % bound); };
    std::vector<Optimizer> sequence(1 + below(5));
    for (Optimizer& optimizer : sequence) {
      optimizer.kind = below(2);
      optimizer.sizes.resize(1 + below(3));
      for (std::uint64_t& size : optimizer.sizes) size = below(3);
      std::ranges::sort(optimizer.sizes);  // the order of its launches is not reported
    }
    const bool any_length = below(2) == 0;
    const unsigned layers = 2 + below(10);
    const unsigned micro_batches = 1 + below(3);
    SteppedTraining program;
    for (unsigned k = 0; k < 80; ++k) {
      program.begin();
      program.event(SignKind::kCopyToDevice, 1, any_length ? below(1000) : 5);
      for (const Optimizer& optimizer : sequence) {
        for (unsigned batch = 0; batch < micro_batches; ++batch) {
          const unsigned length = any_length ? below(1000) : 0;
          for (unsigned layer = 0; layer < layers + (any_length ? below(20) : 0); ++layer) {
            if (below(3) == 0 && any_length) program.kernel(SteppedTraining::kCopies, length);
            for (unsigned i = 10; i < 15; ++i) program.kernel(i + 10 * optimizer.kind, length);
          }
        }
        program.object =
            1 + static_cast<std::uint32_t>(std::ranges::find(sequence, optimizer) - sequence.begin());
        program.step(optimizer.kind, optimizer.sizes);
      }
      // Results are fetched now and then.
      if (k % 7 == 3) program.event(SignKind::kCopyToHost, 2, 4);
      program.event(SignKind::kSync, 3);
    }
    if (is_ambiguous(sequence)) continue;
    ++claimed;
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->steps == sequence.size());
    CHECK(program.detector.lock()->optimizer);
    if (!any_length) CHECK_FALSE(program.detector.lock()->doubtful);
    // The first iterations may precede what is known of the first steps.
    const std::uint64_t from = program.spans.empty() ? 0 : program.spans.front().number;
    CHECK(from <= 3);
    CHECK(program.difference(from) == "");
    CHECK(program.detector.begun() == program.begins.size());
  }
  CHECK(claimed > 2 * kRounds / 5);
}

TEST_CASE("an optimizer for each parameter: an iteration has a step of each", "[steps][iterations]") {
  std::mt19937 random(5);
  SteppedTraining program;
  std::vector<std::uint64_t> sizes(120);
  for (std::uint64_t& size : sizes) size = random() % 9;
  for (unsigned k = 0; k < 20; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 1, 5);
    for (unsigned i = 0; i < 60; ++i) program.kernel(10, i % 9);
    for (const std::uint64_t size : sizes) {
      program.kernel(20, size);
      program.step(1, {size});
    }
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 120);
  const std::uint64_t from = program.spans.front().number;
  CHECK(program.difference(from) == "");
  CHECK(program.changes == 1);
}

TEST_CASE("optimizers that launch the same are told apart by the models between their steps",
          "[steps][iterations]") {
  std::mt19937 random(21);
  unsigned right_by_names = 0;
  for (const bool told : {true, false}) {
    for (int round = 0; round < 60; ++round) {
      CAPTURE(told, round);
      const auto below = [&](unsigned bound) { return static_cast<unsigned>(random() % bound); };
      const unsigned critics = 1 + below(5);
      const unsigned layers = 4 + below(20);
      const unsigned own = 2 + layers / 2 + below(layers);  // kernels that only one of the two has
      SteppedTraining program(told);
      for (unsigned k = 0; k < 100; ++k) {
        program.begin();
        program.event(SignKind::kCopyToDevice, 1, 5);
        for (unsigned step = 0; step <= critics; ++step) {
          const bool generator = step == critics;
          for (unsigned i = 0; i < 2 * layers; ++i) program.kernel(10 + i % layers, 1);
          for (unsigned i = 0; i < own; ++i) program.kernel((generator ? 100 : 200) + i, 1);
          if (k % 10 == 3) program.event(SignKind::kCopyToHost, 2, 4);
          if (told) {
            program.step(1, {7, 8});
          } else {
            program.kernel(SteppedTraining::kCopies);
          }
        }
      }
      REQUIRE(program.detector.lock());
      REQUIRE(!program.spans.empty());
      const bool right = program.difference(program.spans.front().number).empty() &&
                         program.detector.begun() == program.begins.size();
      right_by_names += right && !told;
      if (!told) continue;
      CHECK(program.detector.lock()->steps == critics + 1);
      CHECK(right);
      CHECK(program.changes == 1);
    }
  }
  CHECK(right_by_names >= 50);
}

TEST_CASE("what a program does now and then makes no iteration of several steps", "[steps][iterations]") {
  std::mt19937 random(22);
  unsigned right = 0;
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    const auto below = [&](unsigned bound) { return static_cast<unsigned>(random() % bound); };
    const unsigned layers = 10 + below(30);
    const unsigned reported = 2 + below(9);
    const unsigned epoch = 2 + below(20);
    const bool any_length = below(3) == 0;
    SteppedTraining program;
    for (unsigned k = 0; k < 120; ++k) {
      program.begin();
      const bool last = k % epoch == epoch - 1;  // a smaller batch, for which another kernel is chosen
      const unsigned length = any_length ? 10 + below(500) : last ? 2 : 1;
      program.event(SignKind::kCopyToDevice, 1, length);
      for (unsigned i = 0; i < layers; ++i) program.kernel(10 + i, length);
      program.kernel(last ? 90 : 91, length);
      for (unsigned i = 0; k % reported == 1 && i < 4; ++i) program.kernel(300 + i, 1);
      program.step(1, {7, 8});
    }
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->steps == 1);
    CHECK(program.changes == 1);
    right += program.difference(program.spans.front().number).empty();
  }
  // Reports in every second iteration and epochs of a few batches leave little that all iterations have in
  // common.
  CHECK(right >= 97);
}

TEST_CASE("a line search that launches as it likes is an iteration", "[steps][iterations]") {
  std::mt19937 random(23);
  SteppedTraining program;
  for (unsigned k = 0; k < 60; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 1, 5);
    std::vector<std::uint64_t> launched;
    for (unsigned evaluation = 0; evaluation < 20 + random() % 5; ++evaluation)
      for (unsigned i = 0; i < 30; ++i) launched.push_back(i);
    program.step(1, launched);
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 1);
  CHECK(program.first_locked_in <= 20);
  CHECK(program.difference(program.spans.front().number) == "");
  CHECK(program.detector.begun() == program.begins.size());
}

TEST_CASE("steps that are skipped make no number slip where the rest repeats", "[steps][iterations]") {
  for (const unsigned optimizers : {1u, 2u}) {
    for (const bool copies : {false, true}) {
      CAPTURE(optimizers, copies);
      SteppedTraining program;
      for (unsigned k = 0; k < 60; ++k) {
        program.begin();
        program.event(SignKind::kCopyToDevice, 1, 5);
        for (unsigned optimizer = 0; optimizer < optimizers; ++optimizer) {
          for (unsigned i = 10; i < 40; ++i) program.kernel(i, optimizer);
          program.kernel(60, optimizer);  // are the gradients finite?
          program.event(SignKind::kCopyToHost, 2, 4);
          // Occasionally a learning rate, copied as an iteration begins.
          if (copies && k % 20 == 7 && optimizer + 1 == optimizers)
            program.event(SignKind::kCopyToDevice, 1, 6);
          if (k >= 3 && (copies || (k != 30 && k != 31))) program.step(1, {7, 8 + optimizer});
        }
      }
      REQUIRE(program.detector.lock());
      CHECK(program.detector.lock()->steps == optimizers);
      CHECK(program.detector.begun() == program.begins.size());
      if (copies) continue;  // that copy is taken for the beginning
      CHECK(program.difference(program.spans.front().number) == "");
      CHECK(program.spans.front().number <= 1);
    }
  }
}

TEST_CASE("an iteration ends where what follows was seen first, whatever steps were skipped",
          "[steps][iterations]") {
  SteppedTraining program;
  for (unsigned k = 0; k < 40; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 1, 5);
    for (unsigned i = 10; i < 40; ++i) program.kernel(i);
    if (k != 0) program.step(1, {7, 8});  // the discriminator's first gradient was not finite
    for (unsigned i = 40; i < 60; ++i) program.kernel(i);
    program.step(1, {9});
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 2);
  const std::uint64_t from = program.spans.front().number;
  CHECK(from <= 2);
  CHECK(program.difference(from) == "");
  CHECK(program.detector.begun() == program.begins.size());
}

TEST_CASE("numbers begin with the program's first step, whatever was taken for iterations before",
          "[steps][iterations]") {
  SteppedTraining program;
  // Shards are copied for half a minute by what looks like an optimizer.
  program.apart = 1'000'000;
  while (program.time < 35'000'000'000) {
    program.kernel(SteppedTraining::kCopies);
    for (unsigned i = 100; i < 130; ++i) program.kernel(i);
  }
  std::mt19937 random(2);
  for (unsigned k = 0; k < 60; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 1, random() % 1000);
    for (unsigned i = 0; i < 10 + random() % 20; ++i) program.kernel(10 + random() % 10, random() % 1000);
    program.step(1, {7, 8});
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 1);
  CHECK(program.detector.begun() == program.begins.size());
}

TEST_CASE("a program that tells of no steps after all goes by its kernels' names", "[steps][iterations]") {
  for (const bool stops : {false, true}) {
    CAPTURE(stops);
    SteppedTraining program;
    program.apart = 400'000;
    const auto iteration = [&](bool told) {
      program.event(SignKind::kCopyToDevice, 1, 5);
      for (unsigned i = 10; i < 40; ++i) program.kernel(i);
      program.kernel(SteppedTraining::kCopies);
      if (told) program.step(1, {7, 8, 9});
    };
    // Another component cleared all callbacks.
    if (stops)
      for (unsigned k = 0; k < 20; ++k) iteration(true);
    std::uint64_t began = 0;
    while (program.detector.events() < 90'000) {
      began = program.detector.events();
      iteration(false);
    }
    REQUIRE(program.detector.lock());
    if (!stops) CHECK(program.detector.lock()->steps == 0);
    CHECK(program.detector.lock()->optimizer);
    REQUIRE(!program.spans.empty());
    CHECK(program.spans.back().end > program.time - 70 * program.apart);
    CHECK(began != 0);
  }
}

TEST_CASE("where one of two models comes in no order, that each step ends an iteration is a guess",
          "[steps]") {
  for (const bool second_model : {true, false}) {
    CAPTURE(second_model);
    SteppedTraining training;
    std::mt19937 random(5);
    for (unsigned k = 0; k < 140; ++k) {
      training.begin();
      training.event(SignKind::kCopyToDevice, 600);
      const std::uint64_t model = second_model && random() % 3 == 0 ? 300 : 100;
      for (std::uint64_t i = 0; i < 30; ++i) training.kernel(model + i);
      training.step(1, {10, 20, 30});
    }
    REQUIRE(training.detector.lock());
    CHECK(training.detector.lock()->steps == 1);
    CHECK(training.detector.lock()->rough == second_model);
  }
}

TEST_CASE("a critic may have stepped alone any number of times", "[steps][iterations]") {
  for (const bool shown : {false, true}) {
    for (const unsigned critics : {1u, 2u, 3u, 5u}) {
      for (unsigned alone = 20; alone < 90; ++alone) {
        CAPTURE(shown, critics, alone);
        SteppedTraining program;
        const auto critic = [&] {
          for (unsigned i = 0; i < 20; ++i) program.kernel(10 + i % 5, 4);
          program.step(1, {3, 5});
        };
        for (unsigned i = 0; i < alone; ++i) critic();
        IterationDetector& detector = program.detector;
        if (shown && detector.lock()) detector.keep_numbers(detector.begun(), program.time);
        std::optional<unsigned> found_in;
        for (unsigned k = 0; k < 40; ++k) {
          program.begin();
          for (unsigned i = 0; i < critics; ++i) critic();
          for (unsigned i = 0; i < 25; ++i) program.kernel(10 + i % 5, 5);
          program.step(1, {2, 7, 9});
          if (!found_in && detector.lock() && detector.lock()->steps == critics + 1) found_in = k;
        }
        REQUIRE(found_in);
        CHECK(*found_in <= 6);
        // It may have been the generator that came first.
        CHECK(certainty_of(info_of(detector), false) == Certainty::kLow);
        std::size_t begun = 0;
        for (const IterationSpan& span : program.spans) {
          const bool at_begin = std::ranges::find(program.begins, span.first_event) != program.begins.end();
          begun += at_begin;
          if (span.first_event > program.begins[*found_in + 1]) CHECK(at_begin);
        }
        CHECK(begun >= 30);
      }
    }
  }
}

TEST_CASE(
    "where the sequence that follows a critic's own steps ends is not known if its last step comes twice",
    "[steps]") {
  StepSequence steps;
  std::uint64_t position = 0;
  const auto step = [&](std::uint32_t contents) {
    position += 100;
    steps.add({1, contents, position}, position);
  };
  for (unsigned i = 0; i < 20; ++i) step(1);
  for (unsigned i = 0; i < 20; ++i)
    for (const std::uint32_t contents : {1u, 2u, 2u}) step(contents);
  CHECK(*steps.cycle() == StepCycle{3, StepKey::kContents, 0, true});
}

TEST_CASE("another model is followed, and its iterations are counted on", "[steps][iterations]") {
  for (const bool copies : {false, true}) {
    CAPTURE(copies);
    SteppedTraining program;
    for (unsigned model = 0; model < 2; ++model) {
      for (unsigned k = 0; k < 200; ++k) {
        program.begin();
        // What marks the first model's iterations, and is left of it.
        if (copies) program.event(SignKind::kCopyToDevice, 1, 5);
        for (unsigned i = 0; i < 30; ++i) program.kernel(100 + 100 * model + i);
        program.step(copies ? 1 + model : 1, {7, 8});
      }
    }
    REQUIRE(program.detector.lock());
    CHECK(program.detector.changes() > 1);
    CHECK(program.detector.begun() == program.begins.size());
    CHECK(program.difference(250) == "");
  }
}

TEST_CASE("micro-batches that are added later are no phases", "[steps][iterations]") {
  SteppedTraining program;
  for (unsigned k = 0; k < 100; ++k) {
    program.begin();
    for (unsigned batch = 0; batch < (k < 20 ? 1u : 4u); ++batch) {
      program.event(SignKind::kCopyToDevice, 1, 5);
      for (unsigned i = 0; i < 30; ++i) program.kernel(10 + i);
    }
    program.kernel(60);  // gradients are clipped
    program.step(1, {7, 8});
  }
  REQUIRE(program.detector.lock());
  CHECK(program.difference(30) == "");
  CHECK(program.detector.begun() == program.begins.size());
  CHECK(certainty_of(info_of(program.detector), false) == Certainty::kMedium);
}

TEST_CASE("an optimizer that launches more in some of its steps ends an iteration with each",
          "[steps][iterations]") {
  std::mt19937 random(31);
  for (const unsigned every : {2u, 3u, 10u, 100u}) {
    for (const bool any_length : {false, true}) {
      for (const std::uint32_t object : {0u, 7u}) {
        CAPTURE(every, any_length, object);
        SteppedTraining program;
        program.object = object;
        for (unsigned k = 0; k < 6 * every + 100; ++k) {
          program.begin();
          const unsigned length = any_length ? 10 + static_cast<unsigned>(random() % 500) : 1;
          program.event(SignKind::kCopyToDevice, 1, length);
          for (unsigned i = 0; i < 40; ++i) program.kernel(10 + i, length);
          if (k % every == every - 1) {
            program.step(1, {7, 8, 20, 21, 22, 23, 24});
          } else {
            program.step(1, {7, 8});
          }
        }
        REQUIRE(program.detector.lock());
        if (object == 0) {
          const bool each = program.detector.lock()->steps == 1;
          CHECK(certainty_of(info_of(program.detector), false) != Certainty::kHigh);
          if (each) CHECK(program.detector.begun() == program.begins.size());
          continue;
        }
        CHECK(program.detector.lock()->steps == 1);
        CHECK(program.detector.begun() == program.begins.size());
        CHECK(program.difference(program.spans.front().number) == "");
      }
    }
  }
}

TEST_CASE("one optimizer that steps for two models in turn makes one iteration of two steps",
          "[steps][iterations]") {
  SteppedTraining program;
  program.object = 7;
  for (unsigned k = 0; k < 60; ++k) {
    program.begin();
    for (unsigned i = 10; i < 40; ++i) program.kernel(i);
    program.step(1, {7, 8});
    for (unsigned i = 40; i < 60; ++i) program.kernel(i);
    program.step(1, {9});
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 2);
  CHECK(program.difference(2) == "");
}

TEST_CASE("micro-batches that are added later are no iterations", "[steps][iterations]") {
  for (const bool shown : {false, true}) {
    // What the host reads before a step may make it skip the step.
    for (const bool reads : {false, true}) {
      CAPTURE(shown, reads);
      SteppedTraining program;
      program.object = 7;
      for (unsigned k = 0; k < 100; ++k) {
        if (k == 22 && shown) program.detector.keep_numbers(program.detector.begun(), program.time);
        program.begin();
        for (unsigned batch = 0; batch < 1 + k / 20; ++batch) {
          program.event(SignKind::kCopyToDevice, 1, 5);
          for (unsigned i = 0; i < 30; ++i) program.kernel(10 + i);
          if (reads) program.event(SignKind::kCopyToHost, 2, 4);
        }
        if (k != 3) program.step(1, {7, 8});
      }
      REQUIRE(program.detector.lock());
      CHECK(program.detector.lock()->marks.other_anchor == 0);
      CHECK(certainty_of(info_of(program.detector), false) ==
            (shown && reads ? Certainty::kLow : Certainty::kHigh));
      if (!shown && reads) CHECK(program.spans.back().number == program.begins.size() - 3);
      if (reads) continue;
      // Gradients of iterations 3 and 4 make one step.
      CHECK(program.detector.begun() == program.begins.size() - 1);
      std::size_t right = 0;
      for (const IterationSpan& span : program.spans)
        right += !span.phase && std::ranges::binary_search(program.begins, span.first_event);
      CHECK(right >= 97);
    }
  }
}

TEST_CASE("any number of micro-batches in an iteration", "[steps][iterations]") {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u, 5u}) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    SteppedTraining program;
    program.object = 7;
    for (unsigned k = 0; k < 80; ++k) {
      program.begin();
      for (unsigned batch = 0; batch < 1 + random() % 5 / 3; ++batch) {
        program.event(SignKind::kCopyToDevice, 1, 5);
        for (unsigned i = 0; i < 30; ++i) program.kernel(10 + i);
      }
      program.step(1, {7, 8});
    }
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->steps == 1);
    CHECK(program.detector.begun() == program.begins.size());
  }
}

TEST_CASE("work that is added to the backward pass does not move boundaries", "[steps][iterations]") {
  for (const bool reads : {false, true}) {
    CAPTURE(reads);
    SteppedTraining program;
    program.object = 7;
    for (unsigned k = 0; k < 80; ++k) {
      program.begin();
      program.event(SignKind::kCopyToDevice, 1, 5);
      for (unsigned i = 10; i < 40; ++i) program.kernel(i);
      // A frozen part is trained from here on, with the functions of the rest.
      for (unsigned i = 20; i < 40 && k >= 20; ++i) program.kernel(i, 1);
      if (reads) program.event(SignKind::kCopyToHost, 2, 4);
      program.step(1, k < 20 ? std::vector<std::uint64_t>{7} : std::vector<std::uint64_t>{7, 8, 9});
    }
    REQUIRE(program.detector.lock());
    CHECK(program.difference(program.spans.front().number) == "");
    CHECK(program.detector.begun() == program.begins.size());
  }
}

TEST_CASE("a validation is a phase, also if steps launch what iterations begin with", "[steps][iterations]") {
  SteppedTraining program;
  program.object = 7;
  for (unsigned k = 0; k < 80; ++k) {
    program.begin();
    if (k > 20 && k % 20 == 10) {
      for (unsigned batch = 0; batch < 3; ++batch) {
        program.kernel(810, 5);
        for (unsigned i = 10; i < 40; ++i) program.kernel(i);
      }
      program.begins.back() = program.detector.events();
    }
    program.kernel(810, 5);  // as each step does
    for (unsigned i = 10; i < 46; ++i) program.kernel(i);
    program.step(1, {7, 8});
  }
  REQUIRE(program.detector.lock());
  CHECK(program.difference(program.spans.front().number) == "");
  CHECK(std::ranges::count_if(program.spans, &IterationSpan::phase) == 3);
}

TEST_CASE("validation that looks like the forward pass is not counted", "[steps][iterations]") {
  SteppedTraining program;
  program.object = 7;
  const auto forward = [&] {
    program.event(SignKind::kCopyToDevice, 1, 5);
    for (unsigned i = 10; i < 40; ++i) program.kernel(i);
  };
  for (unsigned batch = 0; batch < 10; ++batch) forward();
  for (unsigned k = 0; k < 60; ++k) {
    program.begin();
    forward();
    for (unsigned i = 40; i < 46; ++i) program.kernel(i);
    program.step(1, {7, 8});
  }
  REQUIRE(program.detector.lock());
  CHECK(program.difference(program.spans.front().number) == "");
  CHECK(program.detector.begun() == program.begins.size());
}

TEST_CASE("steps are skipped, however much of an iteration the optimizer launches", "[steps][iterations]") {
  for (const unsigned parameters : {2u, 40u}) {
    for (const unsigned micro_batches : {1u, 2u}) {
      CAPTURE(parameters, micro_batches);
      SteppedTraining program;
      program.object = 7;
      std::vector<std::uint64_t> sizes(parameters);
      std::iota(sizes.begin(), sizes.end(), 7);
      for (unsigned k = 0; k < 80; ++k) {
        program.begin();
        for (unsigned batch = 0; batch < micro_batches; ++batch) {
          program.event(SignKind::kCopyToDevice, 1, 5);
          for (unsigned i = 10; i < 40; ++i) program.kernel(i);
        }
        program.kernel(60);  // are the gradients finite?
        program.event(SignKind::kCopyToHost, 2, 4);
        if (k > 1 && k % 7 != 0) program.step(1, sizes);
        program.kernel(61);  // the scale
      }
      REQUIRE(program.detector.lock());
      CHECK(program.detector.begun() == program.begins.size());
      CHECK(program.spans.back().number == program.begins.size() - 2);
    }
  }
}

TEST_CASE("a new optimizer for each of many short runs makes no iterations of the runs",
          "[steps][iterations]") {
  SteppedTraining program;
  for (unsigned run = 0; run < 12; ++run) {
    program.object = 7 + run;
    for (unsigned k = 0; k < 20; ++k) {
      program.begin();
      program.event(SignKind::kCopyToDevice, 1, 5);
      for (unsigned i = 10; i < 40; ++i) program.kernel(i);
      // The first step also creates the optimizer's state.
      program.step(1, k == 0 ? std::vector<std::uint64_t>{7, 8, 20, 20} : std::vector<std::uint64_t>{7, 8});
    }
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 1);
  CHECK(program.detector.begun() == program.begins.size());
  CHECK(certainty_of(info_of(program.detector), false) == Certainty::kMedium);
}

TEST_CASE("a graph that is captured later, with the step, is an iteration", "[steps][iterations]") {
  SteppedTraining program;
  const auto pass = [&](bool captured) {
    for (unsigned i = 0; i < 300; ++i) program.kernel(10 + i);
    program.step(1, {7, 8}, captured);
  };
  for (unsigned k = 0; k < 15; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 1, 5);
    pass(false);
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->steps == 1);
  pass(true);
  for (unsigned k = 0; k < 100; ++k) {
    program.begin();
    program.event(SignKind::kCopyToDevice, 1, 5);
    program.event(SignKind::kGraph, 800);
  }
  CHECK(program.detector.lock()->steps == 0);
  CHECK(program.detector.changes() == 2);
  CHECK(program.difference(40) == "");
  CHECK(program.detector.begun() == program.begins.size());
  CHECK(certainty_of(info_of(program.detector), false) == Certainty::kLow);
}

TEST_CASE("a step that is made in vain, or right after another one, ends no iteration",
          "[steps][iterations]") {
  for (const bool any_length : {false, true}) {
    for (const bool sparse : {false, true}) {
      CAPTURE(any_length, sparse);
      std::mt19937 random(41);
      SteppedTraining program;
      program.object = 7;
      // As a checkpoint's loading may: an optimizer makes its state with gradients of zero.
      if (!sparse) {
        program.event(SignKind::kMemset, 801, 1);
        program.step(1, {7, 8});
      }
      for (unsigned k = 0; k < 60; ++k) {
        program.begin();
        const unsigned length = any_length ? static_cast<unsigned>(random() % 500) : 1;
        program.event(SignKind::kCopyToDevice, 1, length);
        for (unsigned i = 0; i < 40; ++i) program.kernel(10 + i, length);
        program.object = 7;
        program.step(1, {7, 8});
        if (sparse && k % 25 == 0) {
          program.object = 9;
          program.step(1, {9});
        }
      }
      REQUIRE(program.detector.lock());
      CHECK(program.detector.lock()->steps == 1);
      CHECK(program.detector.begun() == program.begins.size());
      CHECK(program.difference(program.spans.front().number) == "");
    }
  }
}

TEST_CASE("where an iteration ends is a guess if a step may have been skipped before the first one",
          "[steps][iterations]") {
  for (const bool any_length : {false, true}) {
    for (const unsigned skipped : {0u, 1u, 3u}) {
      CAPTURE(any_length, skipped);
      std::mt19937 random(42);
      SteppedTraining program;
      // Parameters are made.
      for (unsigned i = 0; i < 100; ++i) program.kernel(i % 2 == 0 ? 10 : 300, 1000 + i);
      for (unsigned k = 0; k < 60; ++k) {
        program.begin();
        const unsigned length = any_length ? static_cast<unsigned>(random() % 500) : 1;
        program.event(SignKind::kCopyToDevice, 1, length);
        for (unsigned i = 0; i < 30; ++i) program.kernel(10 + i, length);
        program.object = 7;
        if (k >= skipped) program.step(1, {7, 8});
        for (unsigned i = 0; i < 30; ++i) program.kernel(10 + i, length);
        for (unsigned i = 0; i < 20; ++i) program.kernel(50 + i, length);
        program.object = 9;
        program.step(1, {9});
      }
      REQUIRE(program.detector.lock());
      CHECK(program.detector.lock()->steps == 2);
      CHECK((certainty_of(info_of(program.detector), false) == Certainty::kLow) == (skipped != 0));
      if (skipped == 0) CHECK(program.difference(program.spans.front().number) == "");
    }
  }
}

TEST_CASE("a single step that marks an iteration may be one of several optimizers' if these are not known",
          "[steps]") {
  for (const std::uint32_t object : {0u, 7u}) {
    StepSequence steps;
    for (std::uint32_t i = 0; i < 20; ++i) steps.add({1, 1, 100 * i, 3, object}, i);
    CHECK(*steps.cycle() == StepCycle{1, StepKey::kContents, 1});
    CHECK(steps.are_doubtful() == (object == 0));
  }
}
