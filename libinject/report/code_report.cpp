// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/code_report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace inject {

namespace {

/// A chain of nodes, the innermost first.
std::vector<CodeNode> chain_of(std::uint32_t id, const CodePlaces& places) {
  std::vector<CodeNode> chain;
  for (; id != 0; id = chain.back().parent) chain.push_back(places.node(id));
  return chain;
}

template <typename Key, typename Row>
std::vector<Row> rows_of(std::map<Key, Row>& found) {
  std::vector<Row> rows;
  rows.reserve(found.size());
  for (auto& [key, row] : found) rows.push_back(std::move(row));
  return rows;
}

class CodeSums {
 public:
  explicit CodeSums(const CodePlaces& places) : places_(places) {}

  void add(std::uint32_t number, const Totals& kernels) {
    const CodePlace place = places_.place(number);
    report_.all.add(kernels, place.phase);
    if (number == 0) report_.unattributed += kernels.sum;
    const std::string_view without = number == 0 ? kUnattributed : kNoCode;
    add_operators(place, kernels, without);
    add_modules(place, kernels, without);
    add_lines(place, kernels, without);
  }

  CodeReport finish() {
    report_.operators = rows_of(operators_);
    report_.modules = rows_of(modules_);
    report_.lines = rows_of(lines_);
    std::stable_sort(report_.operators.begin(), report_.operators.end(),
                     [](const auto& one, const auto& other) {
                       return std::pair(one.self.time, one.inclusive.time) >
                              std::pair(other.self.time, other.inclusive.time);
                     });
    std::stable_sort(report_.modules.begin(), report_.modules.end(), [](const auto& one, const auto& other) {
      return one.inclusive.time > other.inclusive.time;
    });
    std::stable_sort(report_.lines.begin(), report_.lines.end(), [](const auto& one, const auto& other) {
      return std::pair(one.user_time, one.inclusive.time) > std::pair(other.user_time, other.inclusive.time);
    });
    return std::move(report_);
  }

 private:
  std::string_view name(std::uint32_t id) const { return places_.names().name(id); }

  void add_operators(const CodePlace& place, const Totals& kernels, std::string_view without) {
    std::vector<std::string_view> names;
    for (const CodeNode& node : chain_of(place.op, places_)) names.push_back(name(node.name));
    if (names.empty()) names.push_back(without);
    for (std::size_t i = 0; i < names.size(); ++i) {
      // One that calls itself counts once.
      if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
          names.begin() + static_cast<std::ptrdiff_t>(i))
        continue;
      OperatorRow& row = operators_[names[i]];
      row.name = names[i];
      row.inclusive.add(kernels, place.phase);
      if (i == 0) row.self.add(kernels, place.phase);
    }
  }

  void add_modules(const CodePlace& place, const Totals& kernels, std::string_view without) {
    const std::vector<CodeNode> chain = chain_of(place.module, places_);
    std::string path;
    std::uint32_t depth = 0;
    for (std::size_t i = chain.size(); i-- > 0; ++depth) {
      std::string parent = path;
      if (!path.empty()) path += '.';
      path += name(chain[i].name);
      ModuleRow& row = modules_[path];
      row.path = path;
      row.parent = std::move(parent);
      row.type = name(chain[i].detail);
      row.depth = depth;
      row.inclusive.add(kernels, place.phase);
      if (i == 0) row.self.add(kernels, place.phase);
    }
    if (!chain.empty()) return;
    ModuleRow& row = modules_[std::string(without)];
    row.path = without;
    row.self.add(kernels, place.phase);
    row.inclusive.add(kernels, place.phase);
  }

  void add_lines(const CodePlace& place, const Totals& kernels, std::string_view without) {
    const std::vector<CodeNode> chain = chain_of(place.stack, places_);
    bool has_user_line = false;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const CodeNode& node = chain[i];
      const auto same = [&](const CodeNode& inner) {
        return inner.name == node.name && inner.detail == node.detail && inner.line == node.line;
      };
      const auto inner_end = chain.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find_if(chain.begin(), inner_end, same) != inner_end) continue;  // recursion
      LineRow& row = lines_[{node.detail, node.name, node.line}];
      row.file = name(node.detail);
      row.function = name(node.name);
      row.line = node.line;
      row.is_library = is_library_file(row.file);
      row.inclusive.add(kernels, place.phase);
      if (i == 0) row.self.add(kernels, place.phase);
      if (!row.is_library && !std::exchange(has_user_line, true)) row.user_time += kernels.sum;
    }
    if (!chain.empty() && has_user_line) return;
    // No row of a name is of that key.
    LineRow& row = lines_[{0, NameTable::kEmpty, static_cast<std::uint32_t>(without.size())}];
    row.function = without;
    row.user_time += kernels.sum;
    if (!chain.empty()) return;
    row.self.add(kernels, place.phase);
    row.inclusive.add(kernels, place.phase);
  }

  const CodePlaces& places_;
  CodeReport report_;
  std::map<std::string_view, OperatorRow> operators_;
  std::map<std::string, ModuleRow> modules_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, LineRow> lines_;
};

}  // namespace

bool is_library_file(std::string_view file) {
  // What has no file, as `<string>` or `<frozen importlib._bootstrap>`, and what compilers have written.
  if (file.empty() || file.front() == '<') return true;
  constexpr std::string_view kMarks[] = {"/site-packages/", "/dist-packages/", "/lib/python3.",
                                         "/torchinductor_"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [&](std::string_view mark) { return file.find(mark) != std::string_view::npos; });
}

CodeReport build_code_report(const CodeTimes& times, const CodePlaces& places) {
  if (!times.any_named() || times.sums().empty()) return {};
  CodeSums sums(places);
  for (const auto& [key, kernels] : times.sums()) sums.add(key.first, kernels);
  return sums.finish();
}

}  // namespace inject
