// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "libinject/model/code_place.h"

namespace inject {

/// A kernel as it was launched, or all kernels of a library call.
struct LaunchedKernel {
  std::uint32_t exact = 0;   ///< from name, launch shape and library call's shape: equal numbers, equal
                             ///< kernels; of a call, its first kernel's
  std::uint32_t coarse = 0;  ///< the same for similar kernels of other sizes
  std::uint32_t thread = 0;
  std::uint32_t iteration = 0;
  std::uint32_t family = 0;  ///< kind of work; 0: unknown
  bool is_layer = false;     ///< `coarse` has all sizes but that of the batch
};

/// What a named kernel computes: numbers defined by the caller, and these.
inline constexpr std::uint32_t kNoWork = 0;
inline constexpr std::uint32_t kUnknownWork = ~std::uint32_t{0};

struct JoinedPlace {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::uint32_t place = 0;  ///< 0 if uncertain
  /// The first one in `named` that it was compared with; kNone if it is one of several with the same place.
  std::uint32_t named = kNone;
  std::uint32_t work = kUnknownWork;
};

/// Whether an incomplete place may be the same as a complete one or, where none is known (0), may count as it
/// is.
using MayBeSame = std::function<bool(std::uint32_t incomplete, std::uint32_t complete)>;

/// Combines the places of several equivalent launches: 0 if unknown, with kIncompletePlace if it lacks
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
  /// 0 if they disagree. Without `may_be`, an incomplete place does not contradict a complete one.
  std::uint32_t place(const MayBeSame& may_be = {}) const {
    if (disagree_) return 0;
    if (complete_ == 0)
      return incomplete_[1] != 0 || (may_be && !may_be(incomplete_[0], 0)) ? 0 : incomplete_[0];
    for (const std::uint32_t incomplete : incomplete_)
      if (incomplete != 0 && incomplete != complete_ && may_be && !may_be(incomplete, complete_)) return 0;
    return complete_;
  }

 private:
  std::uint32_t complete_ = 0;
  std::uint32_t incomplete_[2] = {};  // different ones
  bool disagree_ = false;
};

/// Returns, for each kernel of `timed`, the place of the equivalent kernel in `named`, iterations whose
/// places are known. Both are in launch order. `places[i]` is the place of `named[i]`: 0 if unknown, with
/// kIncompletePlace if it lacks something; then a complete one is used instead, if `may_be` says that they
/// may be the same.
///
/// The kernels that a thread launches in an iteration form a sequence. A sequence of `timed` takes its places
///   1. from the sequences of `named` of the same thread that have the same kernels (or, if there are none,
///      the same coarse ones), by position; no place where these sequences have different ones;
///   2. else from the sequence of that thread with which it has the most kernels in common (or, if that gives
///      more of them a place, the most coarse ones), up to the first difference and from the last one on.
///      Replaced kernels are no difference: libraries choose other kernels for other sizes, and more or fewer
///      of them. Skipped if less than a quarter of the longer sequence is in common, or if the comparison
///      takes too long. Kernels that every longest common subsequence matches in the same way are
///      equivalent; if between two of these there are kernels of a common family on both sides, and none that
///      are alike, they were replaced. Each then gets the place that all those of its family have there.
///      Sequences of `named` equal to that one count as in 1.
/// A kernel that alone is another one has no place unless it is the same layer's or sizes vary elsewhere, and
/// neither have replaced ones, if the kernels before and after are the same: no size changed, so it belongs
/// to another branch of the program. A thread that launched nothing in `named` uses the sequences of those
/// that launched nothing in `timed`: one of them may have been started in its place. If there are none, its
/// kernels have no place. Any other kernel without a place gets that of the same kernels in `named`, if these
/// all have the same one, and if it is launched there several times in an iteration, or not more often here.
///
/// Where equal parts of an iteration are left out at random, as layers are by stochastic depth, equal
/// sequences need not be the same layers.
///
/// `works[i]` is the work of `named[i]`. The same kernels may compute more or less: a grid need not show the
/// sizes. A kernel of `timed` therefore takes its work only from sequences of the same kernels, of which
/// there must be at least two, and all that know it must agree; otherwise it is kUnknownWork. If none knows
/// it, no operator was recorded on that thread: kNoWork.
std::vector<JoinedPlace> join_places(std::span<const LaunchedKernel> timed,
                                     std::span<const LaunchedKernel> named,
                                     std::span<const std::uint32_t> places,
                                     std::span<const std::uint32_t> works = {}, const MayBeSame& may_be = {});

/// For each kernel, the one at the same position in the first sequence of the same thread with the same
/// coarse kernels: itself if there is no earlier sequence.
std::vector<std::uint32_t> first_alike(std::span<const LaunchedKernel> kernels);

}  // namespace inject
