// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// CUPTI requests empty buffers for activity records and returns full ones, on its own threads or the
// program's.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/base/time.h"
#include "libinject/record/buffers.h"

namespace inject {

/// The source of buffers, and counters. Initialised at compile time and never destroyed.
struct BufferCallbackState {
  std::atomic<ActivityBuffers*> buffers{nullptr};
  std::atomic<decltype(&::cuptiActivityGetNumDroppedRecords)> get_dropped{nullptr};
  std::atomic<std::uint64_t> dropped{0};  ///< records, by CUPTI itself
  std::atomic<Nanoseconds> time{0};       ///< in the callbacks, on all threads
};
extern BufferCallbackState buffer_callback_state;

void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records);
void CUPTIAPI on_buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                  std::size_t valid);

/// Adds the number of records that CUPTI has dropped since the last query.
void count_dropped_records(CUcontext context, std::uint32_t stream) noexcept;

}  // namespace inject
