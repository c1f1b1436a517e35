// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace inject {

/// All executions of one kernel in library calls of one shape.
struct KernelInCalls {
  std::string_view name;
  std::uint64_t count = 0;
  std::uint64_t time = 0;
};

/// The number of operations, out of those of `calls` calls with `flops` each, done by each of the kernels, in
/// their order. Kernels that compute no products (ProductRole) did none. Empty where the kernels and their
/// counts do not determine which did what.
std::vector<std::optional<double>> product_shares(std::span<const KernelInCalls> kernels, double flops,
                                                  std::uint64_t calls);

}  // namespace inject
