// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "libinject/model/code_place.h"

namespace inject {

/// A kernel as it was launched.
struct LaunchedKernel {
  std::uint32_t exact = 0;  ///< its name, launch shape and library call's shape: equal numbers, equal kernels
  std::uint32_t coarse = 0;  ///< what it has in common with its like of other sizes
  std::uint32_t thread = 0;
  std::uint32_t iteration = 0;
  std::uint32_t family = 0;  ///< what kind of work it is; 0: not known
};

/// What a kernel that is named computes: numbers that mean something to the caller, and these.
inline constexpr std::uint32_t kNoWork = 0;
inline constexpr std::uint32_t kUnknownWork = ~std::uint32_t{0};

struct JoinedPlace {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::uint32_t place = 0;  ///< 0 where it is not certain
  /// The first one in `named` that it was compared with; kNone where it is one of several of one place.
  std::uint32_t named = kNone;
  std::uint32_t work = kUnknownWork;
};

/// Whether an incomplete place may be the same as a complete one.
using MayBeSame = std::function<bool(std::uint32_t incomplete, std::uint32_t complete)>;

/// What several launches that do the same say of a place: 0 if it is not known, kIncompletePlace if it lacks
/// something.
class PlaceVote {
 public:
  void add(std::uint32_t place) {
    if (place == 0) return;
    const std::uint32_t number = place & ~kIncompletePlace;
    if (number == place) {
      disagree_ = disagree_ || (complete_ != 0 && complete_ != number);
      complete_ = number;
    } else if (incomplete_[0] == 0 || incomplete_[0] == number) {
      incomplete_[0] = number;
    } else {
      disagree_ = disagree_ || (incomplete_[1] != 0 && incomplete_[1] != number);
      incomplete_[1] = number;
    }
  }
  /// 0 if they disagree. `may_be`: without it an incomplete place does not contradict a complete one.
  std::uint32_t place(const MayBeSame& may_be = {}) const {
    if (disagree_) return 0;
    if (complete_ == 0) return incomplete_[1] != 0 ? 0 : incomplete_[0];
    for (const std::uint32_t incomplete : incomplete_)
      if (incomplete != 0 && incomplete != complete_ && may_be && !may_be(incomplete, complete_)) return 0;
    return complete_;
  }

 private:
  std::uint32_t complete_ = 0;
  std::uint32_t incomplete_[2] = {};  // different ones
  bool disagree_ = false;
};

/// For each kernel of `timed` the place of the kernel that does the same in `named`, iterations whose
/// places are known. Both are in the order of their launches; `places[i]` is of
/// `named[i]`, 0 where it is not known, with kIncompletePlace where it lacks something: then a complete one
/// counts instead, if `may_be` says that they may be the same.
///
/// The kernels that a thread launches in an iteration are a sequence. One of `timed` takes its places
///   1. from the sequences of `named` of the same thread that have the same kernels (or, if there are none,
///      the same coarse ones), by position; where these have different places at one position, none;
///   2. else from the sequence of that thread that has most coarse kernels in common with it, up to the first
///      difference and from the last one on. That other kernels have taken a kernel's place is no difference:
///      libraries choose others for other sizes, and more of them or fewer, unless less than a quarter of
///      the two is in common. What every longest common
///      subsequence matches in the same way is the same; if between two of these there are kernels of a
///      common family on both sides, and none that are alike, they were replaced. Each then gets the place
///      that all those of its family have there;
///   3. or from the sequence of that thread with which it shares the longest beginning and end, of the same
///      kernels or of coarse ones, if these are longer: what lies in between has been added or left out.
///      Where a beginning and an end overlap, it can't be told which of the kernels in there were added, and
///      they get none.
/// A thread that launched nothing in `named` takes the sequences of all others. A kernel that has no place
/// then gets that of its like in `named`, if all these have the same, and it is launched there several times
/// in an iteration, or here no more often.
///
/// Where equal parts of an iteration are left out at random, as layers are by stochastic depth, equal
/// sequences need not be the same layers.
///
/// `works[i]` is what `named[i]` computes. The same kernels may compute more or less: a grid need not show
/// the sizes. So a kernel of `timed` takes that only from sequences of the same kernels, of which there must
/// be two or more, and all that know it have to agree; otherwise it is kUnknownWork. Where none knows it, no
/// operator has been heard of on that thread: kNoWork.
std::vector<JoinedPlace> join_places(std::span<const LaunchedKernel> timed,
                                     std::span<const LaunchedKernel> named,
                                     std::span<const std::uint32_t> places,
                                     std::span<const std::uint32_t> works = {}, const MayBeSame& may_be = {});

/// For each kernel the first one that a sequence of the same thread, with the same coarse kernels, has at its
/// position: itself if there is no earlier one.
std::vector<std::uint32_t> first_alike(std::span<const LaunchedKernel> kernels);

}  // namespace inject
