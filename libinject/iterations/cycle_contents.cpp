// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/cycle_contents.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace inject {

namespace {

// The number of latest cycles, and of events, that are compared.
constexpr std::size_t kMaxCycles = kMaxEdges - 1;
constexpr std::uint64_t kMaxCycleEvents = 1u << 16;
// Of the programs in tests/data/iterations, those with one model and data of one size have at most 0.002 of
// their launches beyond each other's, and those with data of varying size mostly less than 0.08 if shapes are
// ignored. Generative networks have 0.07 to 0.14 and 0.2 to 1.4.
constexpr double kOneHasAll = 0.03;
constexpr double kSameFunctions = 0.1;
// Data of varying length: hardly any launch has the same shape as in another cycle.
constexpr double kOtherShapes = 0.5;
// A pattern is accepted if this many cycles, or all that were seen, follow it, and it has occurred this
// often. In random order, a few cycles of two kinds may do so by chance.
constexpr std::size_t kMinCycles = 12;
constexpr std::size_t kEnoughCycles = 24;
constexpr std::size_t kMinPatterns = 3;
constexpr std::size_t kMaxPattern = 12;
constexpr std::size_t kMinAlike = 5;
// One in this many may be of another kind when all are considered alike.
constexpr std::size_t kOddOne = 10;
// If this many of the latest cycles are of this many kinds, they are in no order.
constexpr std::size_t kManyKinds = 5;
constexpr std::size_t kOfCycles = 8;

/// The number of occurrences of each kind, by kind.
using Kinds = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Kinds count_kinds(std::vector<std::uint32_t>& ids) {
  std::ranges::sort(ids);
  Kinds kinds;
  for (const std::uint32_t id : ids) {
    if (kinds.empty() || kinds.back().first != id) kinds.emplace_back(id, 0);
    ++kinds.back().second;
  }
  return kinds;
}

/// The launches of a cycle.
struct Launches {
  Kinds by_shape;
  Kinds by_function;
  std::uint64_t count = 0;
};

Launches launches_between(const SignHistory& history, std::uint64_t begin, std::uint64_t end,
                          bool outside_steps) {
  std::vector<std::uint32_t> shapes;
  std::vector<std::uint32_t> functions;
  for (std::uint64_t p = begin; p < end; ++p) {
    const SignHistory::Event& event = history.event(p);
    const SignKind kind = history.token(event.function).kind;
    if (!is_work(kind) || (outside_steps && event.in_step != 0)) continue;
    shapes.push_back(event.shape);
    functions.push_back(event.function);
  }
  return {count_kinds(shapes), count_kinds(functions), shapes.size()};
}

/// The number of launches that `a` has in excess of `b`.
std::uint64_t excess(const Kinds& a, const Kinds& b) {
  std::uint64_t more = 0;
  auto other = b.begin();
  for (const auto& [id, count] : a) {
    while (other != b.end() && other->first < id) ++other;
    const std::uint32_t there = other != b.end() && other->first == id ? other->second : 0;
    more += count - std::min(count, there);
  }
  return more;
}

bool are_alike(const Launches& a, const Launches& b) {
  const auto few = [&](double share) {
    const auto both = static_cast<double>(std::min(a.count, b.count));
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(share * both));
  };
  const std::uint64_t other_shapes = std::min(excess(a.by_shape, b.by_shape), excess(b.by_shape, a.by_shape));
  if (other_shapes <= few(kOneHasAll)) return true;
  const std::uint64_t one = excess(a.by_function, b.by_function);
  const std::uint64_t other = excess(b.by_function, a.by_function);
  if (std::max(one, other) <= few(kSameFunctions)) return true;
  // Longer sequences: the same functions, called more often.
  if (std::min(one, other) == 0) return true;
  return other_shapes >= few(kOtherShapes) && std::min(one, other) <= few(kOneHasAll);
}

/// Assigns the same number to cycles that are alike, or that are both like a third one: a report makes one
/// longer, a smaller batch has other shapes. The latest has number 0.
std::vector<std::size_t> numbered(const std::vector<Launches>& cycles) {
  std::vector<std::size_t> numbers(cycles.size());
  for (std::size_t i = 0; i < cycles.size(); ++i) {
    numbers[i] = i;
    for (std::size_t other = 0; other < i; ++other) {
      if (numbers[other] == numbers[i] || !are_alike(cycles[other], cycles[i])) continue;
      const std::size_t first = std::min(numbers[other], numbers[i]);
      const std::size_t second = std::max(numbers[other], numbers[i]);
      std::ranges::replace(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(i) + 1, second,
                           first);
    }
  }
  return numbers;
}

std::size_t count_different(std::span<const std::size_t> numbers) {
  std::size_t kinds = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    kinds +=
        std::ranges::find(numbers.first(i), numbers[i]) == numbers.begin() + static_cast<std::ptrdiff_t>(i);
  return kinds;
}

bool has_period(std::span<const std::size_t> numbers, std::size_t period) {
  for (std::size_t i = 0; i + period < numbers.size(); ++i)
    if (numbers[i] != numbers[i + period]) return false;
  return true;
}

std::optional<std::uint64_t> pattern_among(const std::vector<std::size_t>& numbers) {
  if (count_different(numbers) <= 1) return 1;
  if (count_different(std::span(numbers).first(std::min(numbers.size(), kOfCycles))) >= kManyKinds) return 1;
  // Tuning precedes the cycles that are alike, and a critic may step alone for a while.
  const auto alike = static_cast<std::size_t>(
      std::ranges::find_if(numbers, [&](std::size_t number) { return number != numbers[0]; }) -
      numbers.begin());
  if (alike >= kMinAlike && 2 * alike > numbers.size()) return 1;
  for (std::size_t period = 2; period <= kMaxPattern; ++period) {
    const std::size_t needed =
        std::max(kMinPatterns * period, std::clamp(numbers.size(), kMinCycles, kEnoughCycles));
    if (needed <= numbers.size() && has_period(std::span(numbers).first(needed), period)) return period;
  }
  return std::nullopt;
}

/// The latest first, up to the limits above.
std::vector<Launches> launches_of(const SignHistory& history, std::span<const std::uint64_t> edges,
                                  bool outside_steps = false) {
  std::vector<Launches> found;
  std::uint64_t events = 0;
  for (std::size_t i = 0; i + 1 < edges.size() && found.size() < kMaxCycles && events < kMaxCycleEvents;
       ++i) {
    if (edges[i + 1] < history.oldest() || history.has_gap(edges[i + 1], edges[i])) break;
    found.push_back(launches_between(history, edges[i + 1] + 1, edges[i] + 1, outside_steps));
    events += edges[i] - edges[i + 1];
  }
  return found;
}

/// Whether the latest of these lengths of stretches alternate between two.
bool alternate(std::span<const std::uint64_t> lengths) {
  if (lengths.size() < 4) return false;
  const auto length = [&](std::size_t i) { return static_cast<double>(lengths[i]); };
  const auto same = [](double a, double b, double share) {
    return std::max(a, b) - std::min(a, b) <= share * std::min(a, b);
  };
  return same(length(0), length(2), kOneHasAll) && same(length(1), length(3), kOneHasAll) &&
         !same(length(0), length(1), kSameFunctions);
}

}  // namespace

CyclePattern pattern_and_kinds(const SignHistory& history, std::span<const std::uint64_t> edges) {
  const std::vector<Launches> stretches = launches_of(history, edges);
  const std::vector<std::size_t> numbers = numbered(stretches);
  CyclePattern found;
  found.period = pattern_among(numbers);
  std::size_t most = 0;
  for (const std::size_t number : numbers)
    most = std::max(most, static_cast<std::size_t>(std::ranges::count(numbers, number)));
  found.alike = (numbers.size() - most) * kOddOne <= numbers.size();
  if (found.period) return found;
  // No more can be examined.
  const bool all =
      stretches.size() >= kMaxCycles || edges.front() - edges[stretches.size()] >= kMaxCycleEvents;
  if (all) found.period = 1;
  return found;
}

std::optional<std::uint64_t> pattern_of(const SignHistory& history, std::span<const std::uint64_t> edges) {
  return pattern_and_kinds(history, edges).period;
}

bool all_alike(const SignHistory& history, std::span<const std::uint64_t> edges) {
  std::vector<std::uint64_t> lengths;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) lengths.push_back(edges[i] - edges[i + 1]);
  return !alternate(lengths) && count_different(numbered(launches_of(history, edges))) <= 1;
}

bool all_alike_outside_steps(const SignHistory& history, std::span<const std::uint64_t> edges) {
  const std::vector<Launches> stretches = launches_of(history, edges, true);
  std::vector<std::uint64_t> lengths;
  lengths.reserve(stretches.size());
  for (const Launches& stretch : stretches) lengths.push_back(stretch.count);
  return stretches.size() >= kMinAlike && std::ranges::find(lengths, 0u) == lengths.end() &&
         !alternate(lengths) && count_different(numbered(stretches)) <= 1;
}

FirstStep first_step_of(const SignHistory& history, std::uint64_t each) {
  const StepSequence& steps = history.steps();
  const std::uint64_t count = steps.count();
  if (history.oldest() != 0 || count == 0 || !steps.position(count - 1)) return FirstStep::kDoubtful;
  // All steps are kept.
  const auto end_of = [&](std::uint64_t index) { return steps.position(count - 1 - index).value_or(0) + 1; };
  std::uint64_t first = 0;  // that was not made in vain
  while (first + each < count && steps.trained_before(end_of(first), each) == 0) ++first;
  const std::uint64_t latest = first + (count - 1 - first) / each * each;
  if (latest < first + each || end_of(first) > kMaxCycleEvents) return FirstStep::kDoubtful;
  const auto functions = [&](std::uint64_t begin, std::uint64_t end) {
    return launches_between(history, begin, end, true).by_function;
  };
  const Kinds before = functions(first == 0 ? 0 : end_of(first - 1), end_of(first));
  const Kinds usual = functions(end_of(latest - 1), end_of(latest));
  const auto of = [](const Kinds& kinds, std::uint32_t id) {
    const auto found = std::ranges::lower_bound(kinds, id, {}, &Kinds::value_type::first);
    return found != kinds.end() && found->first == id ? found->second : 0;
  };
  // The rest of an iteration, and how much of it came before the first step as well. Tuning and a validation
  // repeat some kernels, but not most of them.
  std::uint64_t rest = 0;
  std::uint64_t rest_before = 0;
  for (const auto& [id, launches] : functions(end_of(latest - each), end_of(latest))) {
    const std::uint32_t here = of(usual, id);
    const std::uint32_t other = launches - std::min(launches, here);
    rest += other;
    rest_before += std::min(other, of(before, id) - std::min(of(before, id), here));
  }
  return 2 * rest_before > rest ? FirstStep::kSkipped : FirstStep::kUsual;
}

std::optional<std::uint64_t> CycleContents::per_iteration(const SignHistory& history) {
  const StepSequence& steps = history.steps();
  visits_ = 0;
  if (steps.count() == steps_ && steps.cycle()->length == length_) return found_.period;
  steps_ = steps.count();
  length_ = steps.cycle()->length;
  std::vector<std::uint64_t> edges;
  for (std::size_t i = 0; i < kMaxEdges; ++i) {
    const auto step = steps.position(i * length_);
    if (!step) break;
    edges.push_back(*step);
  }
  found_ = pattern_and_kinds(history, edges);
  visits_ = static_cast<std::int64_t>(4 * std::min(edges.front() - edges.back(), kMaxCycleEvents));
  return found_.period;
}

}  // namespace inject
