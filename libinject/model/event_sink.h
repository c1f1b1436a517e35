// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/model/events.h"

namespace inject {

/// Receives the raw events assembled by the drain, on the drain's thread. A sink overrides the functions it
/// needs. `attachment`: CUPTI's, within which correlation ids are unique.
class EventSink {
 public:
  EventSink() = default;
  EventSink(const EventSink&) = delete;
  EventSink& operator=(const EventSink&) = delete;
  virtual ~EventSink() = default;

  virtual void add(const KernelEvent& /*event*/, std::uint16_t /*attachment*/) {}
  virtual void add(const TransferEvent& /*event*/, std::uint16_t /*attachment*/) {}
  virtual void add(const CallEvent& /*event*/, std::uint16_t /*attachment*/) {}
  virtual void add(const ProcessorTimeEvent& /*event*/) {}
  virtual void add(const RangeEvent& /*event*/) {}
  virtual void add(const IterationBoundary& /*boundary*/) {}
};

}  // namespace inject
