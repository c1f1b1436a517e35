// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>
#include <string_view>

#include "libinject/model/run_info.h"
#include "libinject/output/prometheus_metrics.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// The file named by INJECT_PROM, for the node exporter's textfile collector. It is replaced atomically:
/// written next to its final place, under a name that the collector ignores, then renamed. Others may read it
/// (0644). One thread at a time.
class PrometheusFile {
 public:
  void open(std::string path, int pid);
  bool is_on() const { return !info_.file.empty(); }

  /// The current contents of the file.
  std::string text(const Report& report, PrometheusState state);
  /// False if the file could not be written: see error(); the previous file stays. Never throws.
  bool write(const std::string& text) noexcept;
  const std::string& error() const { return error_; }
  const PrometheusInfo& info() const { return info_; }

 private:
  bool write_text(const std::string& text);

  PrometheusInfo info_;
  std::string temporary_;
  std::string error_;
  PrometheusMetrics metrics_;
};

}  // namespace inject
