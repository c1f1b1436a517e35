// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "tests/sim/core/counters.h"
#include "tests/sim/cudasim.h"

namespace inject::sim::report {
namespace {

// Leaked: see base.cpp.
struct State {
  std::mutex mutex;
  std::vector<Work> list;
  std::atomic<bool> enabled{false};
};

State& state() {
  static State& instance = []() -> State& {
    State& fresh = *new State;
    fresh.enabled = !settings().report_path.empty();
    return fresh;
  }();
  return instance;
}

std::string report_path() {
  std::string path = settings().report_path;
  if (std::size_t at = path.find("%p"); at != std::string::npos)
    path.replace(at, 2, std::to_string(getpid()));
  return path;
}

// At exit, after the program's own handlers as far as the order of libraries allows.
struct WriteAtExit {
  ~WriteAtExit() {
    if (enabled() && !settings().report_path.empty() && !in_forked_child())
      cudasim_write_report(report_path().c_str());
  }
} write_at_exit;

}  // namespace

bool enabled() {
  return state().enabled.load(std::memory_order_relaxed);
}

void add(Work work) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.list.push_back(std::move(work));
}

}  // namespace inject::sim::report

using namespace inject::sim;

extern "C" {

void cudasim_record_work(int enable) {
  report::state().enabled = enable != 0;
}

uint64_t cudasim_work_count(const char* kind, const char* name_part, uint64_t* total_ns) {
  report::State& shared = report::state();
  std::lock_guard lock(shared.mutex);
  uint64_t count = 0;
  uint64_t total = 0;
  for (const report::Work& work : shared.list) {
    if (std::string_view(work.kind) != kind) continue;
    if (name_part != nullptr && std::string_view(work.name).find(name_part) == std::string_view::npos)
      continue;
    ++count;
    Nanoseconds end = work.op->end.load();
    if (end != kUnknown) total += end - work.op->start.load();
  }
  if (total_ns != nullptr) *total_ns = total;
  return count;
}

int cudasim_write_report(const char* path) {
  // Whole or not there: another thread may end the process while this one writes. A device is no file to
  // replace.
  struct stat status {};
  const bool device = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
  const std::string unfinished = device ? path : std::string(path) + ".unfinished";
  std::FILE* file = std::fopen(unfinished.c_str(), "w");
  if (file == nullptr) return -1;
  for_each_function([file](const Function& function) {
    std::fprintf(file, "call,%s,%s,%llu\n", function.library.c_str(), function.name.c_str(),
                 static_cast<unsigned long long>(function.calls.load()));
  });
  std::fprintf(file, "calls_in_callbacks,%llu\n",
               static_cast<unsigned long long>(cudasim_calls_in_callbacks()));
  std::fprintf(file, "cupti_misuse,%llu\n", static_cast<unsigned long long>(cudasim_cupti_misuse()));
  std::fprintf(file, "sampling_misuse,%llu\n", static_cast<unsigned long long>(cudasim_sampling_misuse()));
  const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  for (const counters::Period& period : counters::periods()) {
    std::fprintf(file, "sampling,%d,%llu,%llu,%llu,%llu,%llu,%llu\n", period.device, number(period.interval),
                 number(period.enabled), number(period.started), number(period.stopped),
                 number(period.disabled), number(period.given));
  }
  report::State& shared = report::state();
  std::lock_guard lock(shared.mutex);
  for (const report::Work& work : shared.list) {
    Nanoseconds end = work.op->end.load();
    bool finished = end != kUnknown && end <= now_ns();
    std::fprintf(file, "work,%s,%s,%d,%u,%u,%u,%llu,%llu,%llu,%llu\n", work.kind, work.name, work.device,
                 work.context, work.stream, work.correlation, static_cast<unsigned long long>(work.host),
                 finished ? static_cast<unsigned long long>(work.op->start.load()) : 0ull,
                 finished ? static_cast<unsigned long long>(end) : 0ull,
                 static_cast<unsigned long long>(work.bytes));
  }
  if (std::fclose(file) != 0) return -1;
  return device ? 0 : std::rename(unfinished.c_str(), path);
}
}
