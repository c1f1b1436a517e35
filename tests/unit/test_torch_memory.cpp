// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/torch_memory.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/record/control.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

const MemoryLine* line_of(const std::vector<MemoryLine>& lines, std::uint32_t device, MemoryLine::Of of) {
  const auto found = std::ranges::find_if(
      lines, [&](const MemoryLine& line) { return line.device == device && line.of == of; });
  return found == lines.end() ? nullptr : &*found;
}

std::uint64_t highest(const MemoryLine& line) {
  return std::ranges::max_element(line.intervals, {}, &MemoryInterval::highest)->highest;
}

std::uint64_t lowest(const MemoryLine& line) {
  return std::ranges::min_element(line.intervals, {}, &MemoryInterval::lowest)->lowest;
}

}  // namespace

TEST_CASE("what PyTorch's allocator reports is kept with its highest and lowest levels", "[memory]") {
  const auto memory = std::make_unique<TorchMemory>();
  std::vector<MemoryLine> lines;
  memory->note(0, 1, 1);
  CHECK(memory->copy(lines) == 0);
  CHECK(lines.empty());  // CUDA is not initialised yet
  memory->start();
  const Nanoseconds before = now();
  std::mt19937_64 random(4);
  std::uint64_t most = 0;
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t last = 0;
  for (int i = 0; i < 200'000; ++i) {
    last = random() % 1'000'000;
    most = std::max(most, last);
    least = std::min(least, last);
    memory->note(3, last, 2'000'000 + static_cast<std::uint64_t>(i / 50'000));
    if (i % 40'000 == 0) {
      lines.clear();
      CHECK(memory->copy(lines) == 0);
    }
  }
  memory->note(TorchMemory::kDevices, 9, 9);
  lines.clear();
  CHECK(memory->copy(lines) == 0);
  REQUIRE(lines.size() == 2);
  const MemoryLine* allocated = line_of(lines, 3, MemoryLine::Of::kTorchAllocated);
  const MemoryLine* reserved = line_of(lines, 3, MemoryLine::Of::kTorchReserved);
  REQUIRE(allocated != nullptr);
  REQUIRE(reserved != nullptr);
  CHECK(highest(*allocated) == most);
  CHECK(lowest(*allocated) == least);
  CHECK(allocated->intervals.back().last == last);
  CHECK(allocated->intervals.size() <= MemorySeries::kRoom);
  CHECK(highest(*reserved) == 2'000'003);
  CHECK(lowest(*reserved) == 2'000'000);
  CHECK(reserved->intervals.size() <= 4);
  Nanoseconds end = before;
  for (const MemoryInterval& interval : allocated->intervals) {
    CHECK(interval.begin >= end);
    CHECK(interval.highest_at >= interval.begin);
    CHECK(interval.highest_at <= interval.last_at);
    end = interval.last_at;
  }
  CHECK(end <= now());
  memory->stop();
  memory->note(3, 5'000'000, 5'000'000);
  lines.clear();
  memory->copy(lines);
  CHECK(highest(*line_of(lines, 3, MemoryLine::Of::kTorchAllocated)) == most);
}

TEST_CASE("an edge of a window divides what PyTorch's allocator reports", "[memory]") {
  const auto memory = std::make_unique<TorchMemory>();
  memory->start();
  memory->note(0, 10, 100);
  current_window.store(7);
  memory->note(0, 20, 100);
  memory->note(0, 15, 100);
  current_window.store(0);
  memory->note(0, 30, 100);
  std::vector<MemoryLine> lines;
  memory->copy(lines);
  const MemoryLine* allocated = line_of(lines, 0, MemoryLine::Of::kTorchAllocated);
  REQUIRE(allocated != nullptr);
  std::uint64_t in_window = 0;
  for (const MemoryInterval& interval : allocated->intervals) {
    if (interval.window == 7) in_window = std::max(in_window, interval.highest);
  }
  CHECK(in_window == 20);
  CHECK(allocated->intervals.back().window == 0);
  CHECK(highest(*allocated) == 30);
}

TEST_CASE("no report is lost while another thread reads", "[memory]") {
  const auto memory = std::make_unique<TorchMemory>();
  memory->start();
  memory->note(0, 500, 1000);
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) {
      std::vector<MemoryLine> lines;
      memory->copy(lines);
    }
  });
  for (std::uint64_t i = 1; i <= 100'000; ++i) memory->note(0, 500 + (i * 7919) % 100'003, 1000);
  // Either of these may arrive while the reader has the turn.
  memory->note(0, 1'000'000, 1000);
  memory->note(0, 3, 1000);
  memory->note(0, 400, 1000);
  over = true;
  reader.join();
  std::vector<MemoryLine> lines;
  CHECK(memory->copy(lines) == 0);
  const MemoryLine* allocated = line_of(lines, 0, MemoryLine::Of::kTorchAllocated);
  REQUIRE(allocated != nullptr);
  CHECK(highest(*allocated) == 1'000'000);
  CHECK(lowest(*allocated) == 3);
  CHECK(allocated->intervals.back().last == 400);
}

TEST_CASE("a level that changes within another one's interval has a row of its own", "[memory]") {
  const auto memory = std::make_unique<TorchMemory>();
  memory->start();
  memory->note(0, 10, 100);
  const timespec pause{0, 20 * kMillisecond};
  nanosleep(&pause, nullptr);
  memory->note(0, 5, 100);
  memory->note(0, 7, 300);
  memory->note(0, 8, 200);
  std::vector<MemoryLine> lines;
  memory->copy(lines);
  const MemoryLine* reserved = line_of(lines, 0, MemoryLine::Of::kTorchReserved);
  REQUIRE(reserved != nullptr);
  REQUIRE(reserved->intervals.size() >= 2);
  CHECK(reserved->intervals.front().highest == 100);
  CHECK(reserved->intervals.front().last == 100);
  CHECK(reserved->intervals[1].begin - reserved->intervals[0].begin >= 10 * kMillisecond);
  CHECK(highest(*reserved) == 300);
  CHECK(reserved->intervals.back().last == 200);
}
