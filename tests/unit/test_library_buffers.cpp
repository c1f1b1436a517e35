// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>
#include "tests/unit/catch.h"

#include "libinject/record/library_buffers.h"

using namespace inject;

namespace {

using Found = std::map<std::uintptr_t, std::pair<std::uint64_t, BufferUse>>;

Found found_in(const LibraryBuffers& buffers) {
  Found found;
  buffers.each([&](std::uintptr_t address, std::uint64_t bytes, BufferUse use) {
    CHECK(found.emplace(address, std::pair(bytes, use)).second);
  });
  return found;
}

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

}  // namespace

TEST_CASE("What libraries are handed is noted while it is asked for, as it was said last",
          "[library_buffers]") {
  const auto buffers = std::make_unique<LibraryBuffers>();
  buffers->note(at(0x1000), 10, BufferUse::kWorkspace);
  CHECK(found_in(*buffers).empty());
  buffers->open(true);
  buffers->note(at(0x1000), 10, BufferUse::kWorkspace);
  buffers->note(at(0x1200), 7, BufferUse::kCommunication);
  buffers->note(at(0x1000), 12, BufferUse::kCommunication);
  buffers->note(nullptr, 7, BufferUse::kWorkspace);
  buffers->note(at(0x1400), 0, BufferUse::kWorkspace);
  CHECK(found_in(*buffers) ==
        Found{{0x1000, {12, BufferUse::kCommunication}}, {0x1200, {7, BufferUse::kCommunication}}});
  buffers->close();
  buffers->note(at(0x1600), 10, BufferUse::kWorkspace);
  CHECK(found_in(*buffers).size() == 2);
  CHECK(buffers->incomplete() == 0);
  buffers->open(false);
  CHECK(found_in(*buffers).empty());
  CHECK(buffers->incomplete() == 2);
}

TEST_CASE("What does not fit is left out, from several threads", "[library_buffers]") {
  const auto buffers = std::make_unique<LibraryBuffers>();
  buffers->open(true);
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uintptr_t k = 1; k <= 1000; ++k) {
        buffers->note(at(k * 512), k, thread % 2 == 0 ? BufferUse::kWorkspace : BufferUse::kCommunication);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Found found = found_in(*buffers);
  CHECK(found.size() > LibraryBuffers::kRoom / 2);
  CHECK(found.size() <= LibraryBuffers::kRoom);
  CHECK(buffers->incomplete() == 3);
  for (const auto& [address, said] : found) CHECK(said.first == address / 512);
}
