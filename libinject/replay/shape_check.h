// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/model/call_shape.h"

namespace inject::recovery {

/// Whether all fields with a limited set of values are valid: readers of shapes use them as indices into
/// tables.
bool is_shape(const CallShape& shape);

}  // namespace inject::recovery
