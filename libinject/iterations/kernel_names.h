// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a kernel's (mangled) name tells the search for training iterations.
#pragma once

#include <string_view>

namespace inject {

/// An optimizer's: each iteration has one.
bool is_optimizer_name(std::string_view name);
/// One that a compiler runs to choose among kernels (XLA): what repeats around it is no training.
bool is_tuning_name(std::string_view name);
/// PyTorch's: its optimizers have names as well.
bool is_pytorch_name(std::string_view name);

}  // namespace inject
