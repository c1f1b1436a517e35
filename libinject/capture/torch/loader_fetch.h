// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch reports each batch that is requested from a DataLoader: its iterators wrap `__next__` in a
// RecordFunction of user scope, named `enumerate(DataLoader)#CLASS.__next__`. The name is made as the
// iterator is, and says whether there are worker processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string_view>

#include "libinject/model/records.h"

namespace inject {

/// The kind of fetch that a function of user scope with that name is; empty if it is none.
constexpr std::optional<FetchKind> fetch_kind(std::string_view name) noexcept {
  if (!name.starts_with("enumerate(DataLoader)#") || !name.ends_with(".__next__")) return std::nullopt;
  const bool has_workers = name.find("MultiProcessing") != std::string_view::npos;
  return has_workers ? FetchKind::kWaiting : FetchKind::kProcessing;
}

/// The training thread, while it is in a fetch of a loader with workers: for whoever samples the
/// workers. 0: it is in none.
inline constinit std::atomic<pid_t> fetching_thread{0};

/// It begins on the calling thread; `function` is PyTorch's object for it. Of fetches within fetches, the
/// outermost counts.
void fetch_begins(const void* function, FetchKind kind) noexcept;
/// Any function ends.
void fetch_ends(const void* function) noexcept;

}  // namespace inject
