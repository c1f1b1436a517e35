// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/call_times.h"

#include <array>
#include <string_view>

#include "libinject/analysis/copies.h"

namespace inject {

namespace {

/// By CUpti_ActivityMemcpyKind, in Nsight Systems' wording; the last one, for memsets, is ours.
constexpr std::array<std::string_view, 12> kOperations{
    "[CUDA memcpy Unknown]",         "[CUDA memcpy Host-to-Device]",  "[CUDA memcpy Device-to-Host]",
    "[CUDA memcpy Host-to-Array]",   "[CUDA memcpy Array-to-Host]",   "[CUDA memcpy Array-to-Array]",
    "[CUDA memcpy Array-to-Device]", "[CUDA memcpy Device-to-Array]", "[CUDA memcpy Device-to-Device]",
    "[CUDA memcpy Host-to-Host]",    "[CUDA memcpy Peer-to-Peer]",    "[CUDA memset]"};

// Index in kOperations, after the copies.
constexpr std::uint32_t kMemset = kPeerToPeer + 1;
static_assert(kMemset + 1 == kOperations.size());

constexpr std::array<std::string_view, kMemoryKinds> kMemoryKindNames{
    "Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"};

std::vector<TimeRow> rows_of(const std::vector<SampleStats>& operations) {
  std::vector<TimeRow> rows;
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    if (operations[i].count() != 0) rows.push_back({kOperations[i], &operations[i]});
  }
  sort_by_total(rows);
  return rows;
}

}  // namespace

std::uint32_t operation_of(const TransferEvent& event) {
  if (event.memset) return kMemset;
  if (event.copy_kind == 0 && event.peer) return kPeerToPeer;
  return event.copy_kind <= kPeerToPeer ? event.copy_kind : 0;
}

std::string_view operation_name(const TransferEvent& event) {
  return kOperations[operation_of(event)];
}

std::string_view direction_name(std::uint32_t operation) {
  constexpr std::string_view kBefore = "[CUDA memcpy ";
  if (operation >= kMemset) return {};
  const std::string_view name = kOperations[operation];
  return name.substr(kBefore.size(), name.size() - kBefore.size() - 1);
}

std::string_view memory_kind_name(std::uint8_t kind) {
  return kMemoryKindNames[kind < kMemoryKinds ? kind : 0];
}

std::vector<TimeRow> ApiTable::rows() const {
  std::vector<TimeRow> rows;
  for (const std::uint32_t i : rows_.indices()) {
    const auto function = [&] { return static_cast<FunctionId>(keys_.key(i)[0]); };
    rows.push_back({i == kOtherIndex ? kOtherName : function_name(function()), &rows_[i]});
  }
  sort_by_total(rows);
  return rows;
}

OperationTable::OperationTable(SampleBudget& budget) {
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    times_.emplace_back(&budget);
    sizes_.emplace_back(&budget);
  }
}

void OperationTable::add(std::uint32_t operation, std::uint64_t duration, std::uint64_t bytes) {
  times_[operation].add(duration);
  sizes_[operation].add(bytes);
}

std::vector<TimeRow> OperationTable::times() const {
  return rows_of(times_);
}

std::vector<TimeRow> OperationTable::sizes() const {
  return rows_of(sizes_);
}

}  // namespace inject
