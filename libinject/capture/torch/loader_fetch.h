// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch reports each batch that is requested from a DataLoader: its iterators wrap `__next__` in a
// RecordFunction of user scope, named `enumerate(DataLoader)#CLASS.__next__`. The name is fixed when the
// iterator is created, and shows whether there are worker processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string_view>

#include "libinject/model/records.h"

namespace inject {

/// The kind of fetch of a user-scope function with this name; empty if it is not a fetch.
constexpr std::optional<FetchKind> fetch_kind(std::string_view name) noexcept {
  if (!name.starts_with("enumerate(DataLoader)#") || !name.ends_with(".__next__")) return std::nullopt;
  const bool has_workers = name.find("MultiProcessing") != std::string_view::npos;
  return has_workers ? FetchKind::kWaiting : FetchKind::kProcessing;
}

/// The training thread, while it is in a fetch from a loader with workers: used when sampling the workers. 0:
/// none.
inline constinit std::atomic<pid_t> fetching_thread{0};

/// A fetch begins on the calling thread; `function` is PyTorch's object for it. Of nested fetches, the
/// outermost counts.
void fetch_begins(const void* function, FetchKind kind) noexcept;
/// Called at the end of any function.
void fetch_ends(const void* function) noexcept;

}  // namespace inject
