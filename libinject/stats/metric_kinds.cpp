// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/metric_kinds.h"

#include <string_view>
#include <utility>

namespace inject {

bool is_percentage(const MetricInfo& metric) {
  constexpr std::string_view kSign = "(%)";
  const std::string_view title = metric.title;
  return title.size() >= kSign.size() && title.substr(title.size() - kSign.size()) == kSign;
}

bool is_per_active_cycle(const MetricInfo& metric) {
  return metric.quantity == Quantity::kIpc || metric.quantity == Quantity::kOccupancy;
}

bool is_of_link(const MetricInfo& metric) {
  return metric.quantity == Quantity::kPcieRead || metric.quantity == Quantity::kPcieWrite ||
         metric.quantity == Quantity::kNvlinkReceive || metric.quantity == Quantity::kNvlinkTransmit;
}

MetricKinds::MetricKinds(std::vector<MetricInfo> list) : list_(std::move(list)) {
  for (std::size_t m = 0; m < list_.size(); ++m) {
    percentage_.push_back(is_percentage(list_[m]));
    if (!sm_active_ && list_[m].quantity == Quantity::kSmActive) sm_active_ = m;
  }
}

}  // namespace inject
