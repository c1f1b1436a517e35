// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/impossible_rates.h"

#include "libinject/output/measured_kernels.h"
#include "libinject/output/shape_tables.h"
#include "libinject/output/window_tables.h"

namespace inject {

std::uint64_t impossible_rates(const Statistics& statistics, const RunInfo& run) {
  std::uint64_t count = 0;
  for (const CallShapeRow& call : statistics.call_shapes())
    count += peak_share(call, specs_of(run, call.entry.device)).impossible ? 1 : 0;
  for (const MeasuredKernel& kernel : measured_kernels(statistics, run))
    count += kernel.place && kernel.place->impossible ? 1 : 0;
  for (const WindowHostRow& window : statistics.window_hosts()) {
    for (const WindowInfo& info : run.windows) {
      if (info.number == window.window && info.end > info.start)
        count += peak_share(window.work.flops, info.end - info.start, run).impossible ? 1 : 0;
    }
  }
  for (const IterationRow& entry : statistics.iterations().rows()) {
    if (entry.kind == IterationRow::Kind::kPhase && entry.end != 0)
      count += peak_share(entry.flops, entry.end - entry.begin, run).impossible ? 1 : 0;
  }
  return count;
}

}  // namespace inject
