// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace inject {

/// A kernel of library calls of one shape: all its executions in them.
struct KernelInCalls {
  std::string_view name;
  std::uint64_t count = 0;
  std::uint64_t time = 0;
};

/// Which operations each of the kernels did, of `calls` calls of `flops` each; in their order. Those that
/// compute no products (ProductRole) did none. Nothing where the kernels and their number don't tell who did
/// what.
std::vector<std::optional<double>> product_shares(std::span<const KernelInCalls> kernels, double flops,
                                                  std::uint64_t calls);

}  // namespace inject
