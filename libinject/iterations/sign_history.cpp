// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/sign_history.h"

#include <algorithm>

#include "libinject/base/format.h"
#include "libinject/iterations/cycle_contents.h"
#include "libinject/iterations/kernel_names.h"

namespace inject {

namespace {

constexpr std::size_t kFirstEvents = std::size_t{1} << 12;
constexpr std::size_t kMaxEvents = std::size_t{1} << 20;
constexpr std::size_t kMaxTokens = std::size_t{1} << 17;
constexpr std::size_t kMaxNames = 8192;
constexpr std::size_t kMaxGaps = 4096;
constexpr std::size_t kCached = 4096;
// A program that reports its optimizers' steps, but has reported none for this long or this many events, has
// optimizers that it does not report (compiled ones, those of other libraries).
constexpr Nanoseconds kStepTime = 20 * kSecond;
constexpr std::uint64_t kStepPatience = 1u << 16;
constexpr std::uint64_t kStepGaps = 64;

}  // namespace

SignHistory::SignHistory() : events_(kFirstEvents), cache_(kCached) {
  tokens_.emplace_back();  // 0: whatever no longer fits
}

void SignHistory::name(std::uint64_t function, std::string_view mangled) {
  if (names_.size() >= kMaxNames) return;
  const auto [at, fresh] = names_.emplace(function, mangled.substr(0, 512));
  if (!fresh) return;
  pytorch_ = pytorch_ || is_pytorch_name(mangled);
  const bool optimizer = is_optimizer_name(mangled);
  const bool tuning = is_tuning_name(mangled);
  // The kernel may have been seen before its name.
  const auto id = ids_.find(function);
  if (id == ids_.end() || (!optimizer && !tuning)) return;
  for (Token& token : tokens_) {
    if (token.function != id->second) continue;
    token.optimizer = optimizer;
    token.tuning = tuning;
  }
  if (optimizer) optimizer_end_ = std::max(optimizer_end_, tokens_[id->second].last + 1);
}

std::uint32_t SignHistory::token_of(std::uint64_t hash, SignKind kind, std::uint32_t function) {
  auto& [cached_hash, cached_id] = cache_[hash % kCached];
  if (cached_hash == hash) return cached_id;
  const auto found = ids_.find(hash);
  if (found != ids_.end()) {
    cached_hash = hash;
    cached_id = found->second;
    return cached_id;
  }
  if (tokens_.size() >= kMaxTokens) return function;
  const auto id = static_cast<std::uint32_t>(tokens_.size());
  Token token;
  token.hash = hash;
  token.first = total_;
  token.kind = kind;
  token.function = function == 0 ? id : function;
  if (function != 0) {
    token.optimizer = tokens_[function].optimizer;
    token.tuning = tokens_[function].tuning;
  } else if (const auto known = names_.find(hash); known != names_.end()) {
    token.optimizer = is_optimizer_name(known->second);
    token.tuning = is_tuning_name(known->second);
  }
  tokens_.push_back(token);
  ids_.emplace(hash, id);
  return id;
}

std::uint64_t SignHistory::add(const LaunchSign& sign) {
  if (total_ >= events_.size() && events_.size() < kMaxEvents) {
    std::vector<Event> larger(events_.size() * 2);
    for (std::uint64_t p = oldest(); p < total_; ++p) larger[p & (larger.size() - 1)] = event(p);
    events_ = std::move(larger);
  }
  const std::uint32_t function = token_of(sign.function, sign.kind, 0);
  const std::uint32_t shape = token_of(sign.shape, sign.kind, function);
  if (total_ == 0) first_time_ = sign.time;
  const std::uint64_t position = total_++;
  events_[position & (events_.size() - 1)] = {shape, function & 0x3FFF'FFFFu, sign.in_step, sign.timed,
                                              sign.time};
  if (shape != function) {
    for (const std::uint32_t id : {function, shape}) {
      ++tokens_[id].count;
      tokens_[id].last = position;
    }
  }
  if (sign.kind == SignKind::kStep)
    add_step(sign, {function, shape, position, sign.stream, sign.optimizer, sign.thread});
  if (tokens_[function].optimizer) {
    if (optimizer_end_ != 0) optimizer_gap_ = std::max(optimizer_gap_, position + 1 - optimizer_end_);
    optimizer_end_ = position + 1;
  }
  return position;
}

void SignHistory::add_step(const LaunchSign& sign, const OptimizerStep& step) {
  steps_.add(step, sign.time);
  step_captured_ = sign.captured;
  if (!steps_.may_be_one()) return;
  std::vector<std::uint64_t> edges;
  while (edges.size() < kMaxEdges) {
    const auto edge = steps_.position(edges.size());
    if (!edge) break;
    edges.push_back(*edge);
  }
  if (all_alike_outside_steps(*this, edges)) steps_.take_for_one();
}

bool SignHistory::knows_by_names() const {
  if (!steps_expected_) return true;
  if (total_ == 0) return false;
  if (!steps_.cycle() && !steps_.is_open()) return true;
  if (steps_.count() == 0) return event(total_ - 1).time - first_time_ >= kStepTime;
  return total_ - steps_.end() > std::max(kStepPatience, kStepGaps * steps_.longest_gap());
}

void SignHistory::add_gap(bool bracketed) {
  if (total_ == 0) return;
  steps_.resume();
  if (!gaps_.empty() && gaps_.back().position == total_) {
    gaps_.back().bracketed = gaps_.back().bracketed && bracketed;  // nothing was launched in between
    return;
  }
  if (gaps_.size() == kMaxGaps) gaps_.erase(gaps_.begin(), gaps_.begin() + kMaxGaps / 2);
  gaps_.push_back({total_, bracketed});
}

const SignHistory::Gap* SignHistory::gap_before(std::uint64_t position) const {
  if (gaps_.empty() || gaps_.back().position < position) return nullptr;
  const auto gap = std::ranges::lower_bound(gaps_, position, {}, &Gap::position);
  return gap->position == position ? &*gap : nullptr;
}

bool SignHistory::may_skip_step(std::uint64_t position) const {
  if (position < oldest()) return false;
  const std::uint64_t launched = steps_.signs_in(position);
  for (std::uint64_t back = launched + 1; back <= launched + kMaxBeforeStep && back <= position - oldest();
       ++back) {
    if (tokens_[event(position - back).function].kind == SignKind::kCopyToHost) return true;
  }
  return false;
}

std::uint64_t SignHistory::count_before(std::uint64_t hash, std::uint64_t position) const {
  const auto id = ids_.find(hash);
  if (id == ids_.end()) return 0;
  std::uint64_t count = tokens_[id->second].count;
  for (std::uint64_t p = std::max(position, oldest()); p < total_; ++p)
    count -= event(p).shape == id->second || event(p).function == id->second;
  return count;
}

std::uint64_t SignHistory::tuning_end() const {
  std::uint64_t end = 0;
  for (const Token& token : tokens_)
    if (token.tuning) end = std::max(end, token.last + 1);
  return end;
}

bool SignHistory::has_gap(std::uint64_t from, std::uint64_t to) const {
  const auto gap = std::ranges::upper_bound(gaps_, from, {}, &Gap::position);
  return gap != gaps_.end() && gap->position <= to;
}

std::string SignHistory::name_of(std::uint32_t id) const {
  const Token& it = tokens_[id];
  const auto found = names_.find(tokens_[it.function].hash);
  if (found != names_.end()) return found->second;
  switch (it.kind) {
    case SignKind::kGraph:
      return "a CUDA graph";
    case SignKind::kCopyToDevice:
      return "a copy to the device";
    case SignKind::kCopyToHost:
      return "a copy to the host";
    case SignKind::kCopy:
      return "a copy";
    case SignKind::kMemset:
      return "a memset";
    case SignKind::kSync:
      return "a synchronization";
    case SignKind::kCall:
      return "a library call";
    case SignKind::kStep:
      return "an optimizer's step";
    default:
      return "a kernel";
  }
}

std::string SignHistory::report() const {
  std::uint64_t work = 0;
  std::size_t kinds = 0;
  for (const Token& token : tokens_) {
    if (token.function == 0 || tokens_[token.function].hash == token.hash) continue;
    ++kinds;
    if (is_work(token.kind)) work += token.count;
  }
  return str_format(
      "{} launches, copies and synchronizations of {} kinds were seen ({} launches and library calls){}",
      total_, kinds, work,
      has_optimizer() ? ", some of an optimizer"
      : pytorch_ ? ", none of a known optimizer: without one PyTorch's iterations are used after 30 s at the "
                   "earliest"
                 : ", none of a known optimizer");
}

}  // namespace inject
