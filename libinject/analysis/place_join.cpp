// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/place_join.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "libinject/model/code_place.h"

namespace inject {

namespace {

using Kernels = std::span<const LaunchedKernel>;
using Number = std::uint32_t LaunchedKernel::*;

/// What one thread launched in one iteration: places in the list.
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
       std::span<const std::uint32_t> works)
      : timed_(timed),
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
      take_ends(sequence, others);
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

  bool take_equal(const Sequence& sequence, const std::vector<const Sequence*>& others, Number number) {
    std::vector<PlaceVote> votes;
    std::vector<const Sequence*> equal;
    for (const Sequence* other : others) {
      if (other->size() != sequence.size() ||
          !std::equal(sequence.begin(), sequence.end(), other->begin(),
                      [&](std::uint32_t timed, std::uint32_t named) { return same(timed, named, number); }))
        continue;
      equal.push_back(other);
      votes.resize(sequence.size());
      for (std::size_t i = 0; i < sequence.size(); ++i) votes[i].add(places_[(*other)[i]]);
    }
    if (equal.empty()) return false;
    const bool works_known = number == &LaunchedKernel::exact && equal.size() > 1 && !works_.empty();
    for (std::size_t i = 0; i < votes.size(); ++i) {
      const std::uint32_t work = works_known ? common_work(equal, i) : kUnknownWork;
      joined_[sequence[i]] = {votes[i].place(), (*equal.front())[i], work};
    }
    return true;
  }

  /// What all sequences that know it have at that position.
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

  /// How far two sequences agree from their beginnings and from their ends, each without what belongs to both
  /// of the shorter one: that could be matched in two ways.
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

  void take_ends(const Sequence& sequence, const std::vector<const Sequence*>& others) {
    Ends best;
    for (const Number number : {&LaunchedKernel::exact, &LaunchedKernel::coarse}) {
      for (const Sequence* other : others) {
        const Ends ends = ends_of(sequence, *other, number);
        if (ends.begin + ends.end > best.begin + best.end) best = ends;
      }
    }
    for (std::size_t i = 0; i < best.begin; ++i) joined_[sequence[i]] = joined((*best.other)[i]);
    for (std::size_t i = 0; i < best.end; ++i)
      joined_[sequence[sequence.size() - 1 - i]] = joined((*best.other)[best.other->size() - 1 - i]);
  }

  /// How often each kernel is launched in the iteration that launches it most.
  static std::unordered_map<std::uint32_t, std::uint32_t> most_of(Kernels kernels) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> counts;
    std::unordered_map<std::uint32_t, std::uint32_t> most;
    for (const LaunchedKernel& kernel : kernels) {
      std::uint32_t& found = most[kernel.exact];
      found = std::max(found, ++counts[{kernel.exact, kernel.iteration}]);
    }
    return most;
  }

  /// Those that have no place yet get that of their like, where it has only one.
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
      // One more than there is a place for may be another place's; in a loop it is not.
      const std::uint32_t most = named_most.at(kernel);
      if (most > 1 || timed_most.at(kernel) <= most)
        joined_[i] = {found->second.vote.place(), most > 1 ? JoinedPlace::kNone : found->second.first,
                      joined_[i].work};
    }
  }

  JoinedPlace joined(std::uint32_t named) const { return {places_[named] & ~kIncompletePlace, named}; }

  Kernels timed_;
  Kernels named_;
  std::span<const std::uint32_t> places_;
  std::span<const std::uint32_t> works_;
  const Sequences named_sequences_;
  std::vector<JoinedPlace> joined_;
};

}  // namespace

std::vector<JoinedPlace> join_places(std::span<const LaunchedKernel> timed,
                                     std::span<const LaunchedKernel> named,
                                     std::span<const std::uint32_t> places,
                                     std::span<const std::uint32_t> works) {
  return Join(timed, named, places, works).run();
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
