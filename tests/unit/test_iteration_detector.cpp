// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/iteration_detector.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "libinject/base/mapping.h"
#include "libinject/iterations/iteration_search.h"
#include "libinject/iterations/kernel_names.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr const char* kAdam = "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18FusedAdam";

/// Time between two events: a single one is long enough for an iteration.
constexpr Nanoseconds kApart = 51'000;

/// A program's launches, fed to a detector as they are made; knows where its iterations begin.
class Program {
 public:
  void event(SignKind kind, std::uint64_t function, std::uint64_t size = 0) {
    LaunchSign sign;
    sign.kind = kind;
    sign.thread = thread;
    sign.stream = stream;
    sign.function = hash_mix(function * kHashSeed + 1);
    sign.shape = hash_mix(sign.function + size + 2);
    sign.time = time += apart;
    detector.add(sign);
    if (detector.changes() != changes) {
      changes = detector.changes();
      if (first_locked_in == kNone) first_locked_in = begins.empty() ? 0 : begins.size() - 1;
      locked_in = begins.empty() ? 0 : begins.size() - 1;
      spans.clear();
    }
    for (const IterationSpan& span : detector.take_spans()) spans.push_back(span);
  }
  void kernel(std::uint64_t function, std::uint64_t size = 0) { event(SignKind::kKernel, function, size); }
  void kernels(std::uint64_t first, std::uint64_t last, std::uint64_t size = 0) {
    for (std::uint64_t function = first; function <= last; ++function) kernel(function, size);
  }
  void copy_in(std::uint64_t size = 64) { event(SignKind::kCopyToDevice, 9001, size); }
  void copy_out(std::uint64_t size = 4) { event(SignKind::kCopyToHost, 9002, size); }
  void sync() { event(SignKind::kSync, 9003); }
  void name(std::uint64_t function, const std::string& text) {
    detector.name(hash_mix(function * kHashSeed + 1), text);
  }
  void begin() { begins.push_back(detector.events()); }

  std::map<std::uint64_t, std::uint64_t> told(std::uint64_t from = 0) const {
    std::map<std::uint64_t, std::uint64_t> found;
    for (const IterationSpan& span : spans) {
      if (!span.phase && span.number >= from) found[span.first_event] = span.number;
    }
    return found;
  }
  /// The last one has no end yet.
  std::map<std::uint64_t, std::uint64_t> true_ones(std::uint64_t from = 0) const {
    std::map<std::uint64_t, std::uint64_t> found;
    for (std::uint64_t k = from; k + 1 < begins.size(); ++k) found[begins[k]] = k;
    return found;
  }
  std::vector<std::uint64_t> phases() const {
    std::vector<std::uint64_t> found;
    for (const IterationSpan& span : spans) {
      if (span.phase) found.push_back(span.number);
    }
    return found;
  }

  static constexpr std::size_t kNone = ~std::size_t{0};
  IterationDetector detector;
  Nanoseconds time = 1'000'000;
  Nanoseconds apart = kApart;
  std::uint32_t thread = 1;
  std::uint64_t stream = 1;
  std::vector<std::uint64_t> begins;
  std::vector<IterationSpan> spans;
  std::uint64_t changes = 0;
  std::size_t first_locked_in = kNone;
  std::size_t locked_in = kNone;
};

constexpr std::uint64_t kOptimizer = 500;

/// The optimizer's kernels have numbers from 500 on.
void optimizer(Program& program, unsigned count = 3) {
  program.kernels(kOptimizer, kOptimizer + count - 1);
}
void name_optimizer(Program& program, unsigned count = 3) {
  for (unsigned i = 0; i < count; ++i) program.name(kOptimizer + i, kAdam + std::to_string(i));
}

void check_all(const Program& program, std::uint64_t from = 0) {
  REQUIRE(program.detector.lock());
  CHECK(program.told(from) == program.true_ones(from));
  CHECK(program.detector.begun() == program.begins.size());
  CHECK(program.changes == 1);
}

/// A batch, forward and backward through some layers; reads the loss now and then.
void plain_step(Program& program, std::uint64_t k, unsigned layers = 4) {
  program.copy_in();
  program.kernel(1);
  for (unsigned layer = 0; layer < layers; ++layer) program.kernels(10, 14, layer);
  program.kernels(20, 22);
  for (unsigned layer = layers; layer-- > 0;) program.kernels(30, 36, layer);
  optimizer(program);
  if (k % 10 == 9) {
    program.copy_out();
    program.sync();
  }
}

}  // namespace

TEST_CASE("iterations are those that an optimizer's name ends, layers and all", "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 40; ++k) {
    program.begin();
    plain_step(program, k);
  }
  check_all(program);
  CHECK(program.locked_in <= 5);
  const auto& lock = *program.detector.lock();
  CHECK(lock.optimizer);
  CHECK_FALSE(lock.rough);
  CHECK(lock.events == Approx(2 + 4 * 12 + 3 + 3).epsilon(0.05));
  CHECK(lock.seen_before == program.locked_in);
  CHECK(program.detector.typical_duration() == Approx(56.0 * kApart).epsilon(0.1));
}

TEST_CASE("layers that have the same launch shapes are no iterations", "[iterations]") {
  for (const bool named : {true, false}) {
    CAPTURE(named);
    Program program;
    if (named) name_optimizer(program, 12);
    for (std::uint64_t k = 0; k < 40; ++k) {
      program.begin();
      program.copy_in();
      program.kernels(1, 3);
      for (unsigned layer = 0; layer < 24; ++layer) program.kernels(10, 19);
      program.kernels(4, 6);
      for (unsigned layer = 0; layer < 24; ++layer) program.kernels(20, 34);
      optimizer(program, 12);
    }
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->optimizer == named);
    CHECK(program.told() == program.true_ones());
    CHECK(program.locked_in <= 6);
  }
}

TEST_CASE("what runs before training is no iteration", "[iterations]") {
  Program program;
  name_optimizer(program);
  // Weights are initialised and copied, and a model is tried out.
  for (std::uint64_t i = 0; i < 60; ++i) {
    program.event(SignKind::kMemset, 9100, i % 7);
    program.copy_in(1000 + i % 7);
  }
  for (int i = 0; i < 3; ++i) program.kernels(10, 14, 77);
  program.sync();
  for (std::uint64_t k = 0; k < 30; ++k) {
    program.begin();
    plain_step(program, k);
  }
  check_all(program);
  CHECK(program.locked_in <= 5);
}

TEST_CASE("autotuning in the first iterations", "[iterations]") {
  for (const bool named_tuning : {true, false}) {
    CAPTURE(named_tuning);
    Program program;
    name_optimizer(program);
    if (named_tuning) program.name(700, "delay_kernel");
    for (std::uint64_t k = 0; k < 40; ++k) {
      program.begin();
      program.copy_in();
      program.kernel(1);
      for (unsigned layer = 0; layer < 4; ++layer) {
        if (k < 2) {
          // Each candidate is repeated, with cache flushes in between.
          for (std::uint64_t algorithm = 0; algorithm < 8; ++algorithm) {
            for (unsigned i = 0; i < 20; ++i) {
              program.kernel(700);
              program.kernel(600 + algorithm, layer);
            }
            program.sync();
          }
        }
        program.kernels(10, 14, layer);
      }
      for (unsigned layer = 4; layer-- > 0;) program.kernels(30, 36, layer);
      optimizer(program);
    }
    check_all(program, 2);
    CHECK(program.locked_in <= 2 + 5);
  }
}

TEST_CASE("what a compiler tries out for minutes is no iteration, however regular", "[iterations]") {
  Program program;
  program.name(700, "_ZN3xla5delay_kernelEv");
  program.name(701, "redzone_checker");
  for (std::uint64_t candidate = 0; candidate < 20; ++candidate) {
    for (unsigned i = 0; i < 100; ++i) {
      program.kernel(700);
      program.kernels(1000 + candidate * 10, 1005 + candidate * 10);
      program.kernel(701);
    }
  }
  CHECK_FALSE(program.detector.lock());
  for (std::uint64_t k = 0; k < 40; ++k) {
    program.begin();
    program.copy_in();
    program.kernels(1, 8);
    program.kernels(40, 45);
  }
  check_all(program);
  CHECK(program.locked_in <= 6);
}

TEST_CASE(
    "a kernel that comes twice in an iteration, once where gradients are clipped by names like an "
    "optimizer's",
    "[iterations]") {
  Program program;
  name_optimizer(program);
  program.name(600, "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_12LpNormFunctor");
  for (std::uint64_t k = 0; k < 20; ++k) {
    program.begin();
    program.copy_in();
    program.kernels(10, 40);
    program.kernel(7);  // clamps lengths in the loss
    program.kernels(50, 80);
    program.kernels(600, 603);
    program.kernel(7);  // clamps the norm
    optimizer(program);
  }
  check_all(program);
}

TEST_CASE("gradient accumulation: an iteration has one optimizer's step", "[iterations]") {
  for (const unsigned batches : {2u, 4u, 16u}) {
    CAPTURE(batches);
    Program program;
    name_optimizer(program);
    for (std::uint64_t k = 0; k < 30; ++k) {
      program.begin();
      for (unsigned batch = 0; batch < batches; ++batch) {
        program.copy_in();
        program.kernels(10, 29);
        program.kernels(40, 79);
      }
      optimizer(program);
    }
    check_all(program);
    CHECK(program.locked_in <= 5);
  }
}

TEST_CASE("nothing comes once in an iteration but what it begins with", "[iterations]") {
  Program program;
  name_optimizer(program, 1);
  for (std::uint64_t k = 0; k < 40; ++k) {
    program.begin();
    program.copy_in();
    for (const std::uint64_t function : {1u, 1u, 1u, 2u, 2u}) program.kernel(function);
    optimizer(program, 1);
    optimizer(program, 1);
  }
  check_all(program);
  CHECK(program.first_locked_in <= 5);
}

TEST_CASE("sequences of any length: iterations differ in their number of launches", "[iterations]") {
  Program program;
  name_optimizer(program);
  std::mt19937 random(7);
  for (std::uint64_t k = 0; k < 80; ++k) {
    program.begin();
    const std::uint64_t length = 5 + random() % 40;
    program.copy_in(length);
    program.kernel(1, length);
    for (std::uint64_t i = 0; i < length; ++i) program.kernels(10, 14);
    program.kernels(20, 22, length);
    for (std::uint64_t i = 0; i < length; ++i) program.kernels(30, 36);
    optimizer(program);
  }
  // By function first, by launch shape once enough lengths have come; the same iterations.
  CHECK(program.changes <= 2);
  CHECK(program.first_locked_in <= 5);
  CHECK(program.told() == program.true_ones());
  CHECK(program.detector.begun() == 80);
}

TEST_CASE("shapes that change from one iteration to the next", "[iterations]") {
  Program program;
  name_optimizer(program);
  std::mt19937 random(7);
  for (std::uint64_t k = 0; k < 80; ++k) {
    program.begin();
    const std::uint64_t size = 100 + random() % 1000;
    program.copy_in(size);
    for (unsigned layer = 0; layer < 6; ++layer) program.kernels(10, 14, size);
    for (unsigned layer = 0; layer < 6; ++layer) program.kernels(30, 36, size);
    optimizer(program);
  }
  check_all(program);
  CHECK_FALSE(program.detector.lock()->by_shape);
  CHECK(program.locked_in <= 9);
}

TEST_CASE("loss scaling: iterations whose optimizer is skipped", "[iterations]") {
  Program program;
  name_optimizer(program, 4);
  // An optimizer's kernel checks the gradients first, then the host decides.
  program.name(490, "_ZN2at6native25multi_tensor_apply_kernelIN36_amp_non_finite_check_and_unscale_cuda");
  for (std::uint64_t k = 0; k < 80; ++k) {
    program.begin();
    plain_step(program, 0, 2);
    program.kernel(490);
    program.copy_out(1);
    program.sync();
    const bool skipped = k < 2 || k == 31 || k == 57;
    if (!skipped) program.kernels(510, 515);
    program.kernel(520);  // the scale is adapted
  }
  CHECK(program.told(2) == program.true_ones(2));
  CHECK(program.changes == 1);
}

TEST_CASE("validation and checkpoints between iterations belong to none", "[iterations]") {
  for (const unsigned every : {20u, 7u}) {
    CAPTURE(every);
    Program program;
    name_optimizer(program);
    std::vector<std::uint64_t> validated;
    for (std::uint64_t k = 0; k < 100; ++k) {
      if (k != 0 && k % every == 0) {
        validated.push_back(k);
        for (unsigned batch = 0; batch < 5; ++batch) {
          // Repeats the forward pass.
          program.copy_in();
          program.kernel(1);
          for (unsigned layer = 0; layer < 4; ++layer) program.kernels(10, 14, layer);
          program.kernel(20);
          program.copy_out();
          program.sync();
        }
        for (unsigned tensor = 0; tensor < 12; ++tensor) program.copy_out(1000 + tensor);
      }
      program.begin();
      plain_step(program, 0);
    }
    check_all(program);
    CHECK(program.phases() == validated);
  }
}

TEST_CASE("a checkpoint right after an iteration is told from it by its copies", "[iterations]") {
  for (const unsigned tensors : {10u, 40u}) {
    CAPTURE(tensors);
    Program program;
    name_optimizer(program);
    std::vector<std::uint64_t> saved;
    std::map<std::uint64_t, std::uint64_t> first;
    for (std::uint64_t k = 0; k < 60; ++k) {
      if (k != 0 && k % 20 == 0) {
        saved.push_back(k);
        for (unsigned tensor = 0; tensor < tensors; ++tensor) {
          if (tensor == 0) first[k] = program.detector.events();
          program.copy_out(1000 + tensor);
          program.sync();
        }
      }
      program.begin();
      plain_step(program, 9);
    }
    check_all(program);
    // A few more copies than usual may be anything.
    CHECK(program.phases() == (tensors == 10 ? std::vector<std::uint64_t>{} : saved));
    for (const IterationSpan& span : program.spans) {
      CHECK(span.checkpoint == span.phase);
      // Work that always ends an iteration belongs to it.
      if (span.phase) CHECK(span.first_event == first[span.number]);
    }
  }
}

TEST_CASE("two models that take turns: both together are an iteration", "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 60; ++k) {
    program.begin();
    program.copy_in();
    for (const std::uint64_t model : {1u, 2u}) {
      // The same kernels; only shapes distinguish the models.
      for (unsigned layer = 0; layer < 3; ++layer) program.kernels(10, 14, model * 10 + layer);
      for (unsigned layer = 0; layer < 3; ++layer) program.kernels(30, 36, model * 10 + layer);
      program.kernels(kOptimizer, kOptimizer + 2, model);
    }
  }
  check_all(program);
  CHECK(program.locked_in <= 5);
  CHECK(program.detector.lock()->by_shape);
}

TEST_CASE("a CUDA graph a step, after some iterations without it", "[iterations]") {
  for (const bool named : {false, true}) {
    CAPTURE(named);
    Program program;
    if (named) {
      name_optimizer(program);
      for (unsigned i = 0; i < 3; ++i) plain_step(program, 0);
      program.sync();
    }
    for (std::uint64_t k = 0; k < 60; ++k) {
      program.begin();
      program.copy_in(640);
      program.event(SignKind::kGraph, 800);
      if (k % 10 == 9) {
        program.copy_out(44);
        program.sync();
      }
    }
    check_all(program);
    CHECK(program.locked_in <= 5);
  }
}

TEST_CASE("iterations become graphs once they have been found: counted on", "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 20; ++k) {
    program.begin();
    plain_step(program, 0);
  }
  program.sync();
  for (std::uint64_t k = 0; k < 600; ++k) {
    program.begin();
    program.copy_in(640);
    program.event(SignKind::kGraph, 800);
  }
  REQUIRE(program.changes == 2);
  CHECK(program.told(25).size() == 620 - 25 - 1);
  CHECK(program.told(25) == program.true_ones(25));
}

TEST_CASE("nothing but one graph's launches", "[iterations]") {
  Program program;
  for (std::uint64_t k = 0; k < 60; ++k) {
    program.begin();
    program.event(SignKind::kGraph, 800);
  }
  check_all(program);
  CHECK(program.locked_in <= 8);
}

TEST_CASE("a kernel that is launched over and over is no iteration", "[iterations]") {
  IterationDetector detector;
  LaunchSign sign;
  sign.kind = SignKind::kKernel;
  sign.function = sign.shape = 7;
  for (int i = 0; i < 10'000; ++i) {
    // Visible only in windows, now and then.
    sign.time += i % 100 == 0 ? 1'000'000'000 : 4'000;
    detector.add(sign);
  }
  CHECK_FALSE(detector.lock());
}

TEST_CASE("a thread that loses its processor makes no iterations of its launches", "[iterations]") {
  for (const bool measured : {false, true}) {
    CAPTURE(measured);
    IterationDetector detector;
    LaunchSign sign;
    sign.kind = SignKind::kKernel;
    sign.function = sign.shape = 7;
    // 8 ms between two signs with times: those in between appear to be 0.5 ms apart.
    for (int i = 0; i <= 16; ++i) {
      sign.timed = measured || i % 16 == 0;
      sign.time += 500'000;
      detector.add(sign);
    }
    CHECK(detector.lock().has_value() == measured);
  }
}

TEST_CASE("a few launches and a wait are iterations, though only what follows the wait has a time",
          "[iterations]") {
  IterationDetector detector;
  LaunchSign sign;
  for (std::uint64_t i = 0; i < 60; ++i) {
    sign.function = sign.shape = i % 3 + 1;
    sign.kind = i % 3 == 2 ? SignKind::kSync : SignKind::kKernel;
    sign.timed = i % 3 == 0;
    sign.time += i % 3 == 0 ? 900'000 : 50'000;
    detector.add(sign);
  }
  CHECK(detector.lock());
}

TEST_CASE("several threads launch: forward, backward, data", "[iterations]") {
  Program program;
  name_optimizer(program);
  std::mt19937 random(11);
  for (std::uint64_t k = 0; k < 60; ++k) {
    program.begin();
    program.thread = 1;
    program.kernel(1);
    // A loader copies the next batch at any point; the backward pass runs on its own thread.
    const std::uint64_t at = random() % 40;
    for (std::uint64_t i = 0; i < 40; ++i) {
      if (i == at) {
        program.thread = 3;
        program.event(SignKind::kCopyToDevice, 9011, 512);
      }
      program.thread = i < 15 ? 1 : 2;
      program.kernel(100 + i);
    }
    program.thread = 1;
    optimizer(program);
  }
  check_all(program);
  CHECK(program.locked_in <= 5);
}

TEST_CASE("no names at all: the longest repetition that does more than the shorter ones", "[iterations]") {
  Program program;
  for (std::uint64_t k = 0; k < 60; ++k) {
    program.begin();
    program.copy_in();
    for (unsigned layer = 0; layer < 6; ++layer) program.kernels(10, 14);
    program.kernels(20, 25);
    for (unsigned layer = 0; layer < 6; ++layer) program.kernels(30, 36);
    program.kernels(40, 49);
  }
  REQUIRE(program.detector.lock());
  CHECK_FALSE(program.detector.lock()->optimizer);
  CHECK(program.told() == program.true_ones());
  CHECK(program.detector.begun() == 60);
}

TEST_CASE("without names a validation every few iterations does not make them one", "[iterations]") {
  Program program;
  for (std::uint64_t k = 0; k < 100; ++k) {
    if (k != 0 && k % 5 == 0) {
      for (unsigned batch = 0; batch < 3; ++batch) {
        program.copy_in();
        program.kernels(10, 24);
        program.copy_out();
      }
    }
    program.begin();
    program.copy_in();
    program.kernels(10, 24);
    program.kernels(30, 59);
  }
  REQUIRE(program.detector.lock());
  const auto told = program.told();
  std::size_t exact = 0;
  for (std::size_t k = 0; k + 1 < program.begins.size(); ++k) exact += told.count(program.begins[k]);
  CHECK(exact + 2 >= program.begins.size());
}

TEST_CASE("without names a report after every tenth iteration does not make them one", "[iterations]") {
  // Kernels per iteration; 0: one graph.
  for (const unsigned kernels : {0u, 2u, 4u, 12u}) {
    for (const unsigned small : {0u, 1u, 3u}) {
      for (const bool two_threads : {false, true}) {
        CAPTURE(kernels, small, two_threads);
        Program program;
        for (std::uint64_t k = 0; k < 300; ++k) {
          program.begin();
          program.copy_in();
          if (kernels == 0) program.event(SignKind::kGraph, 800);
          for (unsigned i = 0; i < kernels; ++i) {
            program.thread = two_threads ? 1 + i % 2 : 1;
            program.stream = program.thread;
            program.kernel(10 + i);
          }
          if (k % 10 == 9) {
            for (unsigned i = 0; i < small; ++i) program.kernel(50 + i);
            program.copy_out();
            program.sync();
          }
          program.thread = 1;
          program.stream = 1;
        }
        check_all(program);
      }
    }
  }
}

TEST_CASE("without names a lock on layers gives way to the iteration around them", "[iterations]") {
  // They run alone for a while, as in a warm-up.
  for (const unsigned layers : {4u, 24u}) {
    CAPTURE(layers);
    Program program;
    for (unsigned i = 0; i < 40; ++i) program.kernels(10, 14);
    REQUIRE(program.changes == 1);
    for (std::uint64_t k = 0; k < 60; ++k) {
      program.begin();
      program.copy_in();
      for (unsigned layer = 0; layer < layers; ++layer) program.kernels(10, 14);
      for (unsigned layer = 0; layer < layers; ++layer) program.kernels(30, 36);
      program.kernels(40, 49);
    }
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->events == Approx(11 + 12 * layers).epsilon(0.05));
    const auto told = program.told();
    for (std::size_t k = 40; k + 1 < program.begins.size(); ++k) CHECK(told.count(program.begins[k]) == 1);
  }
}

TEST_CASE("a stream that may begin inside an iteration does not tell where they begin", "[iterations]") {
  for (const bool whole : {true, false}) {
    for (const bool named : {true, false}) {
      CAPTURE(whole, named);
      Program program;
      if (named) name_optimizer(program);
      // The program's preparation.
      if (whole) program.kernels(900, 909);
      for (std::uint64_t k = 0; k < 40; ++k) {
        program.begin();
        // After the optimizer, as for a moving average of the weights.
        if (whole || k != 0) program.kernels(10, 29);
        program.kernels(30, 59);
        optimizer(program);
        program.kernels(60, 69);
      }
      REQUIRE(program.detector.lock());
      CHECK(program.detector.lock()->optimizer == named);
      CHECK(program.detector.lock()->rough == !whole);
      CHECK(certainty_of(info_of(program.detector), false) ==
            (whole && named ? Certainty::kMedium : Certainty::kLow));
    }
  }
}

TEST_CASE("phases before more than one iteration in ten are a reason for doubt", "[iterations]") {
  for (const unsigned every : {20u, 4u}) {
    CAPTURE(every);
    Program program;
    name_optimizer(program);
    for (std::uint64_t k = 0; k < 100; ++k) {
      // The work that begins an iteration, once more.
      if (k != 0 && k % every == 0) {
        program.copy_in();
        program.kernel(1);
      }
      program.begin();
      plain_step(program, 0);
    }
    REQUIRE(program.detector.lock());
    CHECK_FALSE(program.detector.lock()->doubtful);
    CHECK(info_of(program.detector).doubtful == (every == 4));
  }
}

TEST_CASE("a name that comes after its kernel", "[iterations]") {
  // Names are requested after a successful launch and may arrive much later.
  for (const std::uint64_t late : {0u, 1u, 4u, 12u}) {
    CAPTURE(late);
    Program program;
    for (std::uint64_t k = 0; k < 40; ++k) {
      program.begin();
      for (unsigned batch = 0; batch < 4; ++batch) {
        program.copy_in();
        program.kernels(10, 49);
      }
      if (k == late) program.name(10, "_ZN2at6native29vectorized_elementwise_kernel");
      optimizer(program);
      if (k == late) name_optimizer(program);
    }
    REQUIRE(program.detector.lock());
    CHECK(program.detector.lock()->optimizer);
    CHECK(program.told() == program.true_ones());
    CHECK(program.locked_in <= std::max<std::uint64_t>(late, 1) + 5);
  }
}

TEST_CASE("a name is told twice, and one for a kernel that never comes", "[iterations]") {
  Program program;
  name_optimizer(program);
  program.name(kOptimizer, "something_else");
  program.name(12345, "adam");
  for (std::uint64_t k = 0; k < 20; ++k) {
    program.begin();
    plain_step(program, k);
  }
  check_all(program);
  CHECK(program.detector.lock()->optimizer);
}

TEST_CASE("PyTorch before its first optimizer: its layers are no iterations", "[iterations]") {
  Program program;
  for (std::uint64_t i = 10; i < 30; ++i) program.name(i, "_ZN2at6native6vectorI" + std::to_string(i));
  // For example an inference over a data set, but short.
  for (unsigned i = 0; i < 40; ++i) program.kernels(10, 29);
  CHECK_FALSE(program.detector.lock());
}

TEST_CASE("one program after another in a process: the second one's iterations are counted on",
          "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 40; ++k) {
    program.begin();
    plain_step(program, k);
  }
  for (std::uint64_t i = 0; i < 3; ++i)
    program.name(kOptimizer + 40 + i, kAdam + std::to_string(i) + "again");
  for (std::uint64_t k = 0; k < 60; ++k) {
    program.begin();
    program.copy_in(99);
    program.kernels(200, 260);
    program.kernels(kOptimizer + 40, kOptimizer + 42);
  }
  REQUIRE(program.changes == 2);
  CHECK(program.detector.begun() == 100);
  CHECK(program.told(41) == program.true_ones(41));
}

TEST_CASE("what was taken for iterations before the optimizer showed does not count", "[iterations]") {
  Program program;
  // The weights are initialised: four kernels repeatedly.
  for (unsigned i = 0; i < 60; ++i) program.kernels(300, 303);
  REQUIRE(program.changes == 1);
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 40; ++k) {
    program.begin();
    plain_step(program, k);
  }
  CHECK(program.changes == 2);
  CHECK(program.told() == program.true_ones());
  CHECK(program.detector.begun() == 40);
}

TEST_CASE("a changed lock gives none of the numbers that were shown", "[iterations]") {
  Program program;
  for (unsigned i = 0; i < 60; ++i) program.kernels(300, 303);
  REQUIRE(program.changes == 1);
  const std::uint64_t shown = program.detector.begun();
  REQUIRE(shown > 50);
  name_optimizer(program);
  SECTION("all that began so far") {
    program.detector.keep_numbers(shown, program.time);
    for (std::uint64_t k = 0; k < 40; ++k) {
      program.begin();
      plain_step(program, k);
    }
    REQUIRE(program.changes == 2);
    CHECK(program.detector.begun() == shown + 40);
    CHECK(program.told().at(program.begins[5]) == shown + 5);
  }
  SECTION("the last one while it is in progress") {
    const auto step = [&](std::uint64_t k) {
      program.begin();
      plain_step(program, k);
    };
    step(0);
    REQUIRE(program.changes == 1);
    program.detector.keep_numbers(shown, program.time);
    for (std::uint64_t k = 1; k < 40; ++k) step(k);
    REQUIRE(program.changes == 2);
    // Iteration 0 began before that time: its row exists, under the old lock's number.
    CHECK(program.told().at(program.begins[1]) == shown);
    CHECK(program.detector.begun() == shown + 39);
  }
}

TEST_CASE("iterations of which most signs were lost have numbers of their own", "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 6; ++k) {
    program.begin();
    program.copy_in();
    optimizer(program);
  }
  for (std::uint64_t k = 6; k < 30; ++k) {
    program.begin();
    plain_step(program, k);
  }
  std::uint64_t next = 0;
  for (const IterationSpan& span : program.spans) CHECK(span.number == next++);
  CHECK(program.detector.begun() == next + 1);
}

TEST_CASE("work without a period is no training, and the report says what was seen", "[iterations]") {
  Program program;
  std::mt19937 random(3);
  for (unsigned i = 0; i < 50'000; ++i) program.kernel(random() % 200, random() % 50);
  for (unsigned i = 0; i < 10; ++i) program.copy_out(i);
  CHECK_FALSE(program.detector.lock());
  CHECK(program.detector.begun() == 0);
  CHECK_FALSE(program.detector.trailing_span());
  const std::string report = program.detector.report();
  CHECK(report.find("50010 launches, copies and synchronizations") != std::string::npos);
  CHECK(report.find("(50000 launches") != std::string::npos);
  CHECK(report.find("none of a known optimizer") != std::string::npos);
}

TEST_CASE("one kernel over and over is no training, even where some launches of it take their time",
          "[iterations]") {
  Program program;
  program.apart = 3'000;
  for (unsigned round = 0; round < 6; ++round) {
    for (unsigned i = 0; i < 2'000; ++i) program.kernel(1);
    program.apart = 60'000;  // for example, many threads begin at once
    for (unsigned i = 0; i < 24; ++i) program.kernel(1);
    program.apart = 3'000;
  }
  CHECK_FALSE(program.detector.lock());
  // A step that takes long enough counts, however few its launches.
  program.apart = 60'000;
  for (unsigned i = 0; i < 200; ++i) program.kernel(1);
  CHECK(program.detector.lock());
}

TEST_CASE("a kernel a few times in a row is no iteration, however long each launch takes", "[iterations]") {
  for (unsigned times = 2; times <= 4; ++times) {
    Program program;
    for (std::uint64_t k = 0; k < 40; ++k) {
      program.begin();
      program.copy_in();
      for (unsigned i = 0; i < times; ++i) program.kernel(1);
      program.kernels(10, 13);
    }
    CAPTURE(times);
    check_all(program);
  }
}

TEST_CASE("iterations after a long time without any", "[iterations]") {
  Program program;
  std::mt19937 random(7);
  for (int i = 0; i < 120'000; ++i) program.kernel(1000 + random() % 40, random() % 64);
  REQUIRE_FALSE(program.detector.lock());
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 60; ++k) {
    program.begin();
    plain_step(program, k, 40);
  }
  REQUIRE(program.detector.lock());
  CHECK(program.detector.lock()->optimizer);
  CHECK(program.first_locked_in < 40);
  CHECK(program.told(50).size() >= 9);
  for (const auto& [event, number] : program.told(50)) {
    CHECK(std::ranges::find(program.begins, event) != program.begins.end());
  }
}

TEST_CASE("an optimizer that was seen without iterations is in the report", "[iterations]") {
  Program program;
  name_optimizer(program);
  optimizer(program);
  CHECK_FALSE(program.detector.lock());
  CHECK(program.detector.report().find("some of an optimizer") != std::string::npos);
}

TEST_CASE("copies and synchronizations alone are no iterations", "[iterations]") {
  Program program;
  for (unsigned i = 0; i < 3000; ++i) {
    program.copy_in();
    program.copy_out();
    program.sync();
  }
  CHECK_FALSE(program.detector.lock());
}

TEST_CASE("marks, names and boundaries are no events", "[iterations]") {
  Program program;
  for (const SignKind kind : {SignKind::kMark, SignKind::kName, SignKind::kBoundary}) program.event(kind, 5);
  CHECK(program.detector.events() == 0);
  CHECK(program.detector.kinds() == 1);
}

TEST_CASE("what has ended with the stream is told apart from what is cut", "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 20; ++k) {
    program.begin();
    plain_step(program, 0);
  }
  const auto trailing = program.detector.trailing_span();
  REQUIRE(trailing);
  CHECK(trailing->first_event == program.begins.back());
  CHECK(trailing->number == 19);
  CHECK(trailing->end == program.time);
  program.copy_in();
  program.kernels(1, 1);
  program.kernels(10, 14);
  CHECK_FALSE(program.detector.trailing_span());
}

TEST_CASE("spans are in order, touch each other, and their times are their events'", "[iterations]") {
  Program program;
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 40; ++k) {
    if (k == 25) {
      for (unsigned batch = 0; batch < 3; ++batch) {
        program.copy_in();
        program.kernel(1);
        for (unsigned layer = 0; layer < 4; ++layer) program.kernels(10, 14, layer);
        program.copy_out();
      }
    }
    program.begin();
    plain_step(program, 0);
  }
  REQUIRE(program.spans.size() > 30);
  for (std::size_t i = 0; i < program.spans.size(); ++i) {
    const IterationSpan& span = program.spans[i];
    CHECK(span.begin == 1'000'000 + kApart * (span.first_event + 1));
    CHECK(span.last_event_time >= span.begin);
    CHECK(span.last_event_time < span.end);
    if (i == 0) continue;
    CHECK(program.spans[i - 1].end == span.begin);
    CHECK(span.number == program.spans[i - 1].number + (program.spans[i - 1].phase ? 0 : 1));
  }
}

namespace {
std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}
}  // namespace

TEST_CASE("more kinds of events than there is room for, and more events", "[iterations]") {
  Program program;
  name_optimizer(program);
  // A different shape for each launch, as where sizes depend on the data.
  std::uint64_t fresh = 0;
  const auto step = [&](std::uint64_t k) {
    program.begin();
    program.copy_in(++fresh);
    for (unsigned layer = 0; layer < 100; ++layer) {
      program.kernels(10, 14, ++fresh);
      program.kernels(30, 34, ++fresh);
    }
    optimizer(program);
    if (k % 10 == 9) program.copy_out();
  };
  std::uint64_t k = 0;
  for (; program.detector.events() < (std::uint64_t{1} << 20) + 1000; ++k) step(k);
  CHECK(program.detector.kinds() == std::size_t{1} << 17);
  const std::size_t before = resident_bytes();
  for (; program.detector.events() < std::uint64_t{3} << 19; ++k) step(k);
  CHECK(program.detector.kinds() == std::size_t{1} << 17);
#ifndef __SANITIZE_ADDRESS__
  // The test's own vectors grow as well.
  CHECK(resident_bytes() < before + (std::size_t{16} << 20));
#else
  CHECK(before != 0);
#endif
  CHECK(program.told() == program.true_ones());
  CHECK(program.locked_in <= 9);
}

TEST_CASE("iterations that begin when there is no room for their kinds are found by function",
          "[iterations]") {
  Program program;
  for (std::uint64_t i = 0; i < (std::uint64_t{1} << 17) - 200; ++i) program.copy_in(1000 + i);
  CHECK_FALSE(program.detector.lock());
  name_optimizer(program);
  for (std::uint64_t k = 0; k < 200; ++k) {
    program.begin();
    program.copy_in(64);
    program.kernels(10, 39, k);
    optimizer(program);
  }
  CHECK(program.detector.kinds() == std::size_t{1} << 17);
  REQUIRE(program.detector.lock());
  CHECK(program.told() == program.true_ones());
}

TEST_CASE("iterations longer than the history are found not, and harm nothing", "[iterations]") {
  Program program;
  for (unsigned k = 0; k < 3; ++k) {
    for (std::uint64_t i = 0; i < 400'000; ++i) program.kernel(i * i % 7919);
  }
  CHECK(program.detector.events() == 1'200'000);
}

TEST_CASE("an optimizer's kernels are known by their names", "[iterations]") {
  for (const char* name :
       {"_ZN2at6native57_GLOBAL__N__e658eeb9_24_ForeachBinaryOpScalar_cu_86b9896c25multi_tensor_apply_"
        "kernelINS1_"
        "18TensorListMetadataILi1EEENS1_21BinaryOpScalarFunctorIfLi1ELi1ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_",
        "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>",
        "triton_poi_fused_adam_3", "sgd_update", "_Z13SGDStepKernelPf", "adagrad_kernel", "RMSProp_update",
        "apply_gradients", "update_weights_kernel", "_Z9optimizerv", "fusedLAMB_stage1",
        "_lion_update_kernel", "lars_update", "_Z11lamb_stage2Pf"})
    CHECK(is_optimizer_name(name));
  for (const char* name :
       {"", "k", "ampere_sgemm_128x64_nt",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi1EEENS1_"
        "11ZeroFunctorIfLi1E",
        "_ZN2at6native55_GLOBAL__N__86b9896c_22_ForeachBinaryOpList_cu_e658eeb925multi_tensor_apply_"
        "kernelINS1_"
        "18TensorListMetadataILi2EEENS1_11CopyFunctorIfffLi2ELi1ELi1EEEJNS0_4CopyIffEEEEEvT_T0_DpT1_",
        "void at::native::multi_tensor_apply_kernel<at::native::UnaryOpFunctor<c10::BFloat16, 2, 1, 1>, "
        "at::native::Copy<c10::BFloat16, c10::BFloat16>>",
        "split_scalars_kernel", "million_steps", "compute_flamb_", "cudnn::bn_fw_tr_1C11_kernel_NCHW",
        "softmax_warp_forward", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "loop_add_fusion"})
    CHECK_FALSE(is_optimizer_name(name));
  // Only the first part of a long name is examined.
  CHECK_FALSE(is_optimizer_name(std::string(1 << 20, 'x') + "adam"));
}

TEST_CASE("kernels that choose among others are known by their names", "[iterations]") {
  for (const char* name : {"_ZN15stream_executor3gpu12delay_kernelENS0_12GpuSemaphoreES1_", "redzone_checker",
                           "void xla_fp_comparison<float>", "RepeatBufferKernel"})
    CHECK(is_tuning_name(name));
  for (const char* name : {"", "delay", "loop_add_fusion", "input_reduce_fusion"})
    CHECK_FALSE(is_tuning_name(name));
}
