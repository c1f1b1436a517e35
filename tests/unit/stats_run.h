// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <initializer_list>
#include <string_view>

#include "libinject/model/run_info.h"
#include "libinject/record/code_places.h"
#include "libinject/stats/statistics.h"
#include "tests/unit/catch.h"

namespace inject {

/// Statistics with the tables that they refer to, and events to feed into them.
struct StatsRun {
  NameTable names{100'000, std::size_t{16} << 20};
  RangeTree tree{100'000};
  ShapeTable shapes{1000};
  CodePlaces places{names};
  Statistics statistics{names, tree, shapes};

  std::uint32_t range(std::uint32_t parent, std::string_view name, RangeStyle style = RangeStyle::kPushPop) {
    return tree.child(parent, names.intern(name), 0, style);
  }

  KernelEvent kernel(std::string_view name, Nanoseconds duration) {
    KernelEvent event;
    event.launch.known = true;
    event.launch.window = 1;
    event.launch.function = find_function("cudaLaunchKernel");
    event.start = 1000;
    event.end = 1000 + duration;
    event.name = names.intern(name);
    event.grid = {1, 1, 1};
    event.block = {32, 1, 1};
    return event;
  }

  void add_range(std::uint32_t node, Nanoseconds begin, Nanoseconds end, std::uint32_t thread = 0,
                 bool clipped = false) {
    RangeEvent event;
    event.node = node;
    event.window = 1;
    event.thread = thread;
    event.begin = begin;
    event.end = end;
    event.clipped = clipped;
    statistics.add(event);
  }
};

inline CallEvent call_event(std::string_view name, Nanoseconds duration, CallChain chain = 0) {
  CallEvent event;
  event.function = find_function(name);
  REQUIRE(event.function != kNoFunction);
  event.window = 1;
  event.chain = chain;
  event.begin = 500;
  event.end = 500 + duration;
  return event;
}

inline CallChain chain_of(std::initializer_list<std::string_view> names) {
  CallChain chain = 0;
  for (const std::string_view name : names) {
    REQUIRE(find_function(name) != kNoFunction);
    chain = chain_push(chain, find_function(name));
  }
  return chain;
}

inline TransferEvent copy_event(std::uint8_t kind, std::uint64_t bytes, Nanoseconds duration) {
  TransferEvent event;
  event.launch.known = true;
  event.launch.window = 1;
  event.copy_kind = kind;
  event.bytes = bytes;
  event.start = 10;
  event.end = 10 + duration;
  return event;
}

inline TransferEvent memset_event(std::uint64_t bytes, Nanoseconds duration) {
  TransferEvent event = copy_event(0, bytes, duration);
  event.memset = true;
  return event;
}

}  // namespace inject
