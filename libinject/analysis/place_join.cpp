// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/place_join.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "libinject/model/code_place.h"

namespace inject {

namespace {

using Kernels = std::span<const LaunchedKernel>;
using Number = std::uint32_t LaunchedKernel::*;

/// What one thread launched in one iteration, as indices into the list.
using Sequence = std::vector<std::uint32_t>;
using Sequences = std::map<std::pair<std::uint32_t, std::uint32_t>, Sequence>;  // by thread and iteration

Sequences sequences_of(Kernels kernels) {
  Sequences found;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    found[{kernels[i].thread, kernels[i].iteration}].push_back(static_cast<std::uint32_t>(i));
  return found;
}

class Join {
 public:
  Join(Kernels timed, Kernels named, std::span<const std::uint32_t> places,
       std::span<const std::uint32_t> works, const MayBeSame& may_be)
      : may_be_(may_be),
        timed_(timed),
        named_(named),
        places_(places),
        works_(works),
        named_sequences_(sequences_of(named)),
        joined_(timed.size()) {}

  std::vector<JoinedPlace> run() {
    for (const auto& [where, sequence] : sequences_of(timed_)) {
      const std::vector<const Sequence*> others = candidates(where.first);
      if (take_equal(sequence, others, &LaunchedKernel::exact)) continue;
      if (take_equal(sequence, others, &LaunchedKernel::coarse)) continue;
      take_common(sequence, others);
    }
    take_unique();
    return std::move(joined_);
  }

 private:
  std::vector<const Sequence*> candidates(std::uint32_t thread) const {
    std::vector<const Sequence*> own;
    std::vector<const Sequence*> all;
    for (const auto& [where, sequence] : named_sequences_) {
      all.push_back(&sequence);
      if (where.first == thread) own.push_back(&sequence);
    }
    return own.empty() ? all : own;
  }

  bool same(std::uint32_t timed, std::uint32_t named, Number number) const {
    return timed_[timed].*number == named_[named].*number;
  }

  /// Those of `others` with the same kernels as that sequence of `kernels`.
  std::vector<const Sequence*> equal_ones(Kernels kernels, const Sequence& sequence,
                                          const std::vector<const Sequence*>& others, Number number) const {
    std::vector<const Sequence*> equal;
    const auto is_same = [&](std::uint32_t one, std::uint32_t named) {
      return kernels[one].*number == named_[named].*number;
    };
    for (const Sequence* other : others) {
      if (std::equal(sequence.begin(), sequence.end(), other->begin(), other->end(), is_same))
        equal.push_back(other);
    }
    return equal;
  }

  bool take_equal(const Sequence& sequence, const std::vector<const Sequence*>& others, Number number) {
    const std::vector<const Sequence*> equal = equal_ones(timed_, sequence, others, number);
    if (equal.empty()) return false;
    const bool works_known = number == &LaunchedKernel::exact && equal.size() > 1 && !works_.empty();
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      joined_[sequence[i]] = joined(*equal.front(), equal, i);
      if (works_known) joined_[sequence[i]].work = common_work(equal, i);
    }
    return true;
  }

  /// The work at that position in all sequences that know it.
  std::uint32_t common_work(const std::vector<const Sequence*>& sequences, std::size_t position) const {
    std::uint32_t common = kUnknownWork;
    for (const Sequence* sequence : sequences) {
      const std::uint32_t work = works_[(*sequence)[position]];
      if (work == kUnknownWork) continue;
      if (common != kUnknownWork && common != work) return kUnknownWork;
      common = work;
    }
    return common == kUnknownWork ? kNoWork : common;
  }

  /// How far two sequences agree from their beginnings and from their ends, each without the kernels of the
  /// shorter one that belong to both: those could be matched in two ways.
  struct Ends {
    const Sequence* other = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  Ends ends_of(const Sequence& sequence, const Sequence& other, Number number) const {
    const std::size_t most = std::min(sequence.size(), other.size());
    Ends ends{&other};
    while (ends.begin < most && same(sequence[ends.begin], other[ends.begin], number)) ++ends.begin;
    while (ends.end < most &&
           same(sequence[sequence.size() - 1 - ends.end], other[other.size() - 1 - ends.end], number))
      ++ends.end;
    if (const std::size_t both = ends.begin + ends.end; both > most) {
      ends.begin -= both - most;
      ends.end -= both - most;
    }
    return ends;
  }

  /// Positions in the other sequence.
  using Matches = std::vector<std::size_t>;
  static constexpr std::size_t kUnmatched = ~std::size_t{0};

  /// How many coarse kernels two sequences have in common, in any order.
  std::size_t in_common(const Sequence& sequence, const Sequence& other) const {
    std::unordered_map<std::uint32_t, std::size_t> left;
    for (const std::uint32_t named : other) ++left[named_[named].coarse];
    std::size_t common = 0;
    for (const std::uint32_t timed : sequence) {
      const auto found = left.find(timed_[timed].coarse);
      if (found == left.end() || found->second == 0) continue;
      --found->second;
      ++common;
    }
    return common;
  }

  Ends longest_ends(const Sequence& sequence, const std::vector<const Sequence*>& others) const {
    Ends best;
    for (const Number number : {&LaunchedKernel::exact, &LaunchedKernel::coarse}) {
      for (const Sequence* other : others) {
        const Ends ends = ends_of(sequence, *other, number);
        if (ends.begin + ends.end > best.begin + best.end) best = ends;
      }
    }
    return best;
  }

  /// That named sequence and those equal to it, whose places count as well.
  std::vector<const Sequence*> like(const Sequence& named, const std::vector<const Sequence*>& others) const {
    std::vector<const Sequence*> equal = equal_ones(named_, named, others, &LaunchedKernel::exact);
    return equal.size() > 1 ? equal : equal_ones(named_, named, others, &LaunchedKernel::coarse);
  }

  /// Kernels between two matched ones, before the first one, or after the last one.
  struct Between {
    Sequence here;
    Sequence there;
    std::size_t begin = 0;        ///< their position in this sequence
    std::size_t begin_there = 0;  ///< and in the other one
  };

  std::vector<Between> betweens_of(const Sequence& sequence, const Sequence& other,
                                   const Matches& matches) const {
    std::vector<Between> betweens;
    std::size_t next = 0;  // in the other sequence
    for (std::size_t i = 0; i <= sequence.size(); ++i) {
      Between between{{}, {}, i, next};
      for (; i < sequence.size() && matches[i] == kUnmatched; ++i) between.here.push_back(sequence[i]);
      const std::size_t end = i == sequence.size() ? other.size() : matches[i];
      for (; next < end; ++next) between.there.push_back(other[next]);
      ++next;
      if (!between.here.empty() || !between.there.empty()) betweens.push_back(std::move(between));
    }
    return betweens;
  }

  void take_common(const Sequence& sequence, const std::vector<const Sequence*>& others) {
    const Ends ends = longest_ends(sequence, others);
    if (take_replaced(sequence, others, ends.begin + ends.end)) return;
    if (ends.other == nullptr) return;
    const std::vector<const Sequence*> equal = like(*ends.other, others);
    for (std::size_t i = 0; i < ends.begin; ++i) joined_[sequence[i]] = joined(*ends.other, equal, i);
    for (std::size_t i = 1; i <= ends.end; ++i)
      joined_[sequence[sequence.size() - i]] = joined(*ends.other, equal, ends.other->size() - i);
  }

  /// Returns false, and does nothing, if no more than `least` kernels would get a place.
  bool take_replaced(const Sequence& sequence, const std::vector<const Sequence*>& others,
                     std::size_t least) {
    const Sequence* nearest = nullptr;
    std::size_t common = 0;
    for (const Sequence* other : others) {
      const std::size_t found = in_common(sequence, *other);
      if (found > common) {
        common = found;
        nearest = other;
      }
    }
    // With less in common it may be something else, which ends with the first difference.
    if (nearest == nullptr || 4 * common < std::max(sequence.size(), nearest->size())) return false;
    const Sequence& other = *nearest;
    const std::optional<Matches> matches = matches_of(sequence, other);
    if (!matches) return false;
    const std::vector<Between> betweens = betweens_of(sequence, other, *matches);
    // Nothing is certain between the first and the last difference that is more than a replacement.
    const auto is_difference = [this](const Between& one) { return !may_replace(one.here, one.there); };
    const auto first = std::find_if(betweens.begin(), betweens.end(), is_difference);
    const auto last = std::find_if(betweens.rbegin(), betweens.rend(), is_difference);
    const std::size_t begin = first == betweens.end() ? sequence.size() : first->begin;
    const std::size_t end = last == betweens.rend() ? 0 : last->begin + last->here.size();
    const auto is_certain = [&](std::size_t position) { return position < begin || position >= end; };
    if (begin + (sequence.size() - std::max(begin, end)) <= least) return false;
    const std::vector<const Sequence*> equal = like(other, others);
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      if (is_certain(i) && (*matches)[i] != kUnmatched)
        joined_[sequence[i]] = joined(other, equal, (*matches)[i]);
    }
    for (const Between& between : betweens) {
      if (!is_certain(between.begin) || is_difference(between)) continue;
      std::unordered_map<std::uint32_t, PlaceVote> votes;  // by family
      for (std::size_t i = 0; i < between.there.size(); ++i) {
        PlaceVote& vote = votes[named_[between.there[i]].family];
        for (const Sequence* one : equal) vote.add(places_[(*one)[between.begin_there + i]]);
      }
      for (const std::uint32_t timed : between.here) {
        const auto vote = votes.find(timed_[timed].family);
        if (vote != votes.end() && vote->first != 0) joined_[timed].place = vote->second.place(may_be_);
      }
    }
    return true;
  }

  /// Whether they are of the same kind, and none of them is alike: alike ones could be matched in several
  /// ways.
  bool may_replace(const Sequence& here, const Sequence& there) const {
    std::unordered_set<std::uint32_t> names;
    std::unordered_set<std::uint32_t> families;
    for (const std::uint32_t named : there) {
      names.insert(named_[named].coarse);
      if (named_[named].family != 0) families.insert(named_[named].family);
    }
    return std::none_of(here.begin(), here.end(),
                        [&](std::uint32_t timed) { return names.contains(timed_[timed].coarse); }) &&
           std::any_of(here.begin(), here.end(),
                       [&](std::uint32_t timed) { return families.contains(timed_[timed].family); });
  }

  /// The ends and, between them, the kernels that every longest common subsequence matches in the same way.
  /// Empty if that would take too many comparisons.
  std::optional<Matches> matches_of(const Sequence& sequence, const Sequence& other) {
    const Ends ends = ends_of(sequence, other, &LaunchedKernel::coarse);
    Matches matches(sequence.size(), kUnmatched);
    for (std::size_t i = 0; i < ends.begin; ++i) matches[i] = i;
    for (std::size_t i = 1; i <= ends.end; ++i) matches[sequence.size() - i] = other.size() - i;
    const std::size_t rows = sequence.size() - ends.begin - ends.end;
    const std::size_t columns = other.size() - ends.begin - ends.end;
    const std::size_t cells = (rows + 1) * (columns + 1);
    if (cells > kMostCellsAtOnce || cells > cells_left_) return std::nullopt;
    cells_left_ -= cells;
    const auto alike = [&](std::size_t row, std::size_t column) {
      return same(sequence[ends.begin + row], other[ends.begin + column], &LaunchedKernel::coarse);
    };
    // Lengths of the longest common subsequences of what comes before, and of what follows.
    const std::size_t width = columns + 1;
    std::vector<std::uint16_t> before(cells);
    std::vector<std::uint16_t> after(cells);
    for (std::size_t i = 1; i <= rows; ++i) {
      for (std::size_t j = 1; j <= columns; ++j)
        before[i * width + j] = alike(i - 1, j - 1)
                                    ? static_cast<std::uint16_t>(before[(i - 1) * width + j - 1] + 1)
                                    : std::max(before[(i - 1) * width + j], before[i * width + j - 1]);
    }
    for (std::size_t i = rows; i-- > 0;) {
      for (std::size_t j = columns; j-- > 0;)
        after[i * width + j] = alike(i, j) ? static_cast<std::uint16_t>(after[(i + 1) * width + j + 1] + 1)
                                           : std::max(after[(i + 1) * width + j], after[i * width + j + 1]);
    }
    const std::uint32_t longest = after[0];
    for (std::size_t i = 0; i < rows; ++i) {
      std::size_t found = kUnmatched;
      std::size_t ways = 0;
      for (std::size_t j = 0; j <= columns && ways < 2; ++j) {
        if (before[i * width + j] + after[(i + 1) * width + j] == longest) {
          ways = 2;  // left out
        } else if (j < columns && alike(i, j) &&
                   before[i * width + j] + 1u + after[(i + 1) * width + j + 1] == longest) {
          found = j;
          ++ways;
        }
      }
      if (ways == 1) matches[ends.begin + i] = ends.begin + found;
    }
    return matches;
  }

  /// The number of launches of each kernel in the iteration that launches it most often.
  static std::unordered_map<std::uint32_t, std::uint32_t> most_of(Kernels kernels) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> counts;
    std::unordered_map<std::uint32_t, std::uint32_t> most;
    for (const LaunchedKernel& kernel : kernels) {
      std::uint32_t& found = most[kernel.exact];
      found = std::max(found, ++counts[{kernel.exact, kernel.iteration}]);
    }
    return most;
  }

  /// Kernels without a place get that of the same kernels elsewhere, if these have only one.
  void take_unique() {
    const auto has_place = [](const JoinedPlace& one) { return one.place != 0; };
    if (std::all_of(joined_.begin(), joined_.end(), has_place)) return;
    struct Like {
      PlaceVote vote;
      std::uint32_t first = JoinedPlace::kNone;
    };
    std::unordered_map<std::uint32_t, Like> alike;
    for (std::size_t i = 0; i < named_.size(); ++i) {
      Like& like = alike[named_[i].exact];
      like.vote.add(places_[i]);
      if (like.first == JoinedPlace::kNone) like.first = static_cast<std::uint32_t>(i);
    }
    const auto named_most = most_of(named_);
    const auto timed_most = most_of(timed_);
    for (std::size_t i = 0; i < timed_.size(); ++i) {
      if (has_place(joined_[i])) continue;
      const std::uint32_t kernel = timed_[i].exact;
      const auto found = alike.find(kernel);
      if (found == alike.end()) continue;
      // One launch more than there are places for may belong to another place; in a loop it does not.
      const std::uint32_t most = named_most.at(kernel);
      if (most > 1 || timed_most.at(kernel) <= most)
        joined_[i] = {found->second.vote.place(may_be_), most > 1 ? JoinedPlace::kNone : found->second.first,
                      joined_[i].work};
    }
  }

  /// Joined to what `named` has at that position, with the place that all of `equal`, its equals, have there.
  JoinedPlace joined(const Sequence& named, const std::vector<const Sequence*>& equal,
                     std::size_t position) const {
    PlaceVote vote;
    for (const Sequence* one : equal) vote.add(places_[(*one)[position]]);
    return {vote.place(may_be_), named[position]};
  }

  const MayBeSame& may_be_;
  Kernels timed_;
  Kernels named_;
  std::span<const std::uint32_t> places_;
  std::span<const std::uint32_t> works_;
  const Sequences named_sequences_;
  std::vector<JoinedPlace> joined_;
  // Cells of the tables of longest common subsequences: 16 MiB at once, some tens of milliseconds in total.
  static constexpr std::size_t kMostCellsAtOnce = std::size_t{1} << 22;
  std::size_t cells_left_ = std::size_t{1} << 25;
};

}  // namespace

std::vector<JoinedPlace> join_places(std::span<const LaunchedKernel> timed,
                                     std::span<const LaunchedKernel> named,
                                     std::span<const std::uint32_t> places,
                                     std::span<const std::uint32_t> works, const MayBeSame& may_be) {
  return Join(timed, named, places, works, may_be).run();
}

std::vector<std::uint32_t> first_alike(std::span<const LaunchedKernel> kernels) {
  std::vector<std::uint32_t> first(kernels.size());
  std::iota(first.begin(), first.end(), 0u);
  const Sequences sequences = sequences_of(kernels);
  for (auto one = sequences.begin(); one != sequences.end(); ++one) {
    for (auto other = sequences.begin(); other != one; ++other) {
      const auto same = [&](std::uint32_t a, std::uint32_t b) {
        return kernels[a].coarse == kernels[b].coarse;
      };
      if (other->first.first != one->first.first ||
          !std::equal(one->second.begin(), one->second.end(), other->second.begin(), other->second.end(),
                      same))
        continue;
      for (std::size_t i = 0; i < one->second.size(); ++i) first[one->second[i]] = other->second[i];
      break;
    }
  }
  return first;
}

}  // namespace inject
