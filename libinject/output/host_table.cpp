// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// host_sum.csv (docs/processors.md).
#include "libinject/analysis/input_cause.h"
#include "libinject/output/table_cells.h"
#include "libinject/output/tables.h"

namespace inject {

namespace {

struct HostRow {
  const HostWindow* window = nullptr;
  const HostRoleUse* use = nullptr;
  bool is_process() const { return use->role == HostRole::kProcess; }
};

std::string_view role_name(HostRole role) {
  constexpr std::array<std::string_view, kHostRoles> kNames{"main",
                                                            "autograd",
                                                            "NCCL",
                                                            "pin memory",
                                                            "libinject",
                                                            "CUDA driver",
                                                            "other thread",
                                                            "[rest]",
                                                            "process",
                                                            "loader worker",
                                                            "child with CUDA",
                                                            "other child",
                                                            "[ended children]"};
  return kNames[static_cast<std::size_t>(role)];
}

std::optional<double> per_time(const std::optional<std::uint64_t>& part, const HostWindow& window) {
  if (!part || window.span() == 0) return std::nullopt;
  return static_cast<double>(*part) / static_cast<double>(window.span());
}

Columns<HostRow> host_columns(const Report& report) {
  using namespace units;
  constexpr Unit kProcessors{"processors", "≥ 0", 3};
  constexpr std::string_view kNotReadable = "the system does not allow it to be read, or not for all of them";
  static constexpr std::string_view kOfProcess = "rows other than `process`";
  static constexpr std::string_view kNotAll =
      "rows other than `process`; not known for all threads and children";
  const RunInfo* const run = report.run;
  Columns<HostRow> columns;
  columns
      .add(
          "Window", kNumber, [](const HostRow& row) { return row.window->window; },
          "The window's number, starting at 1.")
      .add(
          "Role", kText, [](const HostRow& row) { return role_name(row.use->role); },
          "What the threads or child processes do, judging by their names (processors.md); `[rest]`: the "
          "part of the process that is in no row above; `[ended children]`: what child processes used after "
          "the last reading that saw them.")
      .add(
          "Total", kText, [](const HostRow& row) { return row.is_process() ? "yes" : "no"; },
          "`yes`: the row is the sum of the process's threads, `main` to `[rest]`; `no`: it is not. Child "
          "processes are not part of it.")
      .add(
          "Count", kCount,
          [](const HostRow& row) {
            const HostRole role = row.use->role;
            return cell_if(role != HostRole::kRest && role != HostRole::kEndedChildren, row.use->count);
          },
          "Threads or child processes seen by a reading in the window; for `process`, its threads. One that "
          "is renamed counts in both roles, but once for `process`.",
          "`[rest]` and `[ended children]`, whose threads and child processes are counted in their roles");
  const auto amount = [](HostAmount which) {
    return [which](const HostRow& row) { return Cell(row.use->use.of(which)); };
  };
  columns
      .add("Processor Time (ns)", kTime, amount(HostAmount::kProcessorTime),
           "Time on a processor between the two readings.", kNotReadable)
      .add(
          "Share of a Core (%)", kRateShare,
          [](const HostRow& row) {
            const auto share = per_time(row.use->use.of(HostAmount::kProcessorTime), *row.window);
            return share ? Cell(100 * *share) : Cell();
          },
          "Processor Time / Span: above 100 if several ran at once.", kNotReadable)
      .add("Run Queue Wait (ns)", kTime, amount(HostAmount::kRunQueueWait),
           "Total time during which they were ready to run but had no processor, not counting those that "
           "ended.",
           "`[rest]` and `[ended children]`; the system does not allow it to be read")
      .add("Voluntary Switches", kCount, amount(HostAmount::kVoluntarySwitches),
           "How often they gave up a processor voluntarily, to wait.", kNotReadable)
      .add("Involuntary Switches", kCount, amount(HostAmount::kInvoluntarySwitches),
           "How often a processor was taken from them.", kNotReadable)
      .add("Minor Faults", kCount, amount(HostAmount::kMinorFaults),
           "Page faults that did not read from storage.", kNotReadable)
      .add("Major Faults", kCount, amount(HostAmount::kMajorFaults), "Page faults that read from storage.",
           kNotReadable)
      .add(
          "Read (MB)", kMegabytes,
          [](const HostRow& row) {
            const auto& bytes = row.use->use.of(HostAmount::kReadBytes);
            return bytes ? Cell(megabytes(*bytes)) : Cell();
          },
          "Data read from storage, not from the page cache or over the network.",
          "the system does not allow it to be read, or not for all of them; a child process that has waited "
          "for children of its own, whose data its counter includes")
      .add(
          "Start (ns)", kMoment, [run](const HostRow& row) { return since_base(row.window->begin, *run); },
          "When the first reading ended, soon after the window opened.")
      .add(
          "Span (ns)", kTime, [](const HostRow& row) { return row.window->span(); },
          "From there to the second reading, soon after the window closed.")
      .add(
          "Reading (ns)", kTime, [](const HostRow& row) { return row.window->reading; },
          "How long these two readings took: the resolution of the sums.");
  const auto of_process = [](auto cell) {
    return [cell](const HostRow& row) { return row.is_process() ? Cell(cell(*row.window)) : Cell(); };
  };
  columns
      .add("Cores by Affinity", kCount,
           of_process([](const HostWindow& w) { return cell_if(w.affinity != 0, w.affinity); }),
           "Processors that the main thread may run on.",
           "rows other than `process`; not known, or changed during the window")
      .add("Cores by Quota", kProcessors, of_process([](const HostWindow& w) {
             const std::uint64_t quota = w.quota_thousandths.value_or(0);
             return cell_if(quota != 0, static_cast<double>(quota) / 1000);
           }),
           "Maximum processor time that its control groups allow, as a number of processors.",
           "rows other than `process`; no limit, or changed during the window")
      .add("Cores Used", kProcessors, of_process([](const HostWindow& w) {
             const HostSum sum = host_sum({&w, 1});
             return cell_if(sum.times_known, sum.used());
           }),
           "Processor time of the process and its children / Span.", kNotAll)
      .add("Cores Wanted", kProcessors, of_process([](const HostWindow& w) {
             const HostSum sum = host_sum({&w, 1});
             return cell_if(sum.times_known && sum.waits_known, sum.wanted());
           }),
           "The same including Run Queue Wait: what they would have used if none had waited.", kNotAll)
      .add("Workers Computing (%)", kRateShare, of_process([](const HostWindow& w) {
             return cell_if(w.worker_life != 0, percent(w.worker_time, w.worker_life));
           }),
           "Processor time of the loader workers that did anything, as a share of their lifetimes.",
           "rows other than `process`; no worker did anything")
      .add("Workers Queued (%)", kRateShare, of_process([](const HostWindow& w) {
             return cell_if(w.worker_life != 0, percent(w.worker_wait, w.worker_life));
           }),
           "Run Queue Wait of these workers, as a share of their lifetimes.",
           "rows other than `process`; no worker did anything")
      .add("Loader Moments", kCount, of_process([](const HostWindow& w) { return w.moments.all; }),
           "Number of moments at which the training thread was seen waiting for a loader's workers.",
           kOfProcess)
      .add("Workers Asleep", kCount, of_process([](const HostWindow& w) { return w.moments.asleep; }),
           "Number of Loader Moments at which no thread of a worker was running or ready to run.", kOfProcess)
      .add("Workers Blocked", kCount, of_process([](const HostWindow& w) { return w.moments.blocked; }),
           "Number of these (Workers Asleep) at which a worker was in uninterruptible sleep, as when waiting "
           "for a disk.",
           kOfProcess);
  return columns;
}

std::vector<HostRow> host_rows(const Report& report) {
  std::vector<HostRow> rows;
  for (const HostWindow& window : report.run->host_windows) {
    for (const HostRoleUse& use : window.roles) rows.push_back({&window, &use});
  }
  return rows;
}

}  // namespace

TableFile host_table() {
  return make_table<host_columns, host_rows>(
      "host_sum.csv", "A window, by role of the process's threads and child processes (processors.md).");
}

}  // namespace inject
