// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/code_places.h"

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
  const std::uint64_t hash = hash_of(std::uint64_t{place.stack} << 32 | place.module, place.op,
                                     static_cast<std::uint64_t>(place.phase));
  return places_.intern(
      hash, [&](const CodePlace& seen) { return seen == place; }, [&] { return place; });
}

void CodePlaces::note_forward(std::uint64_t sequence, std::uint32_t thread, CodeContext context) noexcept {
  if (forward_.items == nullptr) return;
  ForwardOp& op = forward_.items[sequence % kForwardOps];
  const bool same = op.sequence.load(std::memory_order_relaxed) == sequence + 1;
  const bool other = same && op.thread.load(std::memory_order_relaxed) != thread;
  op.stack.store(context.stack, std::memory_order_relaxed);
  op.module.store(context.module, std::memory_order_relaxed);
  op.thread.store(other ? kSeveralThreads : thread, std::memory_order_relaxed);
  op.sequence.store(sequence + 1, std::memory_order_release);
}

CodeContext CodePlaces::forward(std::uint64_t sequence) const noexcept {
  if (forward_.items == nullptr) return {};
  const ForwardOp& op = forward_.items[sequence % kForwardOps];
  if (op.sequence.load(std::memory_order_acquire) != sequence + 1 ||
      op.thread.load(std::memory_order_relaxed) == kSeveralThreads)
    return {};
  return {op.stack.load(std::memory_order_relaxed), op.module.load(std::memory_order_relaxed)};
}

}  // namespace inject
