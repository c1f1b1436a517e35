// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Which of PyTorch's operators a thread is in, and which of autograd's nodes. Tracked only while launches are
// named: every operator then costs a microsecond.
#pragma once

#include <cstddef>

#include "libinject/capture/python/frame_reader.h"
#include "libinject/capture/torch/record_function.h"
#include "libinject/record/code_places.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// Tests whether PyTorch's callbacks work as expected. On our own thread, once, when PyTorch has been found.
void prepare_operators(const RecordFunctionApi& torch) noexcept;
/// Finds out how operators' inputs are read. On our own thread, after that test; the caller holds
/// DynamicLoaderGuard.
void prepare_operator_inputs() noexcept;
/// True if the callbacks passed that test.
bool operators_told() noexcept;

/// Starts or stops tracking each thread's operators (ThreadState::operators). One caller at a time.
void listen_to_operators(bool listen) noexcept;
/// Stops without calling PyTorch: the process is exiting, and the list of callbacks may be gone; or
/// it is a forked child.
void ignore_operators() noexcept;
bool listens_to_operators() noexcept;
/// True if an operator has begun on the thread since tracking started, or operators are not tracked.
bool operators_heard(const ThreadState& thread) noexcept;

/// The context of the thread's stack_frame().
CodeContext thread_context(ThreadState& thread, PythonFrame frame, CodePlaces& places) noexcept;

/// The name of an operator that is open on the calling thread; null if it has none.
const char* operator_name(const void* function) noexcept;

}  // namespace inject
