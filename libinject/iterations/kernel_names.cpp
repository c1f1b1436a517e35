// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/kernel_names.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "libinject/analysis/name_words.h"

namespace inject {

bool is_optimizer_name(std::string_view name) {
  static constexpr std::string_view kWords[] = {"multi_tensor_apply",
                                                "multitensorapply",
                                                "adam",
                                                "sgd",
                                                "adagrad",
                                                "rmsprop",
                                                "adadelta",
                                                "adafactor",
                                                "fusedlamb",
                                                "^lamb_",
                                                "^lars_",
                                                "^lion_",
                                                "momentum",
                                                "optimizer",
                                                "update_weight",
                                                "weight_update",
                                                "apply_gradient",
                                                "apply_grad",
                                                "update_params",
                                                "param_update"};
  std::string lower(name.substr(0, 2048));
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto has = [&](std::string_view words) { return name_has_words(lower, words); };
  // The same kernels set gradients to zero, but at the beginning, and copy shards of parameters in the
  // forward and backward passes (FSDP).
  if (has("zerofunctor") || has("foreach_zero") || has("multi_tensor_apply copy")) return false;
  return std::ranges::any_of(kWords, has);
}

bool is_tuning_name(std::string_view name) {
  static constexpr std::string_view kWords[] = {"delay_kernel",       "xla_fp_comparison",
                                                "redzone_checker",    "RedzoneAllocator",
                                                "RepeatBufferKernel", "buffer_comparator"};
  return std::ranges::any_of(kWords,
                             [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

bool is_pytorch_name(std::string_view name) {
  return name.find("at6native") != std::string_view::npos;
}

}  // namespace inject
