// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What bounds a matrix product, and what might make it faster. docs/gemm.md explains the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "libinject/analysis/hints.h"
#include "libinject/analysis/kernel_class.h"
#include "libinject/analysis/peaks.h"
#include "libinject/model/call_shape.h"

namespace inject {

enum class Bound : std::uint8_t { kUnknown, kMemory, kCompute };

/// "memory", "compute"; empty for kUnknown.
std::string_view bound_name(Bound bound) noexcept;

struct Roofline {
  double intensity = 0;   ///< operations per byte; 0 if the bytes are unknown
  double attainable = 0;  ///< operations per second under the roof; 0 if a peak is unknown
  Bound bound = Bound::kUnknown;
};

Roofline roofline(double flops, double bytes, std::optional<double> peak_flops,
                  std::optional<double> peak_bandwidth) noexcept;

/// Hints from the shape alone; `cores` as for arithmetic_of().
std::vector<Hint> gemm_hints(const GemmShape& shape, TensorCores cores, const DeviceSpecs& device);

/// One line of gemm_sum.csv.
struct GemmRow {
  GemmShape shape;
  std::uint64_t calls = 0;
  std::uint64_t gpu_ns = 0;
  /// Of `calls`, those with A at the same address as in the thread's previous call.
  std::uint64_t shared = 0;
  std::vector<Hint> hints;
};

/// Adds hints from comparing rows. `iterations`: over how many the rows were collected, 0 if unknown.
void add_row_hints(std::span<GemmRow> rows, const DeviceSpecs& device, std::uint64_t iterations);

}  // namespace inject
