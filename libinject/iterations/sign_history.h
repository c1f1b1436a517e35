// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/iterations/step_cycle.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/launch_sign.h"

namespace inject {

/// What the search for iterations has seen of a program: the latest signs in order (events), what is known
/// about each kind of event, and where the program ran on unobserved. An event's position is its number in
/// the whole stream.
///
/// Bounded: 2^20 events (16 MB), 2^17 kinds of events (tokens), 8,192 names.
class SignHistory {
 public:
  /// A kind of event: a function, or a function with a launch shape.
  struct Token {
    std::uint64_t hash = 0;
    std::uint64_t first = 0;  // position
    std::uint64_t last = 0;
    std::uint64_t count = 0;
    std::uint32_t function = 0;  // of a function: its own id
    SignKind kind = SignKind::kKernel;
    bool optimizer = false;  // by name
    bool tuning = false;
  };
  struct Event {
    std::uint32_t shape;
    std::uint32_t function : 30;
    std::uint32_t in_step : 1;
    std::uint32_t timed : 1;
    Nanoseconds time;
  };
  struct Gap {
    std::uint64_t position;  // of the first event after the gap
    bool bracketed;
  };

  SignHistory();

  /// Sets the name of a kernel, which may have been seen before.
  void name(std::uint64_t function, std::string_view mangled);
  /// The next event; returns its position.
  std::uint64_t add(const LaunchSign& sign);
  /// A stretch without signs begins (IterationDetector::resume()).
  void add_gap(bool bracketed);

  /// Number of events so far, which is the next one's position.
  std::uint64_t total() const { return total_; }
  /// Position of the first event that is still kept.
  std::uint64_t oldest() const { return total_ > events_.size() ? total_ - events_.size() : 0; }
  const Event& event(std::uint64_t position) const { return events_[position & (events_.size() - 1)]; }
  /// Time of the very first event.
  Nanoseconds first_time() const { return first_time_; }
  /// The gap right before this event; null if there is none.
  const Gap* gap_before(std::uint64_t position) const;
  /// Whether there is a gap after the event at `from`, up to the event at `to`.
  bool has_gap(std::uint64_t from, std::uint64_t to) const;

  /// Upper bound of token ids. Id 0 is used for whatever no longer fits.
  std::size_t tokens() const { return tokens_.size(); }
  const Token& token(std::uint32_t id) const { return tokens_[id]; }
  std::uint32_t token_at(std::uint64_t position, bool by_shape) const {
    return by_shape ? event(position).shape : event(position).function;
  }
  /// The number of events before that position whose function or shape has this hash.
  std::uint64_t count_before(std::uint64_t hash, std::uint64_t position) const;
  /// Whether the event's function or shape has this hash, or its optimizer this mark.
  bool matches(std::uint64_t position, std::uint64_t mark) const {
    const Event& at = event(position);
    const Token& function = tokens_[at.function];
    if (mark == IterationMarks::kAnyWork) return may_begin(function.kind);
    return tokens_[at.shape].hash == mark || function.hash == mark ||
           (function.kind == SignKind::kStep && steps_.has_mark(position, mark));
  }

  /// The program reports its optimizers' steps (SignKind::kStep): kernel names are then ignored, since
  /// kernels that copy parameters have the same names. This holds until it turns out that the program reports
  /// no steps, no more of them, or steps in no order. `few`: StepSequence::expect_few().
  void expect_steps(bool few) {
    steps_expected_ = true;
    if (few) steps_.expect_few();
  }
  bool expects_steps() const { return steps_expected_; }
  const StepSequence& steps() const { return steps_; }
  /// Whether the latest reported step was captured into a CUDA graph, which then contains an iteration's last
  /// step.
  bool step_is_captured() const { return step_captured_; }
  bool knows_by_steps() const { return steps_.cycle().has_value() && !knows_by_names(); }
  /// What comes right before a step is at most so many events before its launches.
  static constexpr std::uint64_t kMaxBeforeStep = 8;
  /// Whether the program could have skipped the step at that position for a gradient that is not finite: to
  /// know that, the host has to read something from the GPU right before the step.
  bool may_skip_step(std::uint64_t position) const;
  /// Whether it is still unknown how the steps repeat.
  bool waits_for_steps() const { return !knows_by_names() && !steps_.cycle(); }
  /// The mark of a step: its class if an iteration has only one step of that class, since its first step
  /// launches more than later ones.
  std::uint64_t step_mark(std::uint32_t id) const {
    const Token& token = tokens_[id];
    return steps_.has_one_of(token.function) ? tokens_[token.function].hash : token.hash;
  }
  bool is_optimizer(const Token& token) const {
    return token.kind == SignKind::kStep ? knows_by_steps() : token.optimizer && knows_by_names();
  }

  /// The same decisions as the watch's (record/iteration_watch.cpp): whether the event begins an iteration, …
  bool begins(std::uint64_t position, const IterationMarks& marks, Anchored anchored) const {
    return may_follow(anchored, event(position).in_step != 0) &&
           (matches(position, marks.begin) || matches(position, marks.other_begin));
  }
  /// … and how near the end the iteration is after it.
  Anchored anchored(std::uint64_t position, const IterationMarks& marks, Anchored before) const {
    if (matches(position, marks.anchor)) return after_anchor(before);
    const bool other = marks.other_anchor != 0 && matches(position, marks.other_anchor);
    return other ? after_other_anchor(before) : before;
  }

  /// Position after the last event of a compiler that tries out kernels; 0 if there was none.
  std::uint64_t tuning_end() const;

  bool has_optimizer() const { return optimizer_end() != 0; }
  /// Position after an optimizer's last event; 0 if there was none.
  std::uint64_t optimizer_end() const {
    return knows_by_steps() ? steps_.end() : knows_by_names() ? optimizer_end_ : 0;
  }
  /// The largest number of events between two of an optimizer's.
  std::uint64_t optimizer_gap() const { return knows_by_steps() ? steps_.longest_gap() : optimizer_gap_; }
  /// Whether kernels of PyTorch have been named.
  bool has_pytorch() const { return pytorch_; }

  /// The token's name, or its kind of call.
  std::string name_of(std::uint32_t id) const;
  /// What has been seen, in a sentence.
  std::string report() const;

 private:
  void add_step(const LaunchSign& sign, const OptimizerStep& step);
  bool knows_by_names() const;
  std::uint32_t token_of(std::uint64_t hash, SignKind kind, std::uint32_t function);

  std::vector<Event> events_;  // a ring, its size a power of two
  std::uint64_t total_ = 0;
  Nanoseconds first_time_ = 0;
  std::vector<Gap> gaps_;  // in order

  std::vector<Token> tokens_;
  std::unordered_map<std::uint64_t, std::uint32_t> ids_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> cache_;  // of ids_
  std::unordered_map<std::uint64_t, std::string> names_;

  bool steps_expected_ = false;
  StepSequence steps_;
  bool step_captured_ = false;
  // By names:
  std::uint64_t optimizer_end_ = 0;
  std::uint64_t optimizer_gap_ = 0;
  bool pytorch_ = false;
};

}  // namespace inject
