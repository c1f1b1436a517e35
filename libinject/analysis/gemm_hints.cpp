// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/gemm_hints.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "libinject/analysis/shape_work.h"
#include "libinject/analysis/tensor_eligibility.h"

namespace inject {

namespace {

/// The output of one thread block of a large GEMM kernel.
constexpr std::int64_t kTile = 128;

/// This many products of one shape in an iteration are worth combining; fewer are just the layers of a model.
constexpr std::uint64_t kManyCalls = 64;

bool has(const DeviceSpecs& device, Arithmetic arithmetic) {
  return arithmetic_support(device, arithmetic) == ArithmeticSupport::kYes;
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

/// Whether the call has a single set of sizes: those of a grouped product may differ.
bool has_sizes(const GemmShape& shape) {
  return shape.m > 0 && shape.n > 0 && shape.k > 0 && shape.op_a != 0 && shape.op_b != 0;
}

std::int64_t tiles(const GemmShape& shape) {
  const auto up = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  return up(shape.m) * up(shape.n) * std::max<std::int64_t>(shape.batch, 1);
}

/// Whether the product leaves some multiprocessors without a tile.
bool is_small(const GemmShape& shape, const DeviceSpecs& device) {
  return has_sizes(shape) && shape.groups == 0 && device.multiprocessors > 0 &&
         shape.m < std::int64_t{1} << 24 && shape.n < std::int64_t{1} << 24 &&
         tiles(shape) < device.multiprocessors;
}

double rate(const GemmRow& row) {
  if (row.gpu_ns == 0) return 0;
  return static_cast<double>(row.shape.flops) * static_cast<double>(row.calls) /
         static_cast<double>(row.gpu_ns);
}

std::string ops(const GemmShape& shape) {
  return {shape.op_a, shape.op_b};
}

/// Equal for products that differ only in transpositions (and leading dimensions).
auto size_key(const GemmShape& shape) {
  return std::tuple(shape.m, shape.n, shape.k, shape.batch, shape.groups, shape.a, shape.b, shape.c, shape.d,
                    shape.compute, shape.epilogue, shape.flags);
}

void add_transpositions(std::span<GemmRow> rows) {
  std::map<decltype(size_key(rows[0].shape)), const GemmRow*> fastest;
  for (const GemmRow& row : rows) {
    if (!has_sizes(row.shape) || rate(row) == 0) continue;
    const GemmRow*& best = fastest[size_key(row.shape)];
    if (best == nullptr || rate(row) > rate(*best)) best = &row;
  }
  for (GemmRow& row : rows) {
    const auto found = fastest.find(size_key(row.shape));
    if (found == fastest.end() || rate(row) == 0) continue;
    const GemmRow& best = *found->second;
    if (ops(best.shape) == ops(row.shape) || rate(best) <= rate(row) * kFasterBy) continue;
    const auto percent = static_cast<std::int64_t>((rate(best) / rate(row) - 1) * 100);
    row.hints.push_back({HintKind::kTransposition, ops(best.shape) + " is " + number(percent) +
                                                       " % faster than " + ops(row.shape) + " at this size"});
  }
}

/// An operand that several products may share: its size, type and how it is read.
struct CommonOperand {
  char name;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t ld;
};

/// Equal for products that could be combined into one: they share an operand, read the other one in the same
/// way, and are called equally often.
auto combination_key(const CommonOperand& operand, const GemmRow& row) {
  const GemmShape& s = row.shape;
  return std::tuple(operand.name, operand.rows, operand.columns, operand.ld, s.op_a, s.op_b, s.a, s.b, s.c,
                    s.d, s.compute, row.calls);
}

void add_combinations(std::span<GemmRow> rows, const DeviceSpecs& device, std::uint64_t iterations) {
  struct Group {
    CommonOperand operand;
    std::vector<GemmRow*> rows;
  };
  std::map<decltype(combination_key({}, rows[0])), Group> sharing;
  for (GemmRow& row : rows) {
    const GemmShape& s = row.shape;
    if (!is_small(s, device) || s.batch > 1 || row.calls == 0) continue;
    for (const CommonOperand& operand :
         {CommonOperand{'A', s.m, s.k, s.lda}, CommonOperand{'B', s.k, s.n, s.ldb}}) {
      Group& group = sharing[combination_key(operand, row)];
      group.operand = operand;
      group.rows.push_back(&row);
    }
    if (iterations > 0 && row.calls / iterations >= kManyCalls && std::min(s.m, s.n) < kNarrow) {
      row.hints.push_back(
          {HintKind::kCombine, number(static_cast<std::int64_t>(row.calls / iterations)) +
                                   " such products an iteration: those that have " + (s.n < s.m ? "A" : "B") +
                                   " in common and do not wait for each other could be one" +
                                   (2 * row.shared >= row.calls ? " (A is the same matrix in most)" : "")});
    }
  }
  // A row gets the hint for the larger of its two groups.
  std::vector<const Group*> groups;
  for (const auto& [key, group] : sharing) {
    if (group.rows.size() > 1) groups.push_back(&group);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group* a, const Group* b) { return a->rows.size() > b->rows.size(); });
  for (const Group* group : groups) {
    const CommonOperand& operand = group->operand;
    for (GemmRow* row : group->rows) {
      const bool said = std::any_of(row->hints.begin(), row->hints.end(),
                                    [](const Hint& hint) { return hint.kind == HintKind::kCombine; });
      if (said) continue;
      row->hints.push_back({HintKind::kCombine, number(static_cast<std::int64_t>(group->rows.size())) +
                                                    " small products have an equal " + operand.name + " (" +
                                                    number(operand.rows) + " x " + number(operand.columns) +
                                                    "): if it is the same matrix they could be one"});
    }
  }
}

}  // namespace

std::string_view bound_name(Bound bound) noexcept {
  switch (bound) {
    case Bound::kMemory:
      return "memory";
    case Bound::kCompute:
      return "compute";
    case Bound::kUnknown:
      break;
  }
  return {};
}

Roofline roofline(double flops, double bytes, std::optional<double> peak_flops,
                  std::optional<double> peak_bandwidth) noexcept {
  Roofline result;
  if (flops <= 0 || bytes <= 0) return result;
  result.intensity = flops / bytes;
  if (!peak_flops || !peak_bandwidth || *peak_flops <= 0 || *peak_bandwidth <= 0) return result;
  const double by_memory = result.intensity * *peak_bandwidth;
  result.bound = by_memory < *peak_flops ? Bound::kMemory : Bound::kCompute;
  result.attainable = std::min(by_memory, *peak_flops);
  return result;
}

std::vector<Hint> gemm_hints(const GemmShape& shape, TensorCores cores, const DeviceSpecs& device) {
  std::vector<Hint> hints;
  if (!has_sizes(shape)) return hints;
  const std::int64_t narrow = std::min(shape.m, shape.n);
  if (narrow < kNarrow) {
    const bool n = shape.n <= shape.m;
    hints.push_back({HintKind::kNarrow, std::string(n ? "N" : "M") + " = " + number(narrow) +
                                            " is below 32: " + (n ? "A" : "B") +
                                            " is read for few products each"});
  }
  const TensorEligibility eligibility = tensor_eligibility(shape, device);
  if (eligibility.misaligned) hints.push_back({HintKind::kMultiples, eligibility.reason});
  const bool fp32 = (shape.a == DataType::kF32 || shape.a == DataType::kC64) && shape.a == shape.b;
  if (fp32 && !tensor_arithmetic(shape.a, shape.compute) && cores == TensorCores::kNotUsed &&
      has(device, Arithmetic::kTf32) && narrow > 1) {
    // A memory-bound product would gain nothing.
    const Roofline roof = roofline(static_cast<double>(shape.flops), static_cast<double>(shape.bytes),
                                   peak_flops(device, Arithmetic::kFp32), peak_bandwidth(device));
    if (roof.bound != Bound::kMemory) {
      hints.push_back({HintKind::kTf32, "fp32 on CUDA cores: tf32 would use tensor cores"});
    }
  }
  return hints;
}

void add_row_hints(std::span<GemmRow> rows, const DeviceSpecs& device, std::uint64_t iterations) {
  add_transpositions(rows);
  add_combinations(rows, device, iterations);
}

}  // namespace inject
