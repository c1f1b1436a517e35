// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The Python stack of a thread of the program, read by ours while it runs.
//
// Nothing stops the thread meanwhile, so its frames may come and go while they are read. They are read twice:
// what is outermost and the same in both readings was there all the time in between. The kernel copies the
// memory, so that what is gone is no fault, and what is read counts only if it has the types that it must
// have (frame_reader.h has been tested by then).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

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

/// Reads stacks, for one thread of ours. Remembers the names of code that it has seen.
class ThreadStacks {
 public:
  /// The node of the stack's innermost frame; 0 if it can't be told. `state`: a thread's PyThreadState, which
  /// may be gone.
  std::uint32_t read(const void* state, CodePlaces& places) noexcept;

 private:
  static constexpr std::size_t kMaxFrames = 128;
  static constexpr std::size_t kMaxCode = 1024;
  static constexpr int kReadings = 4;

  struct Frame {
    const void* frame = nullptr;
    const void* code = nullptr;
    std::int64_t unit = 0;  // of the code, where it is; -1 before the first
  };
  struct Chain {
    std::vector<Frame> frames;  // innermost first
    bool is_whole = false;      // up to the outermost one, or to kMaxFrames
    bool is_cut = false;        // there are more
  };
  /// What tells a code object from another that has got its address.
  struct CodeKey {
    const void* code = nullptr;
    const void* name = nullptr;
    const void* file = nullptr;
    const void* lines = nullptr;
    std::int32_t first_line = 0;
    bool operator==(const CodeKey&) const = default;
  };
  struct Code {
    CodeKey key;
    std::uint32_t name = 0;
    std::uint32_t file = 0;
    std::vector<unsigned char> lines;
  };

  void read_chain(const void* state, Chain& chain);
  const Code* code(const void* address, CodePlaces& places);

  std::vector<Code> codes_;
};

}  // namespace inject
