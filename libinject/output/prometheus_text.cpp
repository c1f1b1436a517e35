// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/prometheus_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "libinject/base/clock.h"
#include "libinject/base/csv.h"
#include "libinject/base/format.h"

namespace inject {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

void append_label(std::string& out, const PrometheusText::Label& label) {
  if (!out.empty() && out.back() != '{') out += ',';
  out.append(label.name).append("=\"");
  append_label_value(out, label.value);
  out += '"';
}

}  // namespace

void append_label_value(std::string& out, std::string_view text) {
  std::string valid;
  append_utf8(valid, text);
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    if (byte == '\\') {
      out += "\\\\";
    } else if (byte == '"') {
      out += "\\\"";
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += kReplacement;
    } else if (byte == 0xc2 && static_cast<unsigned char>(valid[i + 1]) < 0xa0) {  // U+0080 to U+009F
      out += kReplacement;
      ++i;
    } else {
      out += valid[i];
    }
  }
}

PrometheusText::PrometheusText(std::string& out, Labels common) : out_(out) {
  for (const Label& label : common) append_label(common_, label);
}

PrometheusText& PrometheusText::family(const MetricFamily& family) {
  family_ = family;
  begun_ = false;
  return *this;
}

// Help texts are our own and need no escaping.
void PrometheusText::begin(Labels labels) {
  if (!begun_) {
    begun_ = true;
    out_.append("# HELP ").append(family_.name).append(" ").append(family_.help).append("\n# TYPE ");
    out_.append(family_.name).append(family_.type == MetricType::kCounter ? " counter\n" : " gauge\n");
  }
  out_.append(family_.name);
  if (!common_.empty() || labels.size() != 0) {
    out_.append("{").append(common_);
    for (const Label& label : labels) append_label(out_, label);
    out_ += '}';
  }
  out_ += ' ';
}

PrometheusText& PrometheusText::count(std::uint64_t value, Labels labels) {
  begin(labels);
  out_.append(std::to_string(value)) += '\n';
  return *this;
}

PrometheusText& PrometheusText::sum(Uint128 value, Labels labels) {
  begin(labels);
  out_.append(to_string(value)) += '\n';
  return *this;
}

PrometheusText& PrometheusText::seconds(std::uint64_t nanoseconds, Labels labels) {
  begin(labels);
  std::string text = str_format("{}.{:09}", nanoseconds / kSecond, nanoseconds % kSecond);
  text.resize(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  out_.append(text) += '\n';
  return *this;
}

PrometheusText& PrometheusText::number(double value, Labels labels) {
  if (!std::isfinite(value)) return *this;
  // The shortest text that is parsed as the same number, whatever the program's locale.
  std::array<char, 32> digits;
  const auto [end, code] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc()) return *this;
  begin(labels);
  out_.append(digits.data(), end) += '\n';
  return *this;
}

}  // namespace inject
