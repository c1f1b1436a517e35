// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Timed kernels, joined to kernels whose places are known: generated programs in which every kernel's place
// is known.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "libinject/analysis/place_join.h"
#include "libinject/model/code_place.h"

namespace inject {
namespace {

struct Placed {
  LaunchedKernel kernel;
  std::uint32_t place = 0;
};
using Iteration = std::vector<Placed>;

/// A model: parts before and after equal layers, with one thread for the forward and one for the backward
/// pass.
class Model {
 public:
  explicit Model(std::uint32_t seed) : random_(seed) {
    layers_ = 1 + number(24);
    for (std::uint32_t i = 0, most = number(6); i < most; ++i) layer_.push_back(number(6));
    for (std::uint32_t i = 0, most = number(5); i < most; ++i) stem_.push_back(10 + number(3));
    for (std::uint32_t i = 0, most = number(5); i < most; ++i) head_.push_back(20 + number(3));
  }

  /// `size`: of the input, on which kernels' launch shapes depend; `skipped`: a layer, -1 for none; `chosen`:
  /// the library's choice of kernels for that size, for one in `every` kinds of kernel.
  Iteration iteration(std::uint32_t size = 0, int skipped = -1, std::uint32_t chosen = 0,
                      std::uint32_t every = 2) const {
    Iteration made;
    std::uint32_t place = 0;
    const auto add = [&](std::uint32_t kernel, std::uint32_t thread, bool left_out) {
      ++place;
      if (left_out) return;
      const bool has_choice = chosen != 0 && kernel % every == 0;
      const std::uint32_t name = has_choice ? 5000 + 10 * kernel + chosen : kernel;
      // A second kernel, like one that adds up partial results of the first.
      for (std::uint32_t i = 0; i < (has_choice && chosen % 2 == 0 ? 2u : 1u); ++i)
        made.push_back(
            {{(name + 3000 * i) * 1000 + size, name + 3000 * i, thread, 0, 1 + kernel % 4}, place});
    };
    for (const std::uint32_t thread : {1u, 2u}) {
      for (const std::uint32_t kernel : stem_) add(kernel + 100 * thread, thread, false);
      for (std::uint32_t layer = 0; layer < layers_; ++layer)
        for (const std::uint32_t kernel : layer_)
          add(kernel + 100 * thread, thread, static_cast<int>(layer) == skipped);
      for (const std::uint32_t kernel : head_) add(kernel + 100 * thread, thread, false);
    }
    return made;
  }

  std::uint32_t layers() const { return layers_; }
  /// A random number below `most`.
  std::uint32_t below(std::uint32_t most) { return static_cast<std::uint32_t>(random_() % most); }

 private:
  std::uint32_t number(std::uint32_t most) { return 1 + below(most); }

  std::mt19937 random_;
  std::uint32_t layers_ = 0;
  std::vector<std::uint32_t> layer_;
  std::vector<std::uint32_t> stem_;
  std::vector<std::uint32_t> head_;
};

std::vector<std::uint32_t> places_of(const std::vector<LaunchedKernel>& timed,
                                     const std::vector<LaunchedKernel>& named,
                                     const std::vector<std::uint32_t>& places) {
  std::vector<std::uint32_t> found;
  for (const JoinedPlace& joined : join_places(timed, named, places)) {
    found.push_back(joined.place);
    // It was compared with a kernel of the same kind.
    if (joined.place != 0) CHECK((joined.named < named.size() || joined.named == JoinedPlace::kNone));
    if (joined.named < named.size()) CHECK(named[joined.named].coarse == timed[found.size() - 1].coarse);
  }
  return found;
}

struct Outcome {
  std::size_t right = 0;
  std::size_t wrong = 0;
  std::size_t silent = 0;

  Outcome& operator+=(const Outcome& other) {
    right += other.right;
    wrong += other.wrong;
    silent += other.silent;
    return *this;
  }
  std::string text() const {
    return std::to_string(right) + " right, " + std::to_string(wrong) + " wrong, " + std::to_string(silent) +
           " without a place";
  }
  double known() const {
    return static_cast<double>(right) / static_cast<double>(std::max<std::size_t>(right + wrong + silent, 1));
  }
};

Outcome join(const std::vector<Iteration>& timed, const std::vector<Iteration>& named) {
  const auto all = [](const std::vector<Iteration>& iterations, std::vector<std::uint32_t>& places) {
    std::vector<LaunchedKernel> kernels;
    for (std::size_t i = 0; i < iterations.size(); ++i) {
      for (Placed placed : iterations[i]) {
        placed.kernel.iteration = static_cast<std::uint32_t>(i);
        kernels.push_back(placed.kernel);
        places.push_back(placed.place);
      }
    }
    return kernels;
  };
  std::vector<std::uint32_t> truth;
  std::vector<std::uint32_t> places;
  const std::vector<LaunchedKernel> timed_kernels = all(timed, truth);
  const std::vector<LaunchedKernel> named_kernels = all(named, places);
  const std::vector<std::uint32_t> found = places_of(timed_kernels, named_kernels, places);
  REQUIRE(found.size() == truth.size());
  Outcome outcome;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == 0) {
      ++outcome.silent;
    } else {
      ++(found[i] == truth[i] ? outcome.right : outcome.wrong);
    }
  }
  return outcome;
}

constexpr std::uint32_t kSeeds = 200;
constexpr std::uint32_t kElsewhere = 100'000;  // a place outside of the model

/// A program of launches, loops and branches. Each launch has a place for each repetition of its loops.
class BranchingProgram {
 public:
  enum class Branches { kNone, kElementwise, kProducts };

  BranchingProgram(std::uint32_t seed, Branches branches) : random_(seed), branches_(branches) {
    body_ = block(0);
    for (Statement& statement : block(0)) body_.push_back(std::move(statement));
  }

  Iteration iteration() {
    Iteration made;
    std::uint32_t place = 0;
    execute(body_, made, place);
    return made;
  }
  std::size_t below(std::size_t most) { return random_() % most; }

 private:
  struct Statement {
    LaunchedKernel kernel;             // if there is nothing else
    std::size_t times = 0;             // of a loop
    std::size_t taken = 0;             // of a branch: how often, in percent
    std::vector<Statement> body = {};  // of the loop; or the branch that is taken
    std::vector<Statement> otherwise = {};
  };

  static constexpr std::size_t kElementwiseKinds = 12;
  static constexpr std::size_t kReductionKinds = 4;
  static constexpr std::size_t kProductKinds = 4;

  Statement launch(std::size_t kind) {
    const auto number = static_cast<std::uint32_t>(kind);
    const bool is_product = kind >= kElementwiseKinds + kReductionKinds;
    const std::uint32_t family = is_product ? 3 : kind < kElementwiseKinds ? 1 : 2;
    return {{number * 10 + static_cast<std::uint32_t>(below(3)), is_product ? 1000 : number, 1, 0, family}};
  }

  std::vector<Statement> side() {
    std::vector<Statement> launches;
    for (std::size_t most = 1 + below(2); launches.size() < most;)
      launches.push_back(launch(branches_ == Branches::kElementwise
                                    ? below(kElementwiseKinds)
                                    : kElementwiseKinds + kReductionKinds + below(kProductKinds)));
    return launches;
  }

  std::vector<Statement> block(int depth) {
    std::vector<Statement> statements;
    for (std::size_t most = 2 + below(5); statements.size() < most;) {
      const std::size_t which = below(20);
      Statement made;
      if (which < 3 && depth < 2) {
        made.times = 2 + below(6);
        made.body = block(depth + 1);
      } else if (which == 3 && branches_ != Branches::kNone) {
        made.taken = 10 + below(80);
        made.body = side();
        made.otherwise = side();
        if (branches_ == Branches::kProducts) made.otherwise.resize(made.body.size(), made.otherwise[0]);
      } else {
        made = launch(below(kElementwiseKinds + kReductionKinds + kProductKinds));
      }
      statements.push_back(std::move(made));
    }
    return statements;
  }

  static std::uint32_t launches_of(const std::vector<Statement>& statements) {
    std::uint32_t sum = 0;
    for (const Statement& one : statements) {
      const std::uint32_t inside = launches_of(one.body) + launches_of(one.otherwise);
      sum += one.body.empty() ? 1 : inside * static_cast<std::uint32_t>(std::max<std::size_t>(one.times, 1));
    }
    return sum;
  }

  void execute(const std::vector<Statement>& statements, Iteration& made, std::uint32_t& place) {
    for (const Statement& one : statements) {
      if (one.body.empty()) {
        made.push_back({one.kernel, ++place});
      } else if (one.times != 0) {
        for (std::size_t i = 0; i < one.times; ++i) execute(one.body, made, place);
      } else {
        const bool is_taken = below(100) < one.taken;
        const std::uint32_t end = place + launches_of(one.body) + launches_of(one.otherwise);
        if (!is_taken) place += launches_of(one.body);
        execute(is_taken ? one.body : one.otherwise, made, place);
        place = end;
      }
    }
  }

  std::mt19937 random_;
  Branches branches_;
  std::vector<Statement> body_;
};

}  // namespace

TEST_CASE("Equal iterations: every kernel has its place, equal layers as well", "[place_join]") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Model model(seed);
    const Outcome outcome = join(std::vector(5, model.iteration()), std::vector(2, model.iteration()));
    CHECK(outcome.wrong == 0);
    CHECK(outcome.silent == 0);
  }
}

TEST_CASE("Sizes that differ from iteration to iteration are joined by what they have in common",
          "[place_join]") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    std::vector<Iteration> timed;
    for (int i = 0; i < 4; ++i) timed.push_back(model.iteration(1 + model.below(500)));
    const Outcome outcome = join(timed, {model.iteration(501), model.iteration(502)});
    CHECK(outcome.wrong == 0);
    CHECK(outcome.silent == 0);
  }
}

TEST_CASE("Kernels that are added or missing leave the others their places, or none", "[place_join]") {
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    std::vector<Iteration> timed;
    for (int i = 0; i < 4; ++i) {
      Iteration iteration = model.iteration();
      // Inserts a report's kernels, which may be of the model's kinds, or removes some as if their records
      // were lost.
      const auto at =
          static_cast<std::ptrdiff_t>(model.below(static_cast<std::uint32_t>(iteration.size()) + 1));
      const auto most = static_cast<std::ptrdiff_t>(1 + model.below(4));
      if (i % 2 == 0) {
        for (std::ptrdiff_t k = 0; k < most; ++k) {
          const std::uint32_t kind = 101 + model.below(6);
          iteration.insert(iteration.begin() + at,
                           {{kind * 1000 + (i == 0 ? 7u : 0u), kind, 1, 0}, kElsewhere});
        }
      } else {
        const auto end = std::min(at + most, static_cast<std::ptrdiff_t>(iteration.size()));
        iteration.erase(iteration.begin() + at, iteration.begin() + end);
      }
      timed.push_back(std::move(iteration));
    }
    all += join(timed, std::vector(2, model.iteration()));
  }
  INFO(all.text());
  CHECK(all.wrong == 0);
  CHECK(all.known() > 0.9);
}

TEST_CASE("Where several blocks of an iteration are lost, no kernel has a wrong place", "[place_join]") {
  const std::size_t lost = GENERATE(1u, 2u, 3u);
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    BranchingProgram program(seed, BranchingProgram::Branches::kNone);
    std::vector<Iteration> timed;
    for (int i = 0; i < 4; ++i) {
      Iteration iteration = program.iteration();
      for (std::size_t k = 0; k < lost && iteration.size() > 3; ++k) {
        const std::size_t at = program.below(iteration.size());
        const std::size_t end = std::min(iteration.size(), at + 1 + program.below(6));
        iteration.erase(iteration.begin() + static_cast<std::ptrdiff_t>(at),
                        iteration.begin() + static_cast<std::ptrdiff_t>(end));
      }
      timed.push_back(std::move(iteration));
    }
    all += join(timed, std::vector(2, program.iteration()));
  }
  INFO(all.text());
  CHECK(all.wrong == 0);
  CHECK(all.known() > (lost == 1 ? 0.95 : lost == 2 ? 0.6 : 0.4));
}

TEST_CASE("A kernel of another branch rarely has the place of the branch that was named", "[place_join]") {
  const auto branches =
      GENERATE(BranchingProgram::Branches::kElementwise, BranchingProgram::Branches::kProducts);
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    BranchingProgram program(seed, branches);
    std::vector<Iteration> timed;
    for (int i = 0; i < 4; ++i) timed.push_back(program.iteration());
    all += join(timed, {program.iteration(), program.iteration()});
  }
  INFO(all.text());
  // The products of two branches cannot be told from one another if there are several in a row.
  const double most = branches == BranchingProgram::Branches::kProducts ? 0.01 : 0.002;
  CHECK(static_cast<double>(all.wrong) < most * static_cast<double>(all.right));
  CHECK(all.known() > 0.8);
}

TEST_CASE("Where two kernels are left out, those between them have no other's place", "[place_join]") {
  const auto kernels = [](const std::string& letters) {
    std::vector<LaunchedKernel> made;
    for (const char letter : letters) {
      const auto number = static_cast<std::uint32_t>(letter);
      made.push_back({number, number, 1, 0, 0});
    }
    return made;
  };
  const auto places = [&](const std::string& timed, const std::string& named) {
    std::vector<std::uint32_t> known(named.size());
    std::iota(known.begin(), known.end(), 1u);
    return places_of(kernels(timed), kernels(named), known);
  };
  CHECK(places("axbce", "axxbcde") == std::vector<std::uint32_t>{1, 0, 4, 5, 7});
  CHECK(places("iabababhz", "iababababhlz") == std::vector<std::uint32_t>{1, 0, 0, 0, 0, 0, 0, 10, 12});
  // However far apart they are.
  std::string layers;
  for (int i = 0; i < 500; ++i) layers += "ab";
  const std::vector<std::uint32_t> found = places("s" + layers + "hz", "s" + layers + "abhlz");
  CHECK(found.front() == 1);
  CHECK(std::count(found.begin(), found.end(), 0u) == 1000);
  CHECK(found.back() == 1006);
}

TEST_CASE("A kernel that alone is another one belongs to another branch", "[place_join]") {
  const auto places = [](const std::vector<LaunchedKernel>& timed, std::vector<LaunchedKernel> named,
                         const LaunchedKernel& again) {
    named.insert(named.end(), {{1, 1, 1, 1, 1}, again, {3, 3, 1, 1, 1}});
    return places_of(timed, named, {1, 2, 3, 1, 2, 3});
  };
  const std::vector<LaunchedKernel> named = {{1, 1, 1, 0, 1}, {20, 2, 1, 0, 1}, {3, 3, 1, 0, 1}};
  const LaunchedKernel same = {20, 2, 1, 1, 1};
  using Places = std::vector<std::uint32_t>;
  // Of the same family, or even alike.
  CHECK(places({{1, 1, 1, 2, 1}, {9, 9, 1, 2, 1}, {3, 3, 1, 2, 1}}, named, same) == Places{1, 0, 3});
  CHECK(places({{1, 1, 1, 2, 1}, {21, 2, 1, 2, 1}, {3, 3, 1, 2, 1}}, named, same) == Places{1, 0, 3});
  // But not if its size varies in the named iterations, or another one's does.
  CHECK(places({{1, 1, 1, 2, 1}, {21, 2, 1, 2, 1}, {3, 3, 1, 2, 1}}, named, {22, 2, 1, 1, 1}) ==
        Places{1, 2, 3});
  CHECK(places({{1, 1, 1, 2, 1}, {21, 2, 1, 2, 1}, {33, 3, 1, 2, 1}}, named, same) == Places{1, 2, 3});
}

TEST_CASE("Other kernels that libraries choose for other sizes have the places of those they replace",
          "[place_join]") {
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    const std::uint32_t every = 2 + model.below(4);
    std::vector<Iteration> timed;
    for (std::uint32_t i = 0; i < 4; ++i)
      timed.push_back(model.iteration(1 + model.below(500), -1, model.below(4), every));
    all += join(timed, {model.iteration(501, -1, model.below(4), every),
                        model.iteration(502, -1, model.below(4), every)});
  }
  INFO(all.text());
  CHECK(all.wrong == 0);
  CHECK(all.known() > 0.85);
}

TEST_CASE("What prepares weights is the same for every size, and tells nothing of others", "[place_join]") {
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    // Each launch of some kernels is between two that cast weights, as products are in mixed precision.
    const std::uint32_t cast = 2 + model.below(2);
    const auto iteration = [&](std::uint32_t size) {
      Iteration made;
      for (const Placed& one : model.iteration(size)) {
        const bool has_weights = one.kernel.coarse % cast == 0;
        const auto add = [&](std::uint32_t name, std::uint32_t place) {
          made.push_back({{name, name, one.kernel.thread, 0, 7}, place});
        };
        if (has_weights) add(1'000'000'000, 1000 + 2 * one.place);
        made.push_back(one);
        if (has_weights) add(1'000'000'001, 1001 + 2 * one.place);
      }
      // A kernel of another name for each size, so that no two iterations are alike.
      made.push_back({{2'000'000'000 + size, 2'000'000'000 + size, 1, 0, 8}, 999});
      return made;
    };
    all += join({iteration(1), iteration(2), iteration(3)}, {iteration(4), iteration(5)});
  }
  INFO(all.text());
  CHECK(all.wrong == 0);
  CHECK(all.known() > 0.9);
}

TEST_CASE("Where another algorithm is taken somewhere, replaced kernels elsewhere keep their places",
          "[place_join]") {
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    const std::uint32_t every = 2 + model.below(4);
    std::vector<Iteration> timed;
    for (std::uint32_t i = 0; i < 4; ++i) {
      Iteration iteration = model.iteration(1 + model.below(500), -1, model.below(4), every);
      // One kernel for few rows; a sort and what follows it for many.
      const auto at = static_cast<std::ptrdiff_t>(model.below(static_cast<std::uint32_t>(iteration.size())));
      const Placed simple = iteration[static_cast<std::size_t>(at)];
      iteration.erase(iteration.begin() + at);
      for (std::uint32_t k = 0, most = 2 + model.below(20); k < most; ++k) {
        const std::uint32_t kind = 9000 + model.below(4);
        iteration.insert(iteration.begin() + at,
                         {{kind * 1000, kind, simple.kernel.thread, 0, 0}, simple.place});
      }
      timed.push_back(std::move(iteration));
    }
    all += join(timed, {model.iteration(501, -1, model.below(4), every),
                        model.iteration(502, -1, model.below(4), every)});
  }
  INFO(all.text());
  CHECK(all.wrong == 0);
  CHECK(all.known() > 0.7);
}

TEST_CASE("Of another program's iteration few kernels are taken for those that are named", "[place_join]") {
  Outcome all;
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Model model(seed);
    Iteration other = Model(seed + kSeeds).iteration();
    for (Placed& placed : other) placed.place += kElsewhere;
    all += join({other}, std::vector(2, model.iteration()));
  }
  // There are few kinds here, so some iterations begin or end alike.
  INFO(all.text());
  CHECK(all.right == 0);
  CHECK(static_cast<double>(all.wrong) < 0.05 * static_cast<double>(all.silent));
}

TEST_CASE("Long sequences are joined within bounds", "[place_join]") {
  // Of 20,000 kernels every fifth differs, more than is compared.
  std::vector<LaunchedKernel> timed;
  std::vector<LaunchedKernel> named;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    named.push_back({i % 7, i % 7, 1, 0, 1});
    timed.push_back({i % 5 == 3 ? 100 + i % 3 : i % 7, i % 5 == 3 ? 100 + i % 3 : i % 7, 1, 0, 1});
  }
  std::vector<std::uint32_t> places(named.size());
  std::iota(places.begin(), places.end(), 1u);
  const std::vector<std::uint32_t> found = places_of(timed, named, places);
  for (std::size_t i = 0; i < found.size(); ++i) CHECK((found[i] == 0 || found[i] == places[i]));
}

TEST_CASE("A layer that is left out makes its like doubtful, unless it is always the same one",
          "[place_join]") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    Model model(seed);
    const auto some_layer = [&] { return static_cast<int>(model.below(model.layers())); };
    // The named iterations have all layers.
    const Outcome outcome = join({model.iteration(0, some_layer()), model.iteration(0, some_layer())},
                                 std::vector(2, model.iteration()));
    CHECK(outcome.wrong == 0);
    // Or each lacks a different layer.
    const int first = some_layer();
    const Outcome others = join({model.iteration(), model.iteration()},
                                {model.iteration(0, first), model.iteration(0, some_layer())});
    CHECK(others.wrong == 0);
  }
}

TEST_CASE("Iterations that take turns have their own places", "[place_join]") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Model critic(seed);
    const Model generator(seed + kSeeds);
    const auto of_generator = [&] {
      Iteration made = generator.iteration();
      for (Placed& placed : made) placed.place += kElsewhere;
      return made;
    };
    const Outcome outcome =
        join({critic.iteration(), critic.iteration(), of_generator()}, {critic.iteration(), of_generator()});
    CHECK(outcome.wrong == 0);
    CHECK(outcome.silent == 0);
  }
}

TEST_CASE("Threads that are started anew take the places of those before", "[place_join]") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Model model(seed);
    Iteration timed = model.iteration();
    for (Placed& placed : timed) placed.kernel.thread += 10;
    const Outcome outcome = join({timed}, std::vector(2, model.iteration()));
    CHECK(outcome.wrong == 0);
    CHECK(outcome.silent == 0);
  }
}

TEST_CASE("A thread beside those that are named does not take their places", "[place_join]") {
  for (std::uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Model model(seed);
    Iteration timed = model.iteration();
    const std::size_t with_places = timed.size();
    // Two more threads run the same kernels for another model.
    for (Placed placed : model.iteration()) {
      placed.kernel.thread += 10;
      placed.place += 10'000;
      timed.push_back(placed);
    }
    const Outcome outcome = join({timed}, std::vector(2, model.iteration()));
    CHECK(outcome.wrong == 0);
    CHECK(outcome.right == with_places);
  }
}

TEST_CASE("A place that lacks something counts where there is no complete one", "[place_join]") {
  const std::vector<LaunchedKernel> timed = {{1, 1, 1, 0}, {2, 2, 1, 0}, {3, 3, 1, 0}, {4, 4, 1, 0}};
  std::vector<LaunchedKernel> named = timed;
  for (LaunchedKernel kernel : timed) {
    kernel.iteration = 1;
    named.push_back(kernel);
  }
  const std::vector<std::uint32_t> places = {
      5 | kIncompletePlace,
      6 | kIncompletePlace,
      7,
      0,  // the first iteration
      8,
      6 | kIncompletePlace,
      9,
      10,  // the second
  };
  CHECK(places_of(timed, named, places) == std::vector<std::uint32_t>{8, 6, 0, 10});
}

TEST_CASE("A place that lacks something counts no more where iterations differ", "[place_join]") {
  constexpr std::uint32_t kKernels = 20;
  const auto kernel = [](std::uint32_t number, std::uint32_t iteration) {
    return LaunchedKernel{number, number, 1, iteration, 1 + number % 3};
  };
  std::vector<LaunchedKernel> named;
  std::vector<std::uint32_t> places;
  for (std::uint32_t iteration = 0; iteration < 2; ++iteration) {
    for (std::uint32_t i = 0; i < kKernels; ++i) {
      named.push_back(kernel(i, iteration));
      places.push_back(iteration == 0 ? (100 + i) | kIncompletePlace : 200 + i);
    }
  }
  // One that is launched in addition, one that is left out, and one that is replaced by another.
  enum class Change { kAdded, kLeftOut, kReplaced };
  const auto change = GENERATE(Change::kAdded, Change::kLeftOut, Change::kReplaced);
  std::vector<LaunchedKernel> timed;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < kKernels; ++i) {
    const bool is_changed = i == 15;
    if (is_changed && change == Change::kAdded) {
      timed.push_back({99, 99, 1, 2, 0});
      expected.push_back(0);
    }
    if (is_changed && change == Change::kLeftOut) continue;
    LaunchedKernel added = kernel(i, 2);
    if (change == Change::kReplaced) added.exact += 1000;  // another size
    if (is_changed && change == Change::kReplaced) added.exact = added.coarse = 99;
    timed.push_back(added);
    expected.push_back(200 + i);
  }
  const auto join_with = [&](bool may_be) {
    std::vector<std::uint32_t> found;
    for (const JoinedPlace& joined :
         join_places(timed, named, places, {}, [&](std::uint32_t, std::uint32_t) { return may_be; }))
      found.push_back(joined.place);
    return found;
  };
  CHECK(join_with(true) == expected);
  // Where they contradict each other there is none.
  CHECK(join_with(false) == std::vector<std::uint32_t>(timed.size(), 0));
}

TEST_CASE("What a kernel computes is taken from equal iterations that agree", "[place_join]") {
  using Works = std::vector<std::uint32_t>;
  const auto kernels = [](std::initializer_list<std::vector<std::uint32_t>> iterations) {
    std::vector<LaunchedKernel> made;
    std::uint32_t number = 0;
    for (const std::vector<std::uint32_t>& iteration : iterations) {
      ++number;
      for (const std::uint32_t kernel : iteration) made.push_back({kernel, kernel, 1, number});
    }
    return made;
  };
  const auto works = [](const std::vector<LaunchedKernel>& timed, const std::vector<LaunchedKernel>& named,
                        const Works& known) {
    const std::vector<std::uint32_t> places(named.size(), 1);
    Works found;
    for (const JoinedPlace& one : join_places(timed, named, places, known)) found.push_back(one.work);
    return found;
  };
  constexpr std::uint32_t kUnknown = kUnknownWork;
  const auto timed = kernels({{10, 20, 30}});
  const auto twice = kernels({{10, 20, 30}, {10, 20, 30}});
  CHECK(works(timed, twice, {5, 6, kNoWork, 5, 6, kNoWork}) == Works{5, 6, kNoWork});
  CHECK(works(timed, twice, {5, 6, 7, 5, 8, 7}) == Works{5, kUnknown, 7});
  CHECK(works(timed, twice, {kUnknown, kNoWork, kUnknown, 5, 8, kUnknown}) == Works{5, kUnknown, kNoWork});
  CHECK(works(timed, twice, {}) == Works(3, kUnknown));
  // One is not enough, and neither is mere similarity.
  CHECK(works(timed, kernels({{10, 20, 30}}), {5, 6, 7}) == Works(3, kUnknown));
  CHECK(works(timed, kernels({{10, 20, 30, 40}, {10, 20, 30, 40}}), {5, 6, 7, 0, 5, 6, 7, 0}) ==
        Works(3, kUnknown));
  CHECK(works(timed, kernels({{10, 20, 31}, {10, 20, 31}}), {5, 6, 7, 5, 6, 7}) == Works(3, kUnknown));
}

TEST_CASE("Without names there are no places", "[place_join]") {
  const std::vector<LaunchedKernel> timed = {{1, 1, 1, 0}};
  CHECK(places_of(timed, {}, {}) == std::vector<std::uint32_t>{0});
  CHECK(join_places({}, {}, {}).empty());
}

TEST_CASE("What is launched at the same position of equal iterations is alike", "[place_join]") {
  const std::vector<LaunchedKernel> kernels = {
      {1, 1, 1, 0}, {2, 2, 1, 0}, {5, 5, 2, 0},                // two threads
      {1, 1, 1, 1}, {3, 2, 1, 1}, {5, 5, 2, 1},                // of another size
      {1, 1, 1, 2}, {2, 2, 1, 2}, {2, 2, 1, 2}, {5, 5, 3, 2},  // one more, and on another thread
      {1, 1, 1, 3}, {2, 2, 1, 3},
  };
  CHECK(first_alike(kernels) == std::vector<std::uint32_t>{0, 1, 2, 0, 1, 2, 6, 7, 8, 9, 0, 1});
}

TEST_CASE("Votes of complete and incomplete places", "[place_join]") {
  const auto vote = [](std::vector<std::uint32_t> places, const MayBeSame& may_be) {
    PlaceVote found;
    for (const std::uint32_t place : places) found.add(place);
    return found.place(may_be);
  };
  const MayBeSame never = [](std::uint32_t, std::uint32_t) { return false; };
  const MayBeSame always = [](std::uint32_t, std::uint32_t) { return true; };
  const auto incomplete = [](std::uint32_t place) { return place | kIncompletePlace; };
  CHECK(vote({}, never) == 0);
  CHECK(vote({0, 5, 0, 5}, never) == 5);
  CHECK(vote({5, 6}, always) == 0);
  CHECK(vote({incomplete(5)}, always) == 5);
  CHECK(vote({incomplete(5)}, never) == 0);
  CHECK(vote({incomplete(5), incomplete(6)}, always) == 0);
  CHECK(vote({incomplete(5), 6}, always) == 6);
  CHECK(vote({6, incomplete(5), incomplete(7)}, always) == 6);
  // It can't be the same one.
  CHECK(vote({incomplete(5), 6}, never) == 0);
  CHECK(vote({6, incomplete(5)}, never) == 0);
  CHECK(vote({incomplete(6), 6}, never) == 6);
  CHECK(vote({incomplete(5), incomplete(7), incomplete(8), 6}, always) == 0);
}

}  // namespace inject
