// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/gemm_hints.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace inject {

namespace {

/// Below this, a tile of the output is mostly empty, and each element of the large operand is used too few
/// times to balance the rates of memory and arithmetic.
constexpr std::int64_t kNarrow = 32;

/// The alignment that tensor cores' loads need, of addresses and of contiguous rows.
constexpr std::uint64_t kLoadBytes = 16;

/// The output of one thread block of a large GEMM kernel.
constexpr std::int64_t kTile = 128;

/// A transposition is reported from this ratio on.
constexpr double kAsymmetry = 1.10;

/// From this many products of one shape in an iteration they are worth combining; fewer are just the layers
/// of a model.
constexpr std::uint64_t kManyCalls = 64;

DataType result_type(const GemmShape& shape) {
  return shape.d != DataType::kUnknown ? shape.d : shape.c;
}

bool has(const DeviceSpecs& device, Arithmetic arithmetic) {
  return ability(device, arithmetic) == Ability::kYes;
}

bool is_fp8(DataType type) {
  return type == DataType::kF8E4M3 || type == DataType::kF8E5M2;
}

std::optional<Arithmetic> tensor_arithmetic(const GemmShape& shape) {
  return tensor_arithmetic(shape.a, shape.compute);
}

std::string number(std::int64_t value) {
  return std::to_string(value);
}

/// Sizes and addresses that are not aligned as cuBLAS needs for tensor cores, such as "M = 1001, lda = 1001".
std::string misaligned(const GemmShape& shape) {
  struct Item {
    const char* name;
    std::int64_t value;
    DataType type;
  };
  const bool a_plain = shape.op_a == 'N';
  const bool b_plain = shape.op_b == 'N';
  // The contiguous direction of each matrix (they are column-major) and the strides between columns.
  const Item items[] = {
      {a_plain ? "M" : "K", a_plain ? shape.m : shape.k, shape.a},
      {b_plain ? "K" : "N", b_plain ? shape.k : shape.n, shape.b},
      {"M", shape.m, result_type(shape)},
      {"lda", shape.lda, shape.a},
      {"ldb", shape.ldb, shape.b},
      {"ldc", shape.ldc, result_type(shape)},
  };
  std::string text;
  const auto add = [&text](const std::string& item) {
    if (text.find(item) != std::string::npos) return;  // M may be wrong for two matrices
    if (!text.empty()) text += ", ";
    text += item;
  };
  for (const Item& item : items) {
    if (item.value <= 0) continue;  // a grouped product's sizes differ
    if (static_cast<std::uint64_t>(item.value) * data_type_bits(item.type) % (8 * kLoadBytes) == 0) continue;
    add(std::string(item.name) + " = " + number(item.value));
  }
  // log2 of the alignment; 0 also stands for a call whose addresses are on the device (batched by pointers).
  const auto address = [&add](const char* name, std::uint8_t log2) {
    if (log2 != 0 && log2 < 4) add(std::string("address of ") + name);
  };
  address("A", shape.align_a);
  address("B", shape.align_b);
  address("C", shape.align_c);
  return text;
}

/// Whether the call has one set of sizes: those of a grouped product may differ.
bool has_sizes(const GemmShape& shape) {
  return shape.m > 0 && shape.n > 0 && shape.k > 0;
}

std::int64_t tiles(const GemmShape& shape) {
  const auto up = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  return up(shape.m) * up(shape.n) * std::max<std::int64_t>(shape.batch, 1);
}

/// Whether the product leaves multiprocessors without a tile.
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

/// Equal for products that differ only in their transpositions (and leading dimensions).
auto size_key(const GemmShape& shape) {
  return std::tuple(shape.m, shape.n, shape.k, shape.batch, shape.groups, shape.a, shape.b, shape.c, shape.d,
                    shape.compute, shape.epilogue);
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
    if (ops(best.shape) == ops(row.shape) || rate(best) <= rate(row) * kAsymmetry) continue;
    const auto percent = static_cast<std::int64_t>((rate(best) / rate(row) - 1) * 100);
    row.hints.push_back({HintKind::kTransposition, ops(best.shape) + " is " + number(percent) +
                                                       " % faster than " + ops(row.shape) + " at this size"});
  }
}

/// The operand that several products may share, by its size, type and how it is read.
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

std::string_view eligible_name(Eligible eligible) noexcept {
  switch (eligible) {
    case Eligible::kYes:
      return "yes";
    case Eligible::kMisaligned:
      return "misaligned";
    case Eligible::kNo:
      return "no";
    case Eligible::kUnknown:
      break;
  }
  return "unknown";
}

TensorEligibility tensor_eligibility(const GemmShape& shape, const DeviceSpecs& device) {
  if (data_type_bits(shape.a) == 0 || data_type_bits(shape.b) == 0)
    return {Eligible::kUnknown, "type not known"};
  // Which devices support these is not recorded here.
  if ((shape.flags & kGemmBlockScaled) != 0) return {Eligible::kUnknown, "scaled by blocks"};
  for (const DataType type : {shape.a, shape.b}) {
    if (type == DataType::kF4 || type == DataType::kF6 || type == DataType::kF8E8M0 || type == DataType::kC8I)
      return {Eligible::kUnknown, std::string(data_type_name(type))};
  }
  if (shape.compute == ComputeType::kOther) return {Eligible::kUnknown, "compute type not known"};
  if (shape.a != shape.b && !(is_fp8(shape.a) && is_fp8(shape.b))) {
    return {Eligible::kNo, "A and B are of different types"};
  }
  const std::optional<Arithmetic> arithmetic = tensor_arithmetic(shape);
  if (!arithmetic) {
    if ((shape.a == DataType::kI8 || shape.a == DataType::kU8) && shape.compute == ComputeType::kF32)
      return {Eligible::kNo, "int8 summed up in fp32"};
    if (shape.a == DataType::kF32 || shape.a == DataType::kC64) {
      return {Eligible::kNo, has(device, Arithmetic::kTf32) ? "fp32, and tf32 is not allowed" : "fp32"};
    }
    return {Eligible::kNo, "no tensor cores for " + std::string(data_type_name(shape.a))};
  }
  if (device.multiprocessors == 0) return {Eligible::kUnknown, "device not known"};
  switch (ability(device, *arithmetic)) {
    case Ability::kNo:
      return {Eligible::kNo, "the device has none for " + std::string(data_type_name(shape.a))};
    case Ability::kUnknown:
      return {Eligible::kUnknown, "device not known"};
    case Ability::kYes:
      break;
  }
  if (has_sizes(shape) && std::min(shape.m, shape.n) == 1) return {Eligible::kNo, "a matrix-vector product"};
  // fp64 is loaded in whole elements of 8 bytes.
  if (*arithmetic == Arithmetic::kFp64Tensor) return {Eligible::kYes, {}};
  if ((shape.flags & kGemmOtherOrder) != 0) return {Eligible::kUnknown, "matrices are not all column-major"};
  std::string wrong = misaligned(shape);
  if (wrong.empty()) return {Eligible::kYes, {}};
  // cuBLASLt has no fp8 kernels for anything else.
  const Eligible how = *arithmetic == Arithmetic::kFp8 ? Eligible::kNo : Eligible::kMisaligned;
  return {how, "not multiples of 16 bytes: " + wrong};
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
  if (eligibility.eligible == Eligible::kMisaligned ||
      (eligibility.eligible == Eligible::kNo && is_fp8(shape.a) && (shape.flags & kGemmOtherOrder) == 0 &&
       !misaligned(shape).empty())) {
    hints.push_back({HintKind::kMultiples, eligibility.reason});
  }
  const bool fp32 = (shape.a == DataType::kF32 || shape.a == DataType::kC64) && shape.a == shape.b;
  if (fp32 && !tensor_arithmetic(shape) && cores == TensorCores::kNotUsed && has(device, Arithmetic::kTf32) &&
      narrow > 1) {
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

std::string join_hints(const std::vector<Hint>& hints) {
  std::string text;
  for (const Hint& hint : hints) {
    if (!text.empty()) text += "; ";
    text += hint.text;
  }
  return text;
}

}  // namespace inject
