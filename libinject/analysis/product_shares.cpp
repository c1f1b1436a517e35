// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/product_shares.h"

#include <algorithm>

#include "libinject/analysis/kernel_class.h"

namespace inject {

std::vector<std::optional<double>> product_shares(std::span<const KernelInCalls> kernels, double flops,
                                                  std::uint64_t calls) {
  std::vector<ProductRole> roles;
  std::uint64_t products = 0;  // executions that may have done some of the operations …
  std::size_t names = 0;       // … and the number of different kernels
  for (const KernelInCalls& kernel : kernels) {
    // The only kernel that a call launched did all of its operations, whatever its name.
    roles.push_back(kernels.size() == 1 ? ProductRole::kMultiplies : product_role_of(kernel.name));
    if (roles.back() == ProductRole::kHelps) continue;
    products += kernel.count;
    ++names;
  }
  // Several kernels either belong to different calls, one each, or share a call in an unknown way.
  const bool unknown = std::find(roles.begin(), roles.end(), ProductRole::kUnknown) != roles.end();
  const bool one_each = products == calls && !unknown;
  std::vector<std::optional<double>> shares;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (roles[i] == ProductRole::kHelps) {
      shares.emplace_back(0);
    } else if (names == 1) {
      shares.emplace_back(flops * static_cast<double>(calls));
    } else if (one_each) {
      shares.emplace_back(flops * static_cast<double>(kernels[i].count));
    } else {
      shares.emplace_back();
    }
  }
  return shares;
}

}  // namespace inject
