// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a kernel's (mangled) name tells the search for training iterations.
#pragma once

#include <string_view>

namespace inject {

/// A kernel of an optimizer: each iteration has one.
bool is_optimizer_name(std::string_view name);
/// A kernel that a compiler runs to choose among kernels (XLA): what repeats around it is not training.
bool is_tuning_name(std::string_view name);
/// A kernel of PyTorch, whose optimizers can be recognised by name as well.
bool is_pytorch_name(std::string_view name);

}  // namespace inject
