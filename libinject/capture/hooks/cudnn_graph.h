// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a cuDNN execution plan computes. A plan's graph can't be walked (its operations can't be queried), but
// the text into which cuDNN serializes a finalized plan contains everything: tensors, operations, engine.
#pragma once

#include <cstdint>
#include <string_view>

#include "libinject/model/call_shape.h"

namespace inject {

/// The shape of the plan whose text is `json` (CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); empty if the
/// text does not define one. `notes`: EngineNotes of its engine, 0 if they are not known.
CallShape shape_of_plan(std::string_view json, std::uint32_t notes) noexcept;

}  // namespace inject
