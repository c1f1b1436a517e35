// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When the session has its files written, and what it adds to them.
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"
#include "libinject/base/log.h"
#include "libinject/session/session.h"

namespace inject {

namespace {

// How long the last write waits for a reading of the devices' memory.
constexpr Nanoseconds kLastReadingWait = kSecond;
// CUPTI hands a buffer over when it is full, which takes long where little is launched: what it holds is lost
// with the process.
constexpr Nanoseconds kFlushInterval = kSecond;

}  // namespace

void Session::write_files(const char* state) {
  Pipeline::Locked pipeline(pipeline_);
  if (pipeline.writer().may_write()) pipeline.writer().write(state);
}

void Session::final_output() {
  // The exiting thread may be the program's.
  const QuietSignals quiet;
  device_reader_.wait(kLastReadingWait);
  device_reader_.stop();
  Pipeline::Locked pipeline(pipeline_);
  const bool shown = pipeline.writer().write_last();
  const std::string& folder = pipeline.writer().folder();
  if (!shown && !folder.empty() && once_.first(OnceLog::Topic::kFolder))
    Log::info("the files are in " + folder);
}

void Session::complete_run_info(RunInfo& run) {
  device_reader_.add_links(run.devices);
  cupti_.add_overhead(run.overhead);
  run.overhead.device_readings = device_reader_.time();
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
  Pipeline::Locked(pipeline_).writer().keep_run_state();
}

Nanoseconds Session::write_interval() const noexcept {
  return flushing_ != 0 ? RunWriter::kInterval : pipeline_.write_interval();
}

}  // namespace inject
