// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/buffer_callbacks.h"

#include "libinject/base/clock.h"
#include "libinject/record/control.h"

namespace inject {

constinit BufferCallbackState buffer_callback_state;

namespace {

// Adds its lifetime to the callbacks' time: some 50 ns per buffer of thousands of records.
class CallbackTimer {
 public:
  CallbackTimer() noexcept : since_(now()) {}
  ~CallbackTimer() { buffer_callback_state.time.fetch_add(now() - since_, std::memory_order_relaxed); }
  CallbackTimer(const CallbackTimer&) = delete;
  CallbackTimer& operator=(const CallbackTimer&) = delete;

 private:
  Nanoseconds since_;
};

}  // namespace

void CUPTIAPI on_buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  const CallbackTimer timer;
  ActivityBuffers* buffers = buffer_callback_state.buffers.load(std::memory_order_acquire);
  const ActivityBuffers::Buffer taken =
      buffers == nullptr ? ActivityBuffers::Buffer{}
                         : buffers->take(current_generation.load(std::memory_order_relaxed));
  *buffer = taken.data;
  *size = taken.bytes;
  *max_records = 0;
}

void CUPTIAPI on_buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                  std::size_t valid) {
  const CallbackTimer timer;
  count_dropped_records(context, stream);
  ActivityBuffers* buffers = buffer_callback_state.buffers.load(std::memory_order_acquire);
  if (buffers != nullptr) buffers->complete(buffer, valid);
}

void count_dropped_records(CUcontext context, std::uint32_t stream) noexcept {
  std::size_t dropped = 0;
  auto* get_dropped = buffer_callback_state.get_dropped.load(std::memory_order_acquire);
  if (get_dropped != nullptr && get_dropped(context, stream, &dropped) == CUPTI_SUCCESS)
    buffer_callback_state.dropped.fetch_add(dropped, std::memory_order_relaxed);
}

}  // namespace inject
