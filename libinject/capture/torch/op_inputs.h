// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The inputs of an operator for which PyTorch calls a callback. If the callback requests them, the
// RecordFunction refers to them until it returns, as c10::IValue; one that holds a tensor is a pointer to a
// c10::TensorImpl and a tag. Sizes are read from that memory: PyTorch's functions for it throw, print, or run
// Python for some tensors. The offsets are found by a test with tensors of known sizes, and an operator that
// takes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "libinject/capture/torch/operator_work.h"
#include "libinject/capture/torch/record_function.h"

namespace inject {

/// In bytes from the beginning of each object.
struct InputLayout {
  std::size_t inputs = 0;  ///< of a RecordFunction: where the inputs are, followed by their number
  std::uint32_t tensor_tag = 0;
  // Of a TensorImpl:
  std::size_t storage = 0;
  std::size_t sizes = 0;  ///< their number, followed by the sizes themselves if there are at most five
  std::size_t elements = 0;
  std::size_t type = 0;
};

/// Where an operator's inputs are. Must be called with the loader held off (DynamicLoaderGuard), on a thread
/// of ours, to which none of the program's operator modes apply. Empty if that is unknown. `sequence`:
/// find_sequence().
std::optional<InputLayout> find_inputs(const RecordFunctionApi& torch, std::size_t sequence) noexcept;

/// The first inputs of an operator that has just begun on the calling thread.
struct OperatorInputs {
  std::array<OperatorInput, OperatorFormula::kMostInputs> first;
  std::size_t count = 0;  ///< of all inputs
};
OperatorInputs read_inputs(const RecordFunctionApi& torch, const InputLayout& layout,
                           const void* function) noexcept;

}  // namespace inject
