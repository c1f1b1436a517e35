// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Feeds a recorded launch stream (INJECT_ITER_RECORD, libinject/iterations/iteration_search.h) from stdin to
// the detector and, once that has found iterations, to the watch; prints what they find, a line each:
//
//   lock EVENT BEFORE OPTIMIZER BY_SHAPE ROUGH EVENTS_EACH BEGIN | ANCHOR
//                                  a lock, or a change of it, once EVENT events had been seen
//   span NUMBER FIRST_EVENT BEGIN END PHASE
//                                  an iteration, or what ran between two, of the lock that was printed last
//   cut NUMBER FIRST_EVENT BEGIN END WHOLE
//                                  an iteration that a stretch without signs ends; BEGIN 0: none is known
//   boundary EVENT                 the watch fired before this event
//   certainty LEVEL STEPS OPTIMIZER DOUBTFUL ROUGH BY_SHAPE CHANGES
//                                  what run.json would say at the end, and what it is derived from; missing
//                                  where nothing was found. With the argument `lost`, signs were lost.
//   end EVENTS NANOSECONDS         and the time that the detector took for them
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/mapping.h"
#include "libinject/iterations/iteration_detector.h"
#include "libinject/iterations/iteration_search.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"

namespace {

/// Which lines are signs within an optimizer's step: its end says how many of its thread's signs they were.
std::vector<bool> signs_in_steps(const std::vector<std::string>& lines) {
  std::vector<bool> inside(lines.size());
  std::map<std::uint64_t, std::vector<std::size_t>> of_thread;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty() || std::string_view("KGHDPSYLT").find(lines[i][0]) == std::string_view::npos)
      continue;
    std::istringstream words(lines[i].substr(2));
    std::uint64_t step = 0;
    std::uint64_t thread = 0;
    std::uint64_t stream = 0;
    words >> step >> thread >> stream;
    std::vector<std::size_t>& signs = of_thread[thread];
    if (lines[i][0] == 'T') {
      for (std::size_t back = 1; back <= stream && back <= signs.size(); ++back)
        inside[signs[signs.size() - back]] = true;
    } else {
      signs.push_back(i);
    }
  }
  return inside;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kLetters = "KGHDPSYLT";
  const bool signs_lost = argc > 1 && std::string_view(argv[1]) == "lost";
  // The watch's own records are ignored.
  inject::BlockPool pool(2 * sizeof(inject::Block));
  inject::ThreadRegistry threads(pool);
  inject::ThreadRegistry::publish(&threads);
  std::uint64_t boundaries = 0;
  inject::IterationDetector detector;
  inject::Nanoseconds time = 1;
  std::uint64_t changes = 0;
  std::chrono::nanoseconds spent{0};
  const auto hash = [](std::uint64_t id, std::uint64_t seed) {
    return inject::hash_mix(id * inject::kHashSeed + seed);
  };
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  const std::vector<bool> in_step = signs_in_steps(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.size() < 3) continue;
    std::istringstream words(line.substr(2));
    if (line[0] == 'F') {
      std::uint64_t id = 0;
      words >> id;
      words.get();
      std::string name;
      std::getline(words, name);
      detector.name(hash(id, 1), name);
      continue;
    }
    std::uint64_t step = 0;
    if (line[0] == 'E') {
      detector.expect_steps(line[2] == '1');
      continue;
    }
    if (line[0] == 'U') {
      detector.resume(line[2] == '1');
      inject::iteration_watch.anchored.store(inject::Anchored::kNo);
      continue;
    }
    if (line[0] == 'M' || line[0] == 'B') {
      words >> step;
      time += step;
      continue;
    }
    const std::size_t kind = kLetters.find(line[0]);
    if (kind == std::string_view::npos) continue;
    std::uint64_t function = 0;
    std::uint64_t shape = 0;
    inject::LaunchSign sign;
    words >> step >> sign.thread >> sign.stream >> function >> shape;
    time += step;
    sign.kind = static_cast<inject::SignKind>(kind);
    sign.function = hash(function, 1);
    sign.shape = hash(shape, 2);
    sign.time = time;
    sign.in_step = in_step[i];
    // Older recordings lack the objects: each class, with what it launches, is taken for one.
    if (line[0] == 'T' && !(words >> sign.optimizer >> sign.captured))
      sign.optimizer = static_cast<std::uint32_t>(hash(shape, 3) | 1);
    inject::ThreadState& thread = *inject::ThreadRegistry::current();
    thread.step = in_step[i] ? &line : nullptr;
    thread.step_optimizer = sign.optimizer;
    inject::emit_sign(sign.kind, sign.function, sign.shape, sign.stream, false);
    if (const std::uint64_t count = inject::iteration_watch.count.load(); count != boundaries) {
      boundaries = count;
      std::cout << "boundary " << detector.events() << '\n';
    }
    const auto before = std::chrono::steady_clock::now();
    detector.add(sign);
    spent += std::chrono::steady_clock::now() - before;
    if (detector.changes() != changes) {
      changes = detector.changes();
      const auto& lock = *detector.lock();
      std::cout << "lock " << lock.locked_at << ' ' << lock.seen_before << ' ' << lock.optimizer << ' '
                << lock.by_shape << ' ' << lock.rough << ' ' << lock.events << ' ' << lock.begin_name << " | "
                << lock.anchor_name << '\n';
      inject::iteration_watch.arm(lock.marks);
    }
    for (const inject::IterationSpan& span : detector.take_spans()) {
      std::cout << (span.cut ? "cut " : "span ") << span.number << ' ' << span.first_event << ' '
                << span.begin << ' ' << span.end << ' ' << (span.cut ? span.whole : span.phase) << '\n';
    }
  }
  if (const inject::IterationInfo info = inject::info_of(detector); info.found) {
    std::cout << "certainty " << to_string(certainty_of(info, signs_lost)) << ' ' << info.steps << ' '
              << info.optimizer << ' ' << info.doubtful << ' ' << info.rough << ' ' << info.by_shape << ' '
              << info.changes << '\n';
  }
  std::cout << "end " << detector.events() << ' ' << spent.count() << '\n';
}
