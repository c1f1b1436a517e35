// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Signs of launches, copies and memsets for the search for iterations, if CUPTI's callbacks are its source.
#pragma once

#include <cupti.h>

#include "libinject/capture/cupti/driver_functions.h"

namespace inject {

/// Emits the sign of a call that is about to be made.
void emit_launch_sign(const DriverFunction& function, CUpti_CallbackId cbid,
                      const CUpti_CallbackData& data) noexcept;

}  // namespace inject
