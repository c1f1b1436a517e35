// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// usage: TARGET_replay [--mutations COUNT SECONDS] FOLDER...
// Runs each file of the folders through a fuzz target, without a fuzzer; then COUNT variations of them, or as
// many as SECONDS allow: the same ones each time. What ends the process names itself.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMax = 4096;

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& inputs) : inputs_(inputs) {}

  // One to eight changes of an input, as fuzzers make them.
  Bytes next() {
    Bytes bytes = inputs_[below(inputs_.size())];
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) change(bytes);
    if (bytes.size() > kMax) bytes.resize(kMax);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  std::uint8_t byte() {
    constexpr std::uint8_t kTelling[] = {0, 1, 0x7f, 0x80, 0xff, '\n', '"', ',', '%', ':', '=', '-', '9'};
    return below(2) == 0 ? kTelling[below(std::size(kTelling))] : static_cast<std::uint8_t>(below(256));
  }
  void change(Bytes& bytes) {
    const std::size_t at = below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const std::size_t length =
        1 + below(std::min<std::size_t>(bytes.size() - std::min(at, bytes.size()), 64));
    switch (bytes.empty() ? 4 : below(7)) {
      case 0:
        bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ (1u << below(8)));
        break;
      case 1:
        bytes[at] = byte();
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(place, place + static_cast<std::ptrdiff_t>(std::min(length, bytes.size() - at)));
        break;
      case 4:
        bytes.insert(place, 1 + below(16), byte());
        break;
      case 5: {
        const Bytes& other = inputs_[below(inputs_.size())];
        const std::size_t from = below(other.size());
        const std::size_t count = std::min<std::size_t>(other.size() - from, 64);
        const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        bytes.insert(place, begin, begin + static_cast<std::ptrdiff_t>(count));
        break;
      }
      default: {
        // A number of up to eight bytes becomes an extreme one.
        const std::uint64_t value =
            below(2) == 0 ? ~std::uint64_t{0} >> below(64) : std::uint64_t{1} << below(64);
        std::memcpy(&bytes[at], &value, std::min<std::size_t>(bytes.size() - at, std::size_t{1} << below(4)));
      }
    }
  }

  const std::vector<Bytes>& inputs_;
  std::minstd_rand random_{1};
};

}  // namespace

int main(int argc, char** argv) {
  unsigned long mutations = 0;
  std::chrono::seconds limit{0};
  int first = 1;
  if (argc > 3 && std::strcmp(argv[1], "--mutations") == 0) {
    mutations = std::strtoul(argv[2], nullptr, 10);
    limit = std::chrono::seconds(std::strtol(argv[3], nullptr, 10));
    first = 4;
  }
  std::vector<Bytes> inputs;
  for (int i = first; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const std::filesystem::path& file : files) {
      std::printf("%s\n", file.c_str());
      std::fflush(stdout);  // the last line is the input that ended the process
      std::ifstream stream(file, std::ios::binary);
      const std::vector<char> text{std::istreambuf_iterator<char>(stream), {}};
      const Bytes& bytes = inputs.emplace_back(text.begin(), text.end());
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
  }
  if (inputs.empty()) return 1;
  Mutator mutator(inputs);
  const auto end = std::chrono::steady_clock::now() + limit;
  unsigned long made = 0;
  for (; made < mutations && std::chrono::steady_clock::now() < end; ++made) {
    const Bytes bytes = mutator.next();
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu inputs, %lu variations\n", inputs.size(), made);
  return 0;
}
