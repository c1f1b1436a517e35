// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/nvtx_trigger.h"

#include "libinject/base/text.h"

namespace inject {

RangeNames::RangeNames(const WindowSpec& spec)
    : armed_(spec.kind == WindowKind::kNvtx), name_(spec.name), domain_(spec.domain) {
  default_domain_ = watches_domain({});
}

NvtxTrigger::NvtxTrigger(const WindowSpec& spec) : RangeNames(spec) {
  for (std::atomic<std::uint64_t>& other : others_) other.store(kNone, std::memory_order_relaxed);
}

bool RangeNames::watches_name(std::string_view message) const noexcept {
  return armed_ && glob_matches(name_, message);
}

bool RangeNames::watches_domain(std::string_view name) const noexcept {
  return armed_ && glob_matches(domain_, name);
}

void NvtxTrigger::opened() noexcept {
  any_.store(true, std::memory_order_relaxed);
  open_.fetch_add(1, std::memory_order_seq_cst);
  tell();
}

void NvtxTrigger::closed() noexcept {
  open_.fetch_sub(1, std::memory_order_seq_cst);
  tell();
}

void NvtxTrigger::tell() const noexcept {
  if (const Listener listener = listener_.load(std::memory_order_seq_cst)) listener();
}

void NvtxTrigger::passed_over(std::uint32_t message, std::uint32_t domain) noexcept {
  const std::uint64_t pair = std::uint64_t{domain} << 32 | message;
  for (std::atomic<std::uint64_t>& other : others_) {
    std::uint64_t there = other.load(std::memory_order_relaxed);
    if (there == kNone && other.compare_exchange_strong(there, pair, std::memory_order_relaxed)) return;
    if (there == pair) return;
  }
}

std::string NvtxTrigger::why_none(const NameTable& names) const {
  if (any_.load(std::memory_order_relaxed))
    return "such NVTX ranges were open only before CUDA was initialised";
  std::string seen;
  for (const std::atomic<std::uint64_t>& other : others_) {
    const std::uint64_t pair = other.load(std::memory_order_relaxed);
    if (pair == kNone) break;
    if (!seen.empty()) seen += ", ";
    seen += quoted(names.name(static_cast<std::uint32_t>(pair)));
    const std::string_view domain = names.name(static_cast<std::uint32_t>(pair >> 32));
    if (!domain.empty()) seen += "@" + quoted(domain);
  }
  if (seen.empty()) return "the program opened no NVTX range";
  const bool more = others_.back().load(std::memory_order_relaxed) != kNone;
  return "no such NVTX range was opened; the first ones opened were " + seen + (more ? ", ..." : "");
}

}  // namespace inject
