// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "libinject/base/uint128.h"

namespace inject {

enum class MetricType : std::uint8_t { kGauge, kCounter };

struct MetricFamily {
  std::string_view name;
  MetricType type = MetricType::kGauge;
  std::string_view help;
};

/// Prometheus' text format (version 0.0.4), appended to a string. A family's HELP and TYPE come with its
/// first sample, so a family without samples leaves nothing. Samples have no timestamps: the node exporter
/// rejects a file that has one.
class PrometheusText {
 public:
  struct Label {
    std::string_view name;
    std::string_view value;
  };
  using Labels = std::initializer_list<Label>;

  /// `common`: labels of every sample.
  PrometheusText(std::string& out, Labels common);
  PrometheusText(const PrometheusText&) = delete;
  PrometheusText& operator=(const PrometheusText&) = delete;

  /// The samples that follow belong to this family, each with its own labels. Each family may come only once.
  PrometheusText& family(const MetricFamily& family);
  PrometheusText& count(std::uint64_t value, Labels labels = {});
  /// Writes all digits; readers parse a double.
  PrometheusText& sum(Uint128 value, Labels labels = {});
  /// In seconds, to the nanosecond.
  PrometheusText& seconds(std::uint64_t nanoseconds, Labels labels = {});
  /// A value that is not finite is left out.
  PrometheusText& number(double value, Labels labels = {});

 private:
  void begin(Labels labels);

  std::string& out_;
  std::string common_;
  MetricFamily family_;
  bool begun_ = false;  // the family has had a sample
};

/// Appends a label's value in the form needed between the quotes: backslash, quote and line break are
/// escaped; other control characters and bytes that are not UTF-8 become U+FFFD, as in the tables.
void append_label_value(std::string& out, std::string_view text);

}  // namespace inject
