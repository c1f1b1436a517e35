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
        timed_sequences_(sequences_of(timed)),
        named_sequences_(sequences_of(named)),
        joined_(timed.size()) {}

  std::vector<JoinedPlace> run() {
    for (const auto& [where, sequence] : timed_sequences_) {
      const std::vector<const Sequence*> others = candidates(where.first);
      if (others.empty()) unnamed_threads_.insert(where.first);
      if (take_equal(sequence, others, &LaunchedKernel::exact)) continue;
      if (take_equal(sequence, others, &LaunchedKernel::coarse)) continue;
      take_common(sequence, others);
    }
    take_unique();
    return std::move(joined_);
  }

 private:
  /// Positions in the other sequence.
  using Matches = std::vector<std::size_t>;
  static constexpr std::size_t kUnmatched = ~std::size_t{0};

  /// The named sequences of that thread or, if it has none, of the threads that may have taken its place:
  /// those that launched nothing beside it.
  std::vector<const Sequence*> candidates(std::uint32_t thread) const {
    std::vector<const Sequence*> own;
    std::vector<const Sequence*> later;
    for (const auto& [where, sequence] : named_sequences_) {
      if (where.first == thread) own.push_back(&sequence);
      const auto beside = timed_sequences_.lower_bound({where.first, 0});
      if (beside == timed_sequences_.end() || beside->first.first != where.first) later.push_back(&sequence);
    }
    return own.empty() ? later : own;
  }

  bool same(std::uint32_t timed, std::uint32_t named, Number number) const {
    return timed_[timed].*number == named_[named].*number;
  }

  /// Whether that sequence of `kernels` has the same kernels as `other`, a named one.
  bool equals(Kernels kernels, const Sequence& sequence, const Sequence& other, Number number) const {
    return std::equal(sequence.begin(), sequence.end(), other.begin(), other.end(),
                      [&](std::uint32_t one, std::uint32_t named) {
                        return kernels[one].*number == named_[named].*number;
                      });
  }

  /// Those of `others` that it equals.
  std::vector<const Sequence*> equal_ones(Kernels kernels, const Sequence& sequence,
                                          const std::vector<const Sequence*>& others, Number number) const {
    std::vector<const Sequence*> equal;
    for (const Sequence* other : others) {
      if (equals(kernels, sequence, *other, number)) equal.push_back(other);
    }
    return equal;
  }

  bool take_equal(const Sequence& sequence, const std::vector<const Sequence*>& others, Number number) {
    const std::vector<const Sequence*> equal = equal_ones(timed_, sequence, others, number);
    if (equal.empty()) return false;
    const bool works_known = number == &LaunchedKernel::exact && equal.size() > 1 && !works_.empty();
    Matches matches(sequence.size());
    std::iota(matches.begin(), matches.end(), std::size_t{0});
    const bool varies = sizes_vary(sequence, *equal.front(), matches);
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      take_match(sequence, equal, matches, i, varies);
      if (works_known) joined_[sequence[i]].work = common_work(equal, i);
    }
    return true;
  }

  /// Gives that kernel the place of the one that it matches in `equal`, sequences that are equal.
  void take_match(const Sequence& sequence, const std::vector<const Sequence*>& equal, const Matches& matches,
                  std::size_t position, bool varies) {
    if (matches[position] == kUnmatched) return;
    if (!varies && is_other_branch(sequence, equal, matches, position)) return;
    joined_[sequence[position]] = joined(*equal.front(), equal, matches[position]);
  }

  /// Whether that kernel is the same as the one that it matches; true beyond the ends.
  bool is_unchanged(const Sequence& sequence, const Sequence& other, const Matches& matches,
                    std::size_t position) const {
    return position >= sequence.size() ||
           (matches[position] != kUnmatched &&
            same(sequence[position], other[matches[position]], &LaunchedKernel::exact));
  }

  /// Whether sizes differ from the other sequence's: a part of the kernels changed, together with others next
  /// to them. Then kernels that are the same tell nothing about those between them: what prepares weights
  /// does not depend on the batch.
  bool sizes_vary(const Sequence& sequence, const Sequence& other, const Matches& matches) const {
    constexpr std::size_t kPart = 8;
    const auto changed = [&](std::size_t position) {
      return position < sequence.size() && matches[position] != kUnmatched &&
             !is_unchanged(sequence, other, matches, position);
    };
    std::size_t together = 0;
    for (std::size_t i = 0; i < sequence.size(); ++i)
      together += changed(i) && (changed(i - 1) || changed(i + 1)) ? 1 : 0;
    return kPart * together > sequence.size();
  }

  /// Whether only that kernel changed: those before and after it did not, and it is always the same one in
  /// `equal`. No size can have changed, so it may be what the program launches elsewhere, unless it is known
  /// to be the same layer.
  bool is_other_branch(const Sequence& sequence, const std::vector<const Sequence*>& equal,
                       const Matches& matches, std::size_t position) const {
    if (timed_[sequence[position]].is_layer) return false;
    const std::uint32_t first = named_[(*equal.front())[matches[position]]].exact;
    return std::all_of(equal.begin(), equal.end(), [&](const Sequence* other) {
      return named_[(*other)[matches[position]]].exact == first &&
             !is_unchanged(sequence, *other, matches, position) &&
             is_unchanged(sequence, *other, matches, position - 1) &&
             is_unchanged(sequence, *other, matches, position + 1);
    });
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

  /// How many kernels two sequences have in common, in any order.
  std::size_t in_common(const Sequence& sequence, const Sequence& other, Number number) const {
    std::unordered_map<std::uint32_t, std::size_t> left;
    for (const std::uint32_t named : other) ++left[named_[named].*number];
    std::size_t common = 0;
    for (const std::uint32_t timed : sequence) {
      const auto found = left.find(timed_[timed].*number);
      if (found == left.end() || found->second == 0) continue;
      --found->second;
      ++common;
    }
    return common;
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

  /// What a sequence has in common with a named one.
  struct Common {
    const Sequence* other = nullptr;
    Matches matches;
    std::vector<Between> betweens;
    // Nothing is certain between the first and the last difference that is more than a replacement.
    std::size_t begin = 0;
    std::size_t end = 0;

    bool is_certain(std::size_t position) const { return position < begin || position >= end; }
    std::size_t certain() const { return matches.size() - (end - begin); }
  };

  bool is_difference(const Between& between) const { return !may_replace(between.here, between.there); }

  void take_common(const Sequence& sequence, const std::vector<const Sequence*>& others) {
    std::vector<Common> nearest = nearest_of(sequence, others, &LaunchedKernel::exact);
    if (nearest.empty() || nearest.front().certain() < sequence.size()) {
      std::vector<Common> coarse = nearest_of(sequence, others, &LaunchedKernel::coarse);
      if (!coarse.empty() && (nearest.empty() || coarse.front().certain() > nearest.front().certain()))
        nearest = std::move(coarse);
    }
    for (std::size_t i = 0; i < nearest.size(); ++i) {
      std::vector<JoinedPlace> before;
      before.reserve(sequence.size());
      for (const std::uint32_t timed : sequence) before.push_back(std::exchange(joined_[timed], {}));
      take(sequence, nearest[i], like(*nearest[i].other, others));
      // It may be any of them: what they have in common is certain.
      for (std::size_t at = 0; i > 0 && at < sequence.size(); ++at)
        if (before[at].place != joined_[sequence[at]].place) joined_[sequence[at]] = {};
    }
  }

  /// What a sequence has in common with those that differ least from it; only one of equal ones.
  std::vector<Common> nearest_of(const Sequence& sequence, const std::vector<const Sequence*>& others,
                                 Number number) {
    std::vector<Common> nearest;
    std::size_t least = ~std::size_t{0};
    for (const Sequence* other : others) {
      // With less in common it may be something else.
      if (4 * in_common(sequence, *other, number) < std::max(sequence.size(), other->size())) continue;
      std::optional<Alignment> aligned = matches_of(sequence, *other, number);
      if (!aligned) return {};
      if (aligned->distance > least) continue;
      if (aligned->distance < least) nearest.clear();
      least = aligned->distance;
      const auto is_equal = [&](const Common& one) { return equals(named_, *one.other, *other, number); };
      if (std::none_of(nearest.begin(), nearest.end(), is_equal))
        nearest.push_back(common_of(sequence, *other, std::move(aligned->matches)));
    }
    return nearest;
  }

  Common common_of(const Sequence& sequence, const Sequence& other, Matches matches) const {
    Common found;
    found.other = &other;
    found.matches = std::move(matches);
    found.betweens = betweens_of(sequence, other, found.matches);
    const auto is_one = [this](const Between& between) { return is_difference(between); };
    const auto first = std::find_if(found.betweens.begin(), found.betweens.end(), is_one);
    const auto last = std::find_if(found.betweens.rbegin(), found.betweens.rend(), is_one);
    if (first != found.betweens.end()) {
      found.begin = first->begin;
      found.end = last->begin + last->here.size();
    }
    return found;
  }

  /// `equal`: the other sequence and its equals.
  void take(const Sequence& sequence, const Common& common, const std::vector<const Sequence*>& equal) {
    const bool varies = sizes_vary(sequence, *common.other, common.matches);
    for (std::size_t i = 0; i < sequence.size(); ++i)
      if (common.is_certain(i)) take_match(sequence, equal, common.matches, i, varies);
    for (const Between& between : common.betweens) {
      if (!common.is_certain(between.begin) || is_difference(between)) continue;
      // A library had no reason to choose another kernel: the program took another branch.
      if (!varies && is_unchanged(sequence, *common.other, common.matches, between.begin - 1) &&
          is_unchanged(sequence, *common.other, common.matches, between.begin + between.here.size()))
        continue;
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

  /// The kernels that every longest common subsequence matches in the same way, and how many kernels are in
  /// one of the two sequences only.
  struct Alignment {
    Matches matches;
    std::size_t distance = 0;
  };

  /// Empty if that would take too many comparisons.
  std::optional<Alignment> matches_of(const Sequence& sequence, const Sequence& other, Number number) {
    const std::size_t most = std::min(sequence.size(), other.size());
    std::size_t common_begin = 0;
    while (common_begin < most && same(sequence[common_begin], other[common_begin], number)) ++common_begin;
    std::size_t common_end = 0;
    while (common_begin + common_end < most &&
           same(sequence[sequence.size() - 1 - common_end], other[other.size() - 1 - common_end], number))
      ++common_end;
    // A common subsequence that departs from a common beginning is not the longest if it comes back to it.
    // Up to a kernel that all of them match, the beginning is therefore certain; an end likewise.
    for (std::size_t compared = 64;; compared *= 4) {
      const std::size_t begin = common_begin - std::min(common_begin, compared);
      const std::size_t end = common_end - std::min(common_end, compared);
      const auto here = std::span(sequence).subspan(begin, sequence.size() - begin - end);
      const auto there = std::span(other).subspan(begin, other.size() - begin - end);
      const std::optional<Alignment> found = common_to_all(here, there, number);
      if (!found) return std::nullopt;
      const Matches& between = found->matches;
      if ((begin > 0 && between.front() == kUnmatched) || (end > 0 && between.back() == kUnmatched)) continue;
      Matches matches(sequence.size(), kUnmatched);
      for (std::size_t i = 0; i < begin; ++i) matches[i] = i;
      for (std::size_t i = 0; i < between.size(); ++i)
        if (between[i] != kUnmatched) matches[begin + i] = begin + between[i];
      for (std::size_t i = 1; i <= end; ++i) matches[sequence.size() - i] = other.size() - i;
      return Alignment{std::move(matches), found->distance};
    }
  }

  /// How many kernels have to be added and left out between two positions of two sequences, for the
  /// positions at which the second sequence is not much ahead of the first one, or behind it.
  class Distances {
   public:
    static constexpr std::uint16_t kFar = 1u << 15;  // as far as anything

    Distances(std::size_t rows, std::size_t columns, std::size_t beyond)
        : behind_(rows - std::min(rows, columns) + beyond),
          width_(width(rows, columns, beyond)),
          cells_((rows + 1) * width_, kFar) {}

    static std::size_t width(std::size_t rows, std::size_t columns, std::size_t beyond) {
      return std::max(rows, columns) - std::min(rows, columns) + 2 * beyond + 3;
    }
    static std::uint16_t one_more(std::uint16_t one, std::uint16_t other) {
      return std::min(kFar, static_cast<std::uint16_t>(1 + std::min(one, other)));
    }
    std::uint16_t& at(std::size_t row, std::size_t column) { return cells_[index(row, column)]; }
    std::uint16_t at(std::size_t row, std::size_t column) const { return cells_[index(row, column)]; }
    /// The columns of a row.
    std::size_t begin(std::size_t row) const { return row - std::min(row, behind_); }
    std::size_t end(std::size_t row, std::size_t columns) const {
      return std::min(columns + 1, row + width_ - 2 - behind_);
    }

   private:
    // There is one column more on either side, which is far from everything.
    std::size_t index(std::size_t row, std::size_t column) const {
      return row * width_ + 1 + column + behind_ - row;
    }

    std::size_t behind_;
    std::size_t width_;
    std::vector<std::uint16_t> cells_;
  };

  /// Positions in `there` of the kernels of `here` that every longest common subsequence matches in the same
  /// way.
  std::optional<Alignment> common_to_all(std::span<const std::uint32_t> here,
                                         std::span<const std::uint32_t> there, Number number) {
    const std::size_t rows = here.size();
    const std::size_t columns = there.size();
    const auto alike = [&](std::size_t row, std::size_t column) {
      return same(here[row], there[column], number);
    };
    // What goes beyond the difference in length has to come back, so that a distance found is the least one
    // if it is short enough.
    for (std::size_t beyond = 8;; beyond *= 2) {
      const std::size_t width = Distances::width(rows, columns, beyond);
      const std::size_t cells = (rows + 1) * width;
      if (cells > kMostCellsAtOnce || cells > cells_left_ || width > Distances::kFar) return std::nullopt;
      cells_left_ -= cells;
      Distances before(rows, columns, beyond);
      for (std::size_t i = 0; i <= rows; ++i) {
        for (std::size_t j = before.begin(i); j < before.end(i, columns); ++j) {
          std::uint16_t& cell = before.at(i, j);
          if (i == 0 || j == 0) {
            cell = static_cast<std::uint16_t>(i + j);
          } else if (alike(i - 1, j - 1)) {
            cell = before.at(i - 1, j - 1);
          } else {
            cell = Distances::one_more(before.at(i - 1, j), before.at(i, j - 1));
          }
        }
      }
      const std::uint32_t least = before.at(rows, columns);
      if (least > std::max(rows, columns) - std::min(rows, columns) + 2 * beyond) continue;
      Distances after(rows, columns, beyond);
      for (std::size_t i = rows + 1; i-- > 0;) {
        for (std::size_t j = after.end(i, columns); j-- > after.begin(i);) {
          std::uint16_t& cell = after.at(i, j);
          if (i == rows || j == columns) {
            cell = static_cast<std::uint16_t>(rows - i + columns - j);
          } else if (alike(i, j)) {
            cell = after.at(i + 1, j + 1);
          } else {
            cell = Distances::one_more(after.at(i + 1, j), after.at(i, j + 1));
          }
        }
      }
      Matches matches(rows, kUnmatched);
      for (std::size_t i = 0; i < rows; ++i) {
        std::size_t found = kUnmatched;
        std::size_t ways = 0;
        for (std::size_t j = before.begin(i); j < before.end(i, columns) && ways < 2; ++j) {
          if (before.at(i, j) + 1u + after.at(i + 1, j) == least) {
            ways = 2;  // left out
          } else if (j < columns && alike(i, j) && before.at(i, j) + after.at(i + 1, j + 1) == least) {
            found = j;
            ++ways;
          }
        }
        if (ways == 1) matches[i] = found;
      }
      return Alignment{std::move(matches), least};
    }
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
      if (has_place(joined_[i]) || unnamed_threads_.contains(timed_[i].thread)) continue;
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
  const Sequences timed_sequences_;
  const Sequences named_sequences_;
  std::unordered_set<std::uint32_t> unnamed_threads_;  // of `timed`, with nothing to compare
  std::vector<JoinedPlace> joined_;
  // Cells of the tables of distances: 16 MiB at once, some tenths of a second in total.
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
