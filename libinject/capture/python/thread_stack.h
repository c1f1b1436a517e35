// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The Python stack of a thread of the program, read by ours while it runs.
//
// Nothing stops the thread meanwhile, so its frames may come and go while they are read. They are read three
// times: what is outermost and the same in all readings was there all the time in between. In a loop of calls
// that take a few microseconds, less than a reading, a frame may have gone and come back each time: then one
// of some thousand stacks has a function below a line that did not call it. The kernel copies the memory, so
// that what is gone is no fault, and what is read counts only if it has the types that it must have
// (frame_reader.h has been tested by then).
//
// It takes some tens of system calls, mostly one for each page that has frames, code objects, their names and
// tables of lines.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/capture/python/doubtful_memory.h"
#include "libinject/record/code_places.h"

namespace inject {

/// Which thread is read: one that launches and runs Python, the process's main thread rather than another.
class SampledThread {
 public:
  /// For the calling thread, which has a frame. Any number of threads; no lock.
  void offer(std::uint32_t index) noexcept;
  void clear() noexcept;

  struct Chosen {
    std::uint32_t index = 0;
    const void* state = nullptr;  ///< PyThreadState; null: none
  };
  Chosen chosen() const noexcept;

 private:
  std::atomic<std::uint32_t> index_{0};
  std::atomic<const void*> state_{nullptr};
  std::atomic<bool> is_main_{false};
};

/// Reads stacks, for one thread of ours. Bounded, whatever is where the frames should be: a few milliseconds.
/// Of a stack deeper than kMaxFrames the innermost frames are below [outer frames], less those by which it
/// has grown or shrunk meanwhile.
class ThreadStacks {
 public:
  /// The node of the stack's innermost frame; 0 if it can't be told. `state`: a thread's PyThreadState, which
  /// may be gone.
  std::uint32_t read(const void* state, CodePlaces& places) noexcept;

 private:
  static constexpr std::size_t kMaxFrames = 128;
  static constexpr int kAttempts = 4;
  static constexpr int kReadings = 8;

  struct Frame {
    const void* frame = nullptr;
    const void* code = nullptr;
    std::int64_t unit = 0;  // of the code, where it is; -1 before the first
    std::uint32_t name = 0;
    std::uint32_t file = 0;
    std::uint32_t line = 0;
  };
  struct Chain {
    std::array<Frame, kMaxFrames> frames;  // innermost first
    std::size_t count = 0;
    bool is_cut = false;  // there are more
  };

  enum class Reading : std::uint8_t {
    kNothing,  // no frame, or none that may be read
    kTorn,     // it changed meanwhile
    kWhole,    // up to the outermost frame, or kMaxFrames
  };

  Reading read_chain(const void* state, Chain& chain) noexcept;
  bool read_whole(const void* state, Chain& chain) noexcept;
  std::size_t read_lines(const void* table) noexcept;
  bool read_code(Frame& frame, NameTable& names) noexcept;
  static void keep(Chain& chain, std::size_t begin, std::size_t end) noexcept;
  static void keep_common(Chain& chain, const Chain& other) noexcept;
  bool read_stable(const void* state, NameTable& names) noexcept;

  ChangingMemory memory_;
  Chain first_;
  Chain second_;
  std::array<unsigned char, std::size_t{1} << 16u> lines_;
};

}  // namespace inject
