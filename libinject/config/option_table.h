// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "libinject/base/out_path.h"
#include "libinject/config/options.h"

namespace inject {

/// What is wrong with a value; empty if it is valid.
using Problem = std::optional<std::string>;

struct Option {
  OptionInfo info;
  /// Parses a value that is not empty into `options`.
  Problem (*parse)(std::string_view value, Options& options, const EnvironmentLookup& environment);
};

/// The options in options.def, in order.
std::span<const Option> options();

}  // namespace inject
