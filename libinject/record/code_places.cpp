// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/code_places.h"

#include <array>
#include <cstddef>
#include <utility>

#include "libinject/record/open_operators.h"

namespace inject {

namespace {

std::uint64_t hash_of(std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  return hash_mix(hash_mix(hash_mix(a * kHashSeed) * kHashSeed ^ b) * kHashSeed ^ c);
}

}  // namespace

std::uint32_t CodePlaces::node(const CodeNode& node) noexcept {
  const std::uint64_t hash =
      hash_of(std::uint64_t{node.parent} << 32 | node.name, std::uint64_t{node.detail} << 32 | node.line,
              static_cast<std::uint64_t>(node.kind));
  return nodes_.intern(
      hash, [&](const CodeNode& seen) { return seen == node; }, [&] { return node; });
}

std::uint32_t CodePlaces::place(const CodePlace& place) noexcept {
  const std::uint64_t hash =
      hash_of(std::uint64_t{place.stack} << 32 | place.module, place.op,
              static_cast<std::uint64_t>(place.phase) << 3 | (place.before_operators ? 4u : 0u) |
                  (place.may_recompute ? 2u : 0u) | (place.module_unknown ? 1u : 0u));
  return places_.intern(
      hash, [&](const CodePlace& seen) { return seen == place; }, [&] { return place; });
}

bool CodePlaces::is_below(std::uint32_t node, std::uint32_t ancestor) const noexcept {
  while (node > ancestor) node = nodes_.item(node).parent;  // a parent has a lower number
  return node == ancestor;
}

/// True if the innermost nodes of a chain equal all those of `end`.
bool CodePlaces::ends_in(std::uint32_t chain, std::uint32_t end) const noexcept {
  while (end != 0 && end != chain) {
    if (chain == 0) return false;
    CodeNode one = nodes_.item(chain);
    CodeNode other = nodes_.item(end);
    chain = std::exchange(one.parent, 0);
    end = std::exchange(other.parent, 0);
    if (one != other) return false;
  }
  return true;
}

/// The chain of operators of one place inside that of another; 0 if there is no room.
std::uint32_t CodePlaces::joined(std::uint32_t outer, std::uint32_t inner) noexcept {
  constexpr std::size_t kMaxChain = OpenOperators::kMost;
  std::array<std::uint32_t, kMaxChain> chain;
  std::size_t count = 0;
  for (; inner != 0 && count < kMaxChain; inner = nodes_.item(inner).parent) chain[count++] = inner;
  while (count > 0) {
    CodeNode node = nodes_.item(chain[--count]);
    node.parent = outer;
    outer = this->node(node);
    if (outer == 0) break;
  }
  return outer;
}

// The capture knows more about what is inside it, and the launch about what is around it: a graph launched in
// the backward pass is part of it, however it was captured.
std::uint32_t CodePlaces::replayed(std::uint32_t captured, std::uint32_t launch) noexcept {
  if (captured == 0) return launch;
  if (launch == 0) return captured;
  const auto says_most = [](CodePhase phase) {
    return phase == CodePhase::kBackward || phase == CodePhase::kRecompute || phase == CodePhase::kOptimizer;
  };
  const CodePlace inner = place(captured);
  const CodePlace outer = place(launch);
  CodePlace both = inner;
  if (both.module == 0) {
    both.module = outer.module;
    both.module_unknown = both.module == 0 && (inner.module_unknown || outer.module_unknown);
  }
  if (!says_most(inner.phase) && (says_most(outer.phase) || inner.phase == CodePhase::kOther)) {
    both.phase = outer.phase;
    both.may_recompute = outer.may_recompute;
    // On one of autograd's threads, the stack of the capture begins with the backward pass.
    if (says_most(outer.phase) && inner.module == 0) both.stack = outer.stack;
  }
  if (both.stack == 0) both.stack = outer.stack;
  if (!is_below(inner.op, outer.op)) both.op = joined(outer.op, inner.op);
  if (both.op == 0 && (inner.op | outer.op) != 0) return captured;
  const std::uint32_t number = place(both);
  return number != 0 ? number : captured;
}

bool CodePlaces::may_be_same(std::uint32_t incomplete, std::uint32_t complete) const noexcept {
  const CodePlace part = place(incomplete);
  if (complete == 0) return !part.before_operators;
  const CodePlace whole = place(complete);
  if (!ends_in(whole.op, part.op)) return false;
  const auto is_backward = [](CodePhase phase) {
    return phase == CodePhase::kBackward || phase == CodePhase::kRecompute;
  };
  if (is_backward(whole.phase) && !is_backward(part.phase)) return true;
  return (part.stack == whole.stack || (part.module_unknown && ends_in(whole.stack, part.stack))) &&
         (part.module == whole.module || part.module_unknown);
}

// triton_poi_fused_add_native_layer_norm_2: the kind of kernel, the operators, a number.
std::uint32_t CodePlaces::fused(std::uint32_t place, std::string_view kernel) noexcept {
  constexpr std::string_view kDigits = "0123456789";
  if (!kernel.starts_with("triton_") || kernel.find("_fused_") == std::string_view::npos) return place;
  const std::uint32_t number = place & ~kIncompletePlace;
  CodePlace found = this->place(number);
  if (found.op == 0 || names_.name(node(found.op).name).starts_with("aten::")) return place;
  const std::size_t end = kernel.find_last_not_of(kDigits);
  if (kernel[end] == '_') kernel = kernel.substr(0, end);
  const std::uint32_t op =
      node({CodeNodeKind::kOperator, found.op, names_.intern(kernel), NameTable::kEmpty, 0});
  if (op == 0) return place;
  found.op = op;
  const std::uint32_t inside = this->place(found);
  return inside == 0 ? place : inside | (place & kIncompletePlace);
}

void CodePlaces::note_forward(std::uint64_t sequence, std::uint32_t thread, CodeContext context) noexcept {
  if (forward_.items == nullptr) return;
  ForwardOp& op = forward_.items[sequence % kForwardOps];
  const bool same = op.sequence.load(std::memory_order_relaxed) == sequence + 1;
  const bool other = same && op.thread.load(std::memory_order_relaxed) != thread;
  op.stack.store(context.stack, std::memory_order_relaxed);
  op.module.store(context.module, std::memory_order_relaxed);
  op.object.store(context.object, std::memory_order_relaxed);
  op.module_unknown.store(context.module_unknown, std::memory_order_relaxed);
  op.thread.store(other ? kSeveralThreads : thread, std::memory_order_relaxed);
  op.sequence.store(sequence + 1, std::memory_order_release);
}

std::optional<CodeContext> CodePlaces::forward(std::uint64_t sequence) const noexcept {
  if (forward_.items == nullptr) return std::nullopt;
  const ForwardOp& op = forward_.items[sequence % kForwardOps];
  if (op.sequence.load(std::memory_order_acquire) != sequence + 1 ||
      op.thread.load(std::memory_order_relaxed) == kSeveralThreads)
    return std::nullopt;
  return CodeContext{op.stack.load(std::memory_order_relaxed), op.module.load(std::memory_order_relaxed),
                     op.object.load(std::memory_order_relaxed),
                     op.module_unknown.load(std::memory_order_relaxed)};
}

}  // namespace inject
