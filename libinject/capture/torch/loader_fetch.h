// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch tells of each batch that a DataLoader is asked for: its iterators wrap `__next__` in a
// RecordFunction of user scope, named `enumerate(DataLoader)#CLASS.__next__`. The name is made as the
// iterator is, and says whether there are worker processes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string_view>

#include "libinject/model/records.h"

namespace inject {

/// What a function of user scope with that name is, if it is such a fetch.
constexpr std::optional<FetchKind> fetch_kind(std::string_view name) noexcept {
  if (!name.starts_with("enumerate(DataLoader)#") || !name.ends_with(".__next__")) return std::nullopt;
  const bool has_workers = name.find("MultiProcessing") != std::string_view::npos;
  return has_workers ? FetchKind::kWaiting : FetchKind::kProcessing;
}

/// The thread that is in a fetch of a loader with workers, the one that trains: for whoever looks at the
/// workers. 0: none is.
inline constinit std::atomic<pid_t> fetching_thread{0};

/// It begins on the calling thread; `function` is PyTorch's object for it. Of fetches within fetches, the
/// outermost counts.
void fetch_begins(const void* function, FetchKind kind) noexcept;
/// Any function ends.
void fetch_ends(const void* function) noexcept;

}  // namespace inject
