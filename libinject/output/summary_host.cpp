// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary_parts.h"

#include <string>

#include "libinject/analysis/input_cause.h"
#include "libinject/base/csv.h"
#include "libinject/report/display_text.h"

namespace inject {

// A line for the process, and one for its loader workers.
void write_host(TextPage& page, const RunInfo& run) {
  const HostSum host = host_sum(run.host_windows);
  if (host.time == 0 || !host.times_known) return;
  const auto processors = [&host](std::uint64_t time) {
    std::string text;
    append_decimal(text, host.share_of_time(time), 2);
    return text;
  };
  std::string text = "  CPU cores: " + processors(host.process_time) + " used by the process, " +
                     processors(host.children_time) + " by its children";
  if (const double allowed = host.allowed(); allowed > 0) {
    text += ", of ";
    append_decimal(text, allowed, host.quota_thousandths == 0u ? 0 : 2);
    text += " allowed";
  }
  if (host.waits_known) text += "; run-queue wait: another " + processors(host.wait);
  page.line(text);
  if (host.worker_life == 0) return;
  page.line("    " + plural(host.workers, "loader worker") + ": computing " +
            share_text(host.worker_time, host.worker_life) + " of the time, waiting for a core " +
            share_text(host.worker_wait, host.worker_life));
}

}  // namespace inject
