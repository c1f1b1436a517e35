// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The Python stack of a program thread, read by ours while the thread runs.
//
// Nothing stops the thread meanwhile, so its frames may come and go while they are read. They are read three
// times: the outermost part that is the same in all readings existed all the time in between. In a loop of
// calls that take a few microseconds, less than a reading, a frame may have gone and come back each time:
// then one in some thousand stacks has a function below a line that did not call it. The kernel copies the
// memory, so that freed memory causes no fault, and what is read counts only if it has the required types
// (frame_reader.h has been tested by then).
//
// It takes some tens of system calls, mostly one for each page that has frames, code objects, their names and
// line tables.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/capture/python/untrusted_memory.h"
#include "libinject/record/code_places.h"

namespace inject {

/// Which thread is read: one that launches and runs Python, preferably the process's main thread.
class SampledThread {
 public:
  /// Offers the calling thread, which has a frame. Any number of threads; no lock.
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

/// Reads stacks, for one thread of ours. Takes a few milliseconds at most, whatever is found in the frames'
/// memory. If a stack is deeper than kMaxFrames, its innermost frames are placed below [outer frames], minus
/// those by which it has grown or shrunk meanwhile.
class ThreadStacks {
 public:
  /// The node of the stack's innermost frame; 0 if it is unknown. `state`: a thread's PyThreadState, which
  /// may be gone.
  std::uint32_t read(const void* state, CodePlaces& places) noexcept;

 private:
  static constexpr std::size_t kMaxFrames = 128;
  static constexpr int kAttempts = 4;
  static constexpr int kReadings = 8;

  struct Frame {
    const void* frame = nullptr;
    const void* code = nullptr;
    std::int64_t unit = 0;  // its position in the code; -1 before the first
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
    kTorn,     // it changed during the reading
    kWhole,    // up to the outermost frame, or kMaxFrames
  };

  Reading read_chain(const void* state, Chain& chain) noexcept;
  bool read_whole(const void* state, Chain& chain) noexcept;
  std::size_t read_lines(const void* table) noexcept;
  bool read_code(Frame& frame, NameTable& names) noexcept;
  static void keep(Chain& chain, std::size_t begin, std::size_t end) noexcept;
  static void keep_common(Chain& chain, const Chain& other) noexcept;
  bool read_stable(const void* state, NameTable& names) noexcept;

  VolatileMemory memory_;
  Chain first_;
  Chain second_;
  std::array<unsigned char, std::size_t{1} << 16u> lines_;
};

}  // namespace inject
