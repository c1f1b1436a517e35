// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Properties of a kernel, by its (mangled) name, that the search for training iterations uses.
#pragma once

#include <string_view>

namespace inject {

/// A kernel of an optimizer; each iteration has one.
bool is_optimizer_name(std::string_view name);
/// A kernel that a compiler runs to choose among kernels (XLA): what repeats around it is not training.
bool is_tuning_name(std::string_view name);
/// A kernel of PyTorch, whose optimizers can also be recognised by name.
bool is_pytorch_name(std::string_view name);

}  // namespace inject
