// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/memory_report.h"

#include <algorithm>

namespace inject {

namespace {

// An interval without a change is divided at the edges of at most this many windows, the latest ones.
constexpr std::size_t kMaxWindows = 512;

/// Something that began at a time, until the next one.
template <typename What>
struct MemoryMoment {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  What what{};
};

template <typename What>
const What* at(const std::vector<MemoryMoment<What>>& moments, Nanoseconds time) {
  const auto after =
      std::upper_bound(moments.begin(), moments.end(), time,
                       [](Nanoseconds of, const MemoryMoment<What>& one) { return of < one.begin; });
  if (after == moments.begin() || std::prev(after)->end <= time) return nullptr;
  return &std::prev(after)->what;
}

struct LabelledIteration {
  IterationLabel label{};
  std::uint64_t number = 0;
};

std::vector<MemoryMoment<std::uint32_t>> windows_of(const RunInfo& run) {
  std::vector<MemoryMoment<std::uint32_t>> windows;
  for (const WindowInfo& window : run.windows) {
    if (window.times_known())
      windows.push_back({window.start, window.end == 0 ? run.memory_until : window.end, window.number});
  }
  return windows;
}

std::vector<MemoryMoment<LabelledIteration>> iterations_of(const Statistics& statistics,
                                                           const std::vector<IterationRow>& iterations) {
  std::vector<MemoryMoment<LabelledIteration>> known;
  for (const IterationRow& row : iterations) {
    if (row.kind == IterationRow::Kind::kPhase && row.begin != 0 && row.end > row.begin)
      known.push_back({row.begin, row.end, {row.label, row.number}});
  }
  for (const UnprofiledStep& step : statistics.iterations().unprofiled_steps())
    known.push_back({step.begin, step.begin + step.duration, {IterationLabel::kIteration, step.number}});
  std::stable_sort(known.begin(), known.end(),
                   [](const auto& one, const auto& other) { return one.begin < other.begin; });
  return known;
}

class TimelineRows {
 public:
  TimelineRows(const Statistics& statistics, const RunInfo& run, const std::vector<IterationRow>& iterations)
      : run_(run), windows_(windows_of(run)), iterations_(iterations_of(statistics, iterations)) {
    const std::size_t skipped = windows_.size() - std::min(windows_.size(), kMaxWindows);
    for (std::size_t i = skipped; i < windows_.size(); ++i) {
      edges_.push_back(windows_[i].begin);
      edges_.push_back(windows_[i].end);
    }
    std::sort(edges_.begin(), edges_.end());
  }

  void add(const MemoryLine& line) {
    for (std::size_t i = 0; i < line.intervals.size(); ++i) {
      const MemoryInterval& interval = line.intervals[i];
      MemoryTimelineRow row{line.device,
                            line.of,
                            interval.begin,
                            interval.last_at,
                            interval.lowest,
                            interval.highest,
                            interval.highest_at,
                            0,
                            {},
                            {}};
      // Between two readings, the level is unknown.
      if (line.of == MemoryLine::Of::kInUse) {
        add(row);
        continue;
      }
      const Nanoseconds end = i + 1 < line.intervals.size() ? line.intervals[i + 1].begin
                                                            : std::max(run_.memory_until, interval.last_at);
      auto edge = std::upper_bound(edges_.begin(), edges_.end(), interval.last_at);
      for (; edge != edges_.end() && *edge < end; ++edge) {
        if (*edge == row.begin) continue;
        row.end = *edge;
        add(row);
        row.lowest = row.highest = interval.last;
        row.begin = row.highest_at = *edge;
      }
      row.end = end;
      add(row);
    }
  }

  std::vector<MemoryTimelineRow> take() {
    std::stable_sort(rows_.begin(), rows_.end(), [](const auto& one, const auto& other) {
      return one.device < other.device || (one.device == other.device && one.of > other.of);
    });
    return std::move(rows_);
  }

 private:
  void add(MemoryTimelineRow row) {
    if (const std::uint32_t* window = at(windows_, row.begin)) row.window = *window;
    if (const LabelledIteration* iteration = at(iterations_, row.begin)) {
      row.label = iteration->label;
      if (iteration->label == IterationLabel::kIteration) row.iteration = iteration->number;
    }
    rows_.push_back(row);
  }

  const RunInfo& run_;
  std::vector<MemoryMoment<std::uint32_t>> windows_;
  std::vector<MemoryMoment<LabelledIteration>> iterations_;
  std::vector<Nanoseconds> edges_;
  std::vector<MemoryTimelineRow> rows_;
};

}  // namespace

std::vector<MemoryTimelineRow> memory_timeline(const Statistics& statistics, const RunInfo& run,
                                               const std::vector<IterationRow>& iterations) {
  TimelineRows rows(statistics, run, iterations);
  for (const MemoryLine& line : run.memory_lines) rows.add(line);
  for (const MemoryLine& line : run.energy.memory) rows.add(line);
  return rows.take();
}

}  // namespace inject
