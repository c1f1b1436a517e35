// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/pipeline.h"

#include <vector>

#include "libinject/base/clock.h"
#include "libinject/capture/launch_place.h"
#include "libinject/stats/device_pace.h"

namespace inject {

namespace {

constexpr Nanoseconds kForever = ~Nanoseconds{0};
// After this long, an edge of a window has been entered.
constexpr Nanoseconds kEdgesKnown = 100 * kMillisecond;

}  // namespace

Pipeline::Pipeline(const Options& options, const Sources& sources, RunWriter::Clock clock)
    : options_(options),
      core_(sources.core),
      windows_(sources.windows),
      tracer_(sources.tracer),
      sampler_(sources.sampler),
      note_windows_(sources.note_windows),
      statistics_(core_.names, core_.ranges, core_.shapes),
      drain_(core_, windows_, statistics_, [this] { enter_windows(); }),
      sources_(core_, sources.buffers, windows_, drain_, [this] { enter_windows(); }),
      tracker_(
          core_, windows_, sources.profiled, drain_,
          options.iteration_record.empty() ? std::string() : expand_option_path(options.iteration_record)),
      writer_(options,
              {core_, windows_, statistics_, drain_, sources_, sources.buffers,
               [this] { return tracer_.loaded() ? tracer_.api().version : 0; },
               [this, complete = sources.complete, source = sources.search_source](RunInfo& run) {
                 run.iterations = tracker_.info(source());
                 run.metrics = sampler_.info();
                 run.overhead.drain_cpu = processor_time_.load(std::memory_order_relaxed);
                 complete(run);
               }},
              clock),
      router_(windows_, statistics_, writer_.timeline(), writer_.chrome()) {
  const WindowKind kind = options.window.kind;
  if (kind == WindowKind::kTime || kind == WindowKind::kLaunch) tracker_.let_windows_cut();
  const bool may_name =
      options.window.kind == WindowKind::kIteration || options.window.kind == WindowKind::kAuto;
  if (may_name && (options.hooks & (kHookTorch | kHookPython)) != 0) {
    statistics_.expect_names(core_.places);
    name_captures({(options.hooks & kHookTorch) != 0, (options.hooks & kHookPython) != 0});
  }
  statistics_.threads_are_named_by(
      [this](std::uint32_t thread) { return core_.threads.thread_name(thread); });
}

void Pipeline::pass(bool hold_signs) {
  const Nanoseconds cpu = thread_cpu_time();
  tracker_.prepare();
  if (options_.metrics && !router_.has_columns()) router_.set_columns(sampler_.info().columns);
  sources_.pass(tracer_.loaded() ? &tracer_.api() : nullptr, hold_signs);
  writer_.tend_records();
  if (!hold_signs) tracker_.update(now());
  take_samples();
  processor_time_ += thread_cpu_time() - cpu;
}

// Windows may have opened by themselves; their raw records go into a file in the folder.
void Pipeline::enter_windows() {
  note_windows_();
  writer_.ensure_folder();
}

void Pipeline::take_samples() {
  if (!options_.metrics) return;
  sampler_.note_devices(drain_.devices_seen());
  router_.add(sampler_.take());
  const Nanoseconds time = now();
  route_samples(time - kEdgesKnown);
  router_.join(time, drain_.told_until());
}

void Pipeline::route_samples(Nanoseconds until) {
  if (!router_.pending()) return;
  if (!router_.has_columns()) router_.set_columns(sampler_.info().columns);
  note_windows_();
  if ((options_.metrics_timeline || (options_.trace & kTraceChrome) != 0) && windows_.opened() != 0)
    writer_.ensure_folder();  // it holds the samples' file
  router_.route(until);
}

void Pipeline::settle(bool delivered, Nanoseconds detached, std::uint32_t last) {
  route_samples(kForever);
  sources_.settle(delivered, last);
  const DevicePace pace(statistics_.iterations().rows_of(statistics_.device_times().settled_through()),
                        statistics_.device_times());
  if (pace.load().paced_step > 0) tracker_.set_paced_step(pace.load().paced_step);
  windows_.settle(detached, drain_.last_in_window_end(), last);
  writer_.journal().settled(detached, drain_.last_in_window_end(), last);
}

}  // namespace inject
