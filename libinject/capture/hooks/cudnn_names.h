// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The names of types and operations in the text of a cuDNN plan. Pure.
#pragma once

#include <string_view>

#include "libinject/model/data_type.h"
#include "libinject/model/graph_operations.h"

namespace inject {

/// "CUDNN_DATA_HALF"; kUnknown if there is no name, kOther for an unknown one.
DataType cudnn_data_type(std::string_view name) noexcept;

/// "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR", with prefix and suffix or without.
GraphOperation cudnn_operation(std::string_view name) noexcept;

/// What a pointwise operation of this mode does: "CUDNN_POINTWISE_ADD".
GraphOperation cudnn_pointwise_operation(std::string_view mode) noexcept;

}  // namespace inject
