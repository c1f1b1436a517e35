// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the session leaves behind for the case that the process is killed (recovery/).
#include <unistd.h>

#include <mutex>
#include <string>

#include "libinject/host_io.h"
#include "libinject/log.h"
#include "libinject/record/clock.h"
#include "libinject/recovery/run_state.h"
#include "libinject/session.h"

namespace inject {

namespace {

// CUPTI hands a buffer over when it is full, which takes long where little is launched: what it holds is lost
// with the process.
constexpr Nanoseconds kFlushInterval = 1'000'000'000;

}  // namespace

void Session::open_records() {
  const QuietSignals quiet;
  std::string problem;
  const bool made = records_.open(folder_, core_.ring, buffers_, journal_, {base_, base_utc_}, problem);
  if (!problem.empty()) {
    Log::warn((made ? "records are lost if the process is killed, but for those that were processed: "
                    : "records are kept in memory, and lost if the process is killed: ") +
              problem);
  }
  if (!made) return;
  drain_.journal_to(&journal_);
  keep_run_state();
}

void Session::keep_run_state() {
  if (!records_.is_open()) return;
  recovery::Live& live = records_.live();
  if (tracer_.loaded()) live.cupti_version.store(tracer_.api().version, std::memory_order_relaxed);
  live.clock_ahead.store(Tracer::clock_ahead_of_ours(), std::memory_order_relaxed);
  journal_.renew_thread_names();
  records_.write_info(recovery::encode_run(run_info("open")));
}

void Session::keep_records(std::uint32_t window) {
  const Nanoseconds time = now();
  if (window != records_window_) {
    records_window_ = window;
    records_kept_ = time;
  }
  if (!options_.recover || time - records_kept_ < kFlushInterval) return;
  records_kept_ = time;
  tracer_.flush(false);
  const std::lock_guard data(data_mutex_);
  keep_run_state();
}

void Session::remove_records(bool all_written) {
  if (!records_.is_open()) return;
  if (all_written) {
    records_.remove();
  } else {
    Log::warn("the records are kept: once there is room, `injectctl recover " + folder_ +
              "` writes the tables");
  }
}

}  // namespace inject
