// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/code_report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "libinject/base/format.h"

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
  CodeSums(const CodeTimes& times, const CodePlaces& places)
      : places_(places),
        runs_text_(std::any_of(times.sums().begin(), times.sums().end(), [&](const auto& sum) {
          const std::vector<CodeNode> chain = chain_of(places.place(sum.first.place).stack, places);
          // A child that multiprocessing spawns runs a text as well, which calls this.
          return !chain.empty() && name(chain.back().detail) == kTextFile &&
                 (chain.size() < 2 ||
                  !name(chain[chain.size() - 2].detail).ends_with("/multiprocessing/spawn.py"));
        })) {}

  void add(std::uint32_t number, const Totals& kernels) {
    const CodePlace place = places_.place(number);
    if (number == 0) report_.unattributed += kernels.sum;
    add_work(number, place, [&](CodeWork& work) { work.add(kernels, place.phase); });
    user_line(place.stack, without(number, place)).user_time += kernels.sum;
  }

  void add_limits(std::uint32_t number, const KernelLimits& limits) {
    const CodePlace place = places_.place(number);
    add_work(number, place, [&](CodeWork& work) { work.limits.merge(limits); });
    user_line(place.stack, without(number, place)).user_limits.merge(limits);
  }

  void add_flops(std::uint32_t number, const CodeTimes::Flops& flops) {
    const CodePlace place = places_.place(number);
    if (place.phase == CodePhase::kRecompute) report_.recomputed.merge(flops.flops);
    add_recomputation_signs(number, place, static_cast<double>(flops.flops.total()));
    add_work(number, place, [&](CodeWork& work) { work.add(flops); });
  }

  void add_copies(std::uint32_t number, const Totals& copies) {
    const CodePlace place = places_.place(number);
    LineRow& row = user_line(place.stack, without(number, place));
    row.copies += copies.count;
    row.copy_time += copies.sum;
  }

  void add_gaps(const GapPlace& where, const GapTimes& gaps) {
    const CodeNode* node = nullptr;
    std::string_view without = kUnattributed;
    CodeNode found;
    if (where.kind == GapPlace::Kind::kDevice) {
      without = kDeviceGap;
    } else if (where.kind != GapPlace::Kind::kUnknown) {
      const bool is_launch = where.kind == GapPlace::Kind::kLaunch;
      const CodePlace place = is_launch ? places_.place(where.number) : CodePlace{};
      without = this->without(1, place);
      for (std::uint32_t id = is_launch ? place.stack : where.number; id != 0 && node == nullptr;
           id = found.parent) {
        found = places_.node(id);
        if (!is_library(name(found.detail))) node = &found;
      }
    }
    GapLineRow& row = gaps_[node == nullptr ? key_of(without) : key_of(*node)];
    if (node != nullptr) row.file = name(node->detail);
    row.function = node == nullptr ? without : name(node->name);
    row.line = node == nullptr ? 0 : node->line;
    row.gaps += gaps.gaps;
    row.time += gaps.time;
    row.causes[static_cast<std::size_t>(where.cause)] += gaps.time;
    if (where.own_work) row.own_work += gaps.time;
    report_.idle += gaps.time;
  }

  /// Longest stacks first, so that the shortest ones are those that no longer fit.
  void add_stacks(const CodeTimes::Sums& sums, std::size_t most_text) {
    std::vector<const CodeTimes::Sums::value_type*> longest;
    longest.reserve(sums.size());
    for (const auto& one : sums) longest.push_back(&one);
    std::stable_sort(longest.begin(), longest.end(),
                     [](const auto* one, const auto* other) { return one->second.sum > other->second.sum; });
    std::size_t room = most_text;
    for (const auto* one : longest) {
      const std::uint32_t number = one->first.place;
      std::string text = room == 0 ? std::string() : stack_text(number, one->first.name);
      if (text.size() > room) room = 0;
      if (room == 0) {
        text = phase_text(number);
        text += ';';
        text += name(NameTable::kOther);
      }
      const std::size_t length = text.size();
      const auto [stack, is_new] = stacks_.try_emplace(std::move(text), 0);
      stack->second += one->second.sum;
      if (is_new) room -= std::min(room, length);
    }
  }

  std::string_view phase_text(std::uint32_t number) const {
    return number == 0 ? kUnattributed : phase_name(places_.place(number).phase);
  }

  std::string stack_text(std::uint32_t number, std::uint32_t kernel) const {
    const CodePlace place = places_.place(number);
    std::string text(phase_text(number));
    const std::vector<CodeNode> chain = chain_of(place.stack, places_);
    if (chain.empty() && place.module_unknown) text += ";[unattributed]";
    for (auto node = chain.rbegin(); node != chain.rend(); ++node) {
      text += ';';
      add_part(text, name(node->name));
      if (node->line == 0 && name(node->detail).empty()) continue;
      text += " (";
      add_part(text, name(node->detail));
      text += str_format(":{})", node->line);
    }
    text += ';';
    add_part(text, name(kernel));
    return text;
  }

  CodeReport finish() {
    const double unnoticed = 0.01 * static_cast<double>(report_.all.flops.total());
    report_.recomputation_known =
        (report_.recomputed.total() == 0 || unplaced_flops_ <= unnoticed) &&
        compiled_backward_ <= std::max(most_compiled_backward_, most_after_recompute_) + unnoticed &&
        perhaps_recomputed_ <= unnoticed;
    report_.gaps = rows_of(gaps_);
    std::stable_sort(report_.gaps.begin(), report_.gaps.end(),
                     [](const GapLineRow& one, const GapLineRow& other) { return one.time > other.time; });
    report_.stacks.reserve(stacks_.size());
    while (!stacks_.empty()) {
      auto stack = stacks_.extract(stacks_.begin());
      report_.stacks.push_back({std::move(stack.key()), stack.mapped()});
    }
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
  /// Recomputation in a compiled backward pass is not in a call of a module. A backward pass has up to twice
  /// the FLOPs of its forward pass, that of attention 2.5 times as many.
  void add_recomputation_signs(std::uint32_t number, const CodePlace& place, double flops) {
    if (number == 0) unplaced_flops_ += flops;
    if (place.may_recompute) perhaps_recomputed_ += flops;
    const std::vector<CodeNode> operators = chain_of(place.op, places_);
    const auto is_in = [&](std::string_view function) {
      return std::any_of(operators.begin(), operators.end(),
                         [&](const CodeNode& node) { return name(node.name) == function; });
    };
    if (is_in("CompiledFunctionBackward")) {
      compiled_backward_ += flops;
    } else if (is_in("CompiledFunction")) {
      const bool is_attention = name(operators.front().name).find("attention") != std::string_view::npos;
      // With reentrant checkpointing, only the recomputed forward pass is in a compiled function.
      (place.phase == CodePhase::kRecompute ? most_after_recompute_ : most_compiled_backward_) +=
          (is_attention ? 2.5 : 2) * flops;
    }
  }

  using LineKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;

  std::string_view name(std::uint32_t id) const { return places_.names().name(id); }
  bool is_library(std::string_view file) const {
    return !(runs_text_ && file == kTextFile) && is_library_file(file);
  }
  static std::string_view without(std::uint32_t number) { return number == 0 ? kUnattributed : kNoCode; }
  /// The row for places without a module, or a line.
  static std::string_view without(std::uint32_t number, const CodePlace& place) {
    return place.module_unknown ? kUnattributed : without(number);
  }

  /// Calls `add` for the work of each row to which the place belongs.
  template <typename Add>
  void add_work(std::uint32_t number, const CodePlace& place, const Add& add) {
    add(report_.all);
    add_operators(place, without(number), add);
    add_modules(place, without(number, place), add);
    add_lines(place, without(number, place), add);
  }

  static LineKey key_of(const CodeNode& node) { return {node.detail, node.name, node.line}; }
  /// A key that no line's row has.
  static LineKey key_of(std::string_view without) {
    return {0, NameTable::kEmpty, static_cast<std::uint32_t>(without.size())};
  }

  /// Replaces separators of frames and lines. No part is left empty.
  static void add_part(std::string& text, std::string_view part) {
    if (part.empty()) part = kNoCode;
    for (const char character : part) {
      const bool separates = character == ';' || static_cast<unsigned char>(character) < ' ';
      text += separates ? ':' : character;
    }
  }

  LineRow& line(const CodeNode& node) {
    LineRow& row = lines_[key_of(node)];
    row.file = name(node.detail);
    row.function = name(node.name);
    row.line = node.line;
    row.is_library = is_library(row.file);
    return row;
  }
  LineRow& no_line(std::string_view without) {
    LineRow& row = lines_[key_of(without)];
    row.function = without;
    return row;
  }
  /// The innermost line outside libraries.
  LineRow& user_line(std::uint32_t stack, std::string_view without) {
    for (const CodeNode& node : chain_of(stack, places_)) {
      if (LineRow& row = line(node); !row.is_library) return row;
    }
    return no_line(without);
  }

  template <typename Add>
  void add_operators(const CodePlace& place, std::string_view without, const Add& add) {
    std::vector<std::string_view> names;
    for (const CodeNode& node : chain_of(place.op, places_)) names.push_back(name(node.name));
    if (names.empty()) names.push_back(without);
    for (std::size_t i = 0; i < names.size(); ++i) {
      // A recursive operator counts once.
      if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
          names.begin() + static_cast<std::ptrdiff_t>(i))
        continue;
      OperatorRow& row = operators_[names[i]];
      row.name = names[i];
      add(row.inclusive);
      if (i == 0) add(row.self);
    }
  }

  template <typename Add>
  void add_modules(const CodePlace& place, std::string_view without, const Add& add) {
    const std::vector<CodeNode> chain = chain_of(place.module, places_);
    std::string path;
    std::uint32_t depth = 0;
    for (std::size_t i = chain.size(); i-- > 0; ++depth) {
      std::string parent = path;
      if (!path.empty()) path += '.';
      path += name(chain[i].name);
      const auto [found, is_new] = modules_.try_emplace(path);
      ModuleRow& row = found->second;
      if (is_new) {
        row.path = path;
        row.parent = std::move(parent);
        row.type = name(chain[i].detail);
        row.depth = depth;
      } else {
        // Called by its parent and by another module, or in two models of one class.
        if (row.parent != parent) row.parent.reset();
        if (row.type != name(chain[i].detail)) row.type.reset();
        if (row.depth != depth) row.depth.reset();
      }
      add(row.inclusive);
      if (i == 0) add(row.self);
    }
    if (!chain.empty()) return;
    ModuleRow& row = modules_[std::string(without)];
    row.path = without;
    row.parent = "";
    row.type = "";
    row.depth = 0;
    add(row.self);
    add(row.inclusive);
  }

  template <typename Add>
  void add_lines(const CodePlace& place, std::string_view without, const Add& add) {
    const std::vector<CodeNode> chain = chain_of(place.stack, places_);
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const CodeNode& node = chain[i];
      const auto same = [&](const CodeNode& inner) {
        return inner.name == node.name && inner.detail == node.detail && inner.line == node.line;
      };
      const auto inner_end = chain.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::find_if(chain.begin(), inner_end, same) != inner_end) continue;  // recursion
      LineRow& row = line(node);
      add(row.inclusive);
      if (i == 0) add(row.self);
    }
    if (!chain.empty()) return;
    LineRow& row = no_line(without);
    add(row.self);
    add(row.inclusive);
  }

  /// The file of code that is given as text: that of `python -c` or, further in, what a library generates.
  static constexpr std::string_view kTextFile = "<string>";

  const CodePlaces& places_;
  const bool runs_text_;  // some stack begins there
  CodeReport report_;
  double unplaced_flops_ = 0;
  double perhaps_recomputed_ = 0;      // FLOPs
  double compiled_backward_ = 0;       // FLOPs
  double most_compiled_backward_ = 0;  // by the forward pass; or by its recomputation:
  double most_after_recompute_ = 0;
  std::map<std::string_view, OperatorRow> operators_;
  std::map<std::string, ModuleRow> modules_;
  std::map<LineKey, LineRow> lines_;
  std::map<LineKey, GapLineRow> gaps_;
  std::map<std::string, std::uint64_t> stacks_;
};

/// Whether it is in a cache of Inductor's, which may be in any folder: ab/cab….py, named by a hash in
/// base 32.
bool is_inductors_file(std::string_view file) {
  constexpr std::size_t kHash = 51;
  constexpr std::size_t kName = 1 + kHash + 3;
  if (file.size() < kName + 4 || !file.ends_with(".py")) return false;
  const std::string_view name = file.substr(file.size() - kName);
  const std::string_view hash = name.substr(1, kHash);
  const std::string_view folder = file.substr(file.size() - kName - 4, 4);
  return name.front() == 'c' &&
         hash.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") == std::string_view::npos &&
         folder.front() == '/' && folder.back() == '/' && folder.substr(1, 2) == hash.substr(0, 2);
}

}  // namespace

std::string_view phase_name(CodePhase phase) {
  switch (phase) {
    case CodePhase::kForward:
      return "forward";
    case CodePhase::kBackward:
      return "backward";
    case CodePhase::kRecompute:
      return "recomputation";
    case CodePhase::kOptimizer:
      return "optimizer";
    case CodePhase::kOther:
      break;
  }
  return "other";
}

bool is_library_file(std::string_view file) {
  // A program's cells and standard input are no files. Neither is what libraries generate: `<string>`,
  // `<eval_with_key>.1`, `<frozen importlib._bootstrap>`.
  constexpr std::string_view kTyped[] = {"<stdin", "<console>", "<ipython-input-", "<python-input-",
                                         "<command-"};
  const auto begins = [&](std::string_view typed) { return file.starts_with(typed); };
  if (std::any_of(std::begin(kTyped), std::end(kTyped), begins)) return false;
  if (file.empty() || file.front() == '<' || is_inductors_file(file)) return true;
  constexpr std::string_view kMarks[] = {"/site-packages/", "/dist-packages/", "/lib/python3.",
                                         "/lib64/python3.", "/torchinductor_"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [&](std::string_view mark) { return file.find(mark) != std::string_view::npos; });
}

CodeReport build_code_report(const CodeTimes& times, const CodePlaces& places, const CodeReportInput& input,
                             std::size_t most_stack_text) {
  if (!times.any_places() || times.sums().empty()) return {};
  CodeSums sums(times, places);
  for (const auto& [kernel, total] : times.sums()) {
    sums.add(kernel.place, total);
    if (input.limits) sums.add_limits(kernel.place, input.limits(kernel.detail, total.sum));
  }
  sums.add_stacks(times.sums(), most_stack_text);
  for (const auto& [place, flops] : times.flops()) sums.add_flops(place, flops);
  for (const auto& [place, copies] : times.copies()) sums.add_copies(place, copies);
  for (const auto& [place, gaps] : times.gaps()) sums.add_gaps(place, gaps);
  CodeReport report = sums.finish();
  const auto add_rates = [&](auto& rows) {
    for (auto& row : rows)
      row.inclusive.rate =
          flop_rate(row.inclusive.flops, static_cast<double>(row.inclusive.flop_time), input.device);
  };
  add_rates(report.operators);
  add_rates(report.modules);
  add_rates(report.lines);
  return report;
}

}  // namespace inject
