// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/library_table.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace inject {

namespace {

KeyIndex<2>::Key chain_key(CallChain chain) {
  return {static_cast<std::uint32_t>(chain), static_cast<std::uint32_t>(chain >> 32)};
}

CallChain key_chain(const KeyIndex<2>::Key& key) {
  return static_cast<CallChain>(key[1]) << 32 | key[0];
}

/// `chain` without its innermost call.
CallChain chain_parent(CallChain chain) {
  const unsigned depth = chain_depth(chain);
  return depth <= 1 ? 0 : chain & ((CallChain{1} << (16 * (depth - 1))) - 1);
}

/// The library calls of a chain, without the other calls between them.
CallChain library_chain(CallChain chain) {
  CallChain path = 0;
  for (unsigned level = 0; level < chain_depth(chain); ++level) {
    if (is_library_function(chain_at(chain, level))) path = chain_push(path, chain_at(chain, level));
  }
  return path;
}

std::string path_name(CallChain path) {
  std::string name;
  for (unsigned level = 0; level < chain_depth(path); ++level) {
    if (level != 0) name += " > ";
    name += function_name(chain_at(path, level));
  }
  return name;
}

}  // namespace

bool is_library_function(FunctionId function) {
  switch (function_group(function)) {
    case FunctionGroup::kCublas:
    case FunctionGroup::kCublasLt:
    case FunctionGroup::kCudnn:
    case FunctionGroup::kNccl:
      return function != kNoFunction;
    case FunctionGroup::kCudart:
    case FunctionGroup::kCupti:
    case FunctionGroup::kDriver:
      return false;
  }
  return false;
}

unsigned library_depth(CallChain chain) {
  return chain_depth(library_chain(chain));
}

CallChain library_path(const Attribution& launch) {
  if (launch.chain == 0 && !is_library_function(launch.function)) return 0;
  const CallChain path = library_chain(launch.chain);
  return is_library_function(launch.function) ? chain_push(path, launch.function) : path;
}

void LibraryTable::add_call(const CallEvent& event, std::uint64_t duration) {
  Entry& entry = rows_.at(row(chain_push(library_chain(event.chain), event.function)));
  entry.host.add(duration);
  if (event.status != 0) ++entry.failed;
}

// Also makes rows for the calls around it.
std::uint32_t LibraryTable::row(CallChain path) {
  if (path == last_path_ && last_row_ != kNoIndex) return last_row_;
  const std::uint32_t known = keys_.size();
  const std::uint32_t index = keys_.find_or_add(chain_key(path));
  rows_.at(index);
  if (index == known) {
    for (CallChain outer = chain_parent(path); outer != 0; outer = chain_parent(outer)) {
      rows_.at(keys_.find_or_add(chain_key(outer)));
    }
  }
  last_path_ = path;
  last_row_ = index;
  return index;
}

std::vector<LibraryRow> LibraryTable::rows() const {
  std::vector<DeviceWork> inclusive(keys_.size());
  for (std::uint32_t i = 0; i < keys_.size(); ++i) {
    for (CallChain path = key_chain(keys_.key(i)); path != 0; path = chain_parent(path)) {
      const std::uint32_t index = keys_.find(chain_key(path));
      if (index != kNoIndex) inclusive[index].merge(rows_[i].work);
    }
  }
  std::vector<LibraryRow> rows;
  for (const std::uint32_t i : rows_.indices()) {
    const Entry& entry = rows_[i];
    LibraryRow row;
    row.host = entry.host;
    row.failed = entry.failed;
    row.self = entry.work;
    row.other = i == kOtherIndex;
    if (row.other) {
      row.path = kOtherName;
      row.inclusive = entry.work;
    } else {
      const CallChain path = key_chain(keys_.key(i));
      row.path = path_name(path);
      const unsigned calls = chain_depth(path);
      row.depth = calls == 0 ? 0 : calls - 1;
      row.group = function_group(chain_at(path, row.depth));
      row.inclusive = inclusive[i];
    }
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const LibraryRow& a, const LibraryRow& b) {
    return std::make_tuple(b.inclusive.kernels.sum, b.host.sum, std::string_view(a.path)) <
           std::make_tuple(a.inclusive.kernels.sum, a.host.sum, std::string_view(b.path));
  });
  return rows;
}

}  // namespace inject
