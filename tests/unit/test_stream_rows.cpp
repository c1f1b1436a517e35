// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/stream_rows.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

struct Work {
  std::uint32_t device;
  std::uint32_t stream;
  Nanoseconds begin;
  Nanoseconds end;
};

/// Puts work into its rows, and remembers what each row holds.
struct Picture {
  StreamRows rows;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Work>> shown;  // by device, row

  std::uint32_t add(const Work& work) {
    const std::uint32_t row = rows.place(work.device, work.stream, work.begin, work.end);
    shown[{work.device, row}].push_back(work);
    return row;
  }
  std::uint32_t add(Nanoseconds begin, Nanoseconds end) { return add({0, 7, begin, end}); }

  /// The number of pairs on a row that overlap or are from two streams.
  std::size_t mixed() {
    std::size_t count = 0;
    for (auto& [row, spans] : shown) {
      std::sort(spans.begin(), spans.end(), [](const Work& a, const Work& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
      });
      for (std::size_t i = 1; i < spans.size(); ++i)
        count += spans[i].begin < spans[i - 1].end || spans[i].stream != spans[i - 1].stream ? 1 : 0;
    }
    return count;
  }
};

constexpr std::uint32_t kBeside = StreamRows::kFirstBeside;

}  // namespace

TEST_CASE("Work that follows other work stays on its stream's row", "[output]") {
  Picture picture;
  CHECK(picture.add(100, 200) == 7);
  CHECK(picture.add(200, 200) == 7);
  CHECK(picture.add(200, 300) == 7);
  CHECK(picture.add(1000, 1500) == 7);
  // Late, into a gap, and into one that is exactly as wide.
  CHECK(picture.add(400, 500) == 7);
  CHECK(picture.add(500, 1000) == 7);
  CHECK(picture.add(0, 100) == 7);
  CHECK(picture.mixed() == 0);
  CHECK(picture.rows.rows().size() == 1);
}

TEST_CASE("What overlaps on a stream has rows beside it", "[output]") {
  Picture picture;
  CHECK(picture.add(100, 200) == 7);
  SECTION("in part") {
    CHECK(picture.add(199, 300) == kBeside);
  }
  SECTION("from before it") {
    CHECK(picture.add(50, 101) == kBeside);
  }
  SECTION("as a part of it") {
    CHECK(picture.add(150, 160) == kBeside);
  }
  SECTION("around it") {
    CHECK(picture.add(50, 250) == kBeside);
  }
  SECTION("at the same time") {
    CHECK(picture.add(100, 200) == kBeside);
  }
  SECTION("as a moment of it") {
    CHECK(picture.add(150, 150) == kBeside);
  }
  SECTION("with what is there as well") {
    CHECK(picture.add(150, 250) == kBeside);
    CHECK(picture.add(160, 170) == kBeside + 1);
    CHECK(picture.add(200, 210) == 7);
    CHECK(picture.add(250, 260) == 7);
    CHECK(picture.add(255, 270) == kBeside);
  }
  CHECK(picture.mixed() == 0);
}

TEST_CASE("Streams and devices have rows of their own", "[output]") {
  Picture picture;
  for (const std::uint32_t device : {1u, 0u}) {
    for (const std::uint32_t stream : {13u, 7u}) CHECK(picture.add({device, stream, 100, 200}) == stream);
  }
  CHECK(picture.add({1, 7, 150, 250}) == kBeside);
  CHECK(picture.add({0, 13, 150, 250}) == kBeside + 1);
  std::vector<std::string> rows;
  for (const StreamRows::Row& row : picture.rows.rows()) {
    rows.push_back(std::to_string(row.device) + "/" + std::to_string(row.stream) + "/" +
                   (row.number < kBeside ? "own" : std::to_string(row.number - kBeside)));
  }
  CHECK(rows == std::vector<std::string>{"0/7/own", "0/13/own", "0/13/1", "1/7/own", "1/7/0", "1/13/own"});
}

TEST_CASE("Nothing overlaps on a row, in whatever order work is told", "[output]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
    std::vector<Work> works;
    std::map<std::uint32_t, Nanoseconds> now;
    for (int i = 0; i < 3000; ++i) {
      const std::uint32_t stream = 7 + below(3);
      const Nanoseconds begin =
          now[stream] - std::min<Nanoseconds>(now[stream], below(4) == 0 ? below(30) : 0);
      works.push_back({0, stream, begin, begin + below(50)});
      now[stream] = works.back().end + below(3);
    }
    switch (seed % 4) {
      case 1:
        std::reverse(works.begin(), works.end());
        break;
      case 2:
        std::shuffle(works.begin(), works.end(), random);
        break;
      case 3:
        for (std::size_t i = 0; i + 200 < works.size(); i += 1 + below(100))
          std::swap(works[i], works[i + below(200)]);
        break;
      default:
        break;
    }
    Picture picture;
    for (const Work& work : works) picture.add(work);
    INFO("seed " << seed);
    CHECK(picture.mixed() == 0);
    CHECK(picture.rows.rows().size() < 30);
  }
}

TEST_CASE("What is older than what is known of its stream's row goes beside it", "[output]") {
  Picture picture;
  const Nanoseconds many = 4 * StreamRows::kKept;
  for (Nanoseconds i = 0; i < many; ++i) picture.add(1000 + 100 * i, 1050 + 100 * i);
  // It might overlap as far as is known.
  CHECK(picture.add(1050, 1060) == kBeside);
  CHECK(picture.add(1150, 1160) == kBeside);
  // The latest ones are known.
  const Nanoseconds known = many - StreamRows::kKept + 1;
  CHECK(picture.add(1050 + 100 * known, 1060 + 100 * known) == 7);
  CHECK(picture.add(1040 + 100 * known, 1060 + 100 * known) == kBeside);
  CHECK(picture.mixed() == 0);
}

TEST_CASE("Rows are bounded", "[output]") {
  SECTION("of a stream") {
    Picture picture;
    std::set<std::uint32_t> found;
    for (std::size_t i = 0; i < StreamRows::kMaxRows; ++i) found.insert(picture.add(100, 200));
    CHECK(found.size() == StreamRows::kMaxRows);
    CHECK(picture.mixed() == 0);
    // There is no row left for these; later ones get a row again.
    CHECK(found.count(picture.add(100, 200)) == 1);
    CHECK(picture.add(200, 300) == 7);
    CHECK(picture.rows.rows().size() == StreamRows::kMaxRows);
  }
  SECTION("of all streams") {
    Picture picture;
    std::set<std::uint32_t> found;
    for (std::uint32_t stream = 0; stream < StreamRows::kMaxStreams; ++stream) {
      for (int i = 0; i < 3; ++i) found.insert(picture.add({0, stream, 100, 200}));
    }
    CHECK(found.size() == StreamRows::kMaxStreams + StreamRows::kMaxBeside);
    CHECK(picture.rows.rows().size() == StreamRows::kMaxStreams + StreamRows::kMaxBeside);
    // A stream beyond those with rows, and a damaged record.
    for (int i = 0; i < 2; ++i) CHECK(picture.add({0, 5000, 100, 200}) == 5000);
    CHECK(picture.add({0xffffffff, 0xffffffff, 200, 100}) == 0xffffffff);
    CHECK(picture.rows.rows().size() == StreamRows::kMaxStreams + StreamRows::kMaxBeside);
  }
}
