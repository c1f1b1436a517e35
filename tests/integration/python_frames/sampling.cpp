// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The functions for reading other threads' stacks that program.py and stacks.py call through ctypes.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/thread_stack.h"
#include "libinject/record/code_places.h"
#include "libinject/record/name_table.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

/// A reader, and the places that it fills.
struct Sampling {
  inject::NameTable names{1u << 16u, std::size_t{1} << 23u};
  inject::CodePlaces places{names};
  inject::ThreadStacks stacks;
};

std::unique_ptr<Sampling>& own_sampling() {
  static thread_local std::unique_ptr<Sampling> sampling;
  if (!sampling || sampling->places.overflows() != 0) sampling = std::make_unique<Sampling>();
  return sampling;
}

/// One frame per line, innermost first: file, line and name.
std::string text_of(const Sampling& sampling, std::uint32_t node) {
  std::string text;
  while (node != 0) {
    const inject::CodeNode frame = sampling.places.node(node);
    text += std::string(sampling.names.name(frame.detail)) + '\t' + std::to_string(frame.line) + '\t' +
            std::string(sampling.names.name(frame.name)) + '\n';
    node = frame.parent;
  }
  return text;
}

int copy_text(const std::string& from, char* text, int size) {
  if (from.size() >= static_cast<std::size_t>(size)) return -1;
  std::memcpy(text, from.c_str(), from.size() + 1);
  return static_cast<int>(from.size());
}

using Clock = std::chrono::steady_clock;

inject::SampledThread sampled;
std::atomic<bool> sampling_goes_on{false};
std::thread sampler;
std::atomic<std::uint64_t> samples{0};
std::string sampled_text;

void sample(std::chrono::microseconds pause) {
  // Not owned by the thread, because the process may end before the thread does.
  auto* sampling = new Sampling;
  auto* counts = new std::map<std::uint32_t, std::uint64_t>;
  while (sampling_goes_on.load(std::memory_order_acquire)) {
    const void* state = sampled.chosen().state;
    if (state == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ++(*counts)[sampling->stacks.read(state, sampling->places)];
    samples.fetch_add(1, std::memory_order_release);
    if (pause.count() != 0) std::this_thread::sleep_for(pause);
  }
  sampled_text.clear();
  for (const auto& [node, count] : *counts)
    sampled_text += std::to_string(count) + '\n' + text_of(*sampling, node) + '\f';
  delete counts;
  delete sampling;
}

}  // namespace

EXPORTED void stacks_offer(unsigned index) {
  sampled.offer(index);
}

EXPORTED void stacks_clear() {
  sampled.clear();
}

EXPORTED const void* stacks_chosen(unsigned* index) {
  const inject::SampledThread::Chosen chosen = sampled.chosen();
  *index = chosen.index;
  return chosen.state;
}

/// The calling thread's stack. Without the interpreter's lock if the caller doesn't hold it.
EXPORTED int stacks_own(char* text, int size) {
  const inject::PythonInterpreter* python = inject::readable_python();
  if (python == nullptr) return -1;
  Sampling& sampling = *own_sampling();
  return copy_text(text_of(sampling, sampling.stacks.read(python->this_thread(), sampling.places)), text,
                   size);
}

/// The stack of any thread state, or of an address that may not be one.
EXPORTED int stacks_of(const void* state, char* text, int size) {
  Sampling& sampling = *own_sampling();
  return copy_text(text_of(sampling, sampling.stacks.read(state, sampling.places)), text, size);
}

/// Mean time in nanoseconds to read the calling thread's stack, over `times` reads.
EXPORTED double stacks_duration(int times) {
  const inject::PythonInterpreter* python = inject::readable_python();
  if (python == nullptr) return 0;
  Sampling& sampling = *own_sampling();
  const void* state = python->this_thread();
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) sampling.stacks.read(state, sampling.places);
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / times;
}

/// Starts a thread that reads the offered thread's stack repeatedly.
EXPORTED void stacks_start(int pause) {
  sampling_goes_on.store(true, std::memory_order_release);
  sampler = std::thread(sample, std::chrono::microseconds(pause));
}

/// The number of stacks read by all such threads.
EXPORTED int stacks_count() {
  return static_cast<int>(samples.load(std::memory_order_acquire));
}

/// Each stack is preceded by the number of times it was read, and ended by a form feed.
EXPORTED int stacks_stop(char* text, int size) {
  sampling_goes_on.store(false, std::memory_order_release);
  sampler.join();
  return copy_text(sampled_text, text, size);
}

/// Lets it continue until the process ends.
EXPORTED void stacks_leave() {
  sampler.detach();
}

/// Offsets of the members of the interpreter's structs that the reader follows; 0xFFFF: not in this version.
EXPORTED void stacks_layout(int* offsets) {
  const inject::PythonInterpreter* python = inject::readable_python();
  if (python == nullptr) return;
  const inject::PythonLayout& layout = *python->layout;
  for (const inject::PythonOffset offset :
       {layout.current_frame, layout.cframe_frame, layout.caller, layout.code, layout.instruction,
        layout.owner, layout.instructions, layout.first_line, layout.file, layout.name, layout.qualified_name,
        layout.line_table, layout.first_traceable})
    *offsets++ = offset;
}
