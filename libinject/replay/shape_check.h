// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/model/call_shape.h"

namespace inject::recovery {

/// Whether each field that stands for one of a few things does so: what reads shapes looks them up in tables.
bool is_shape(const CallShape& shape);

}  // namespace inject::recovery
