// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libinject/capture/metrics/metric_choice.h"
#include "libinject/capture/metrics/pm_api.h"

namespace inject {

/// What CUPTI's host API knows about a chip's metrics. Works without a device. One thread at a time.
class MetricHost {
 public:
  MetricHost(const PmApi& api, std::string chip) : api_(api), chip_(std::move(chip)) {}
  ~MetricHost() { close(); }
  MetricHost(const MetricHost&) = delete;
  MetricHost& operator=(const MetricHost&) = delete;

  /// Sets the device's counter availability (cuptiPmSamplingGetCounterAvailability): from now on, metrics
  /// that it lacks are left out. Without it, chips newer than CUPTI are unknown, and reserved counters are
  /// included.
  void availability(std::vector<std::uint8_t> image) { availability_ = std::move(image); }

  /// Loads the vendor's libraries needed for it, which takes up to a third of a second the first time.
  CUptiResult base_names(std::vector<std::string>& names);
  /// Number of passes that `names` need together; 0 if one of them is unknown.
  std::size_t passes(const std::vector<std::string>& names);
  /// The result of the latest passes().
  CUptiResult result_of_passes() const { return result_of_passes_; }

  /// Prepares evaluate() for these metrics, and the image with which a device is configured.
  CUptiResult open(const std::vector<std::string>& names, std::vector<std::uint8_t>& config);
  /// The metrics' values in one sample of a counter data image.
  CUptiResult evaluate(std::span<const std::uint8_t> image, std::size_t sample, std::span<double> values);
  void close() noexcept;
  /// close() without a call: CUPTI is gone.
  void forget() noexcept { object_ = nullptr; }
  /// In the form needed by functions that take a list of names; valid until close().
  std::vector<const char*>& names() { return names_; }

 private:
  CUptiResult make(CUpti_Profiler_Host_Object*& object) const;
  void release(CUpti_Profiler_Host_Object* object) const noexcept;
  CUptiResult configure(CUpti_Profiler_Host_Object* object, std::vector<const char*>& names,
                        std::vector<std::uint8_t>& config) const;

  const PmApi& api_;
  std::string chip_;
  std::vector<std::uint8_t> availability_;  // empty: not known
  CUptiResult result_of_passes_ = CUPTI_SUCCESS;
  CUpti_Profiler_Host_Object* object_ = nullptr;
  std::vector<std::string> texts_;
  std::vector<const char*> names_;
};

/// A chip's metrics, queried through `host`, which has to outlive them.
ChipMetrics chip_metrics(MetricHost& host, std::vector<std::string> base_names);

}  // namespace inject
