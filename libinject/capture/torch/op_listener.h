// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Which of PyTorch's operators a thread is in, and which node of autograd's. Listened to only while launches
// are named: every operator then costs a microsecond.
#pragma once

#include <cstddef>

#include "libinject/capture/python/frame_reader.h"
#include "libinject/capture/torch/record_function.h"
#include "libinject/record/code_places.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// Tests whether PyTorch calls back as is expected. On our own thread, once, as PyTorch has been found.
void prepare_operators(const RecordFunctionApi& torch) noexcept;
/// Tests how their inputs are read: on our own thread, once that is so. With the loader held off (LoaderUse).
void prepare_operator_inputs() noexcept;
/// Whether it does.
bool operators_told() noexcept;

/// From here on each thread keeps its operators (ThreadState::operators), or no longer. One caller at a time.
void listen_to_operators(bool listen) noexcept;
/// The same, without a word to PyTorch: the process exits, and what its callbacks are kept in may be gone; or
/// it is a forked child.
void ignore_operators() noexcept;
bool listens_to_operators() noexcept;
/// Whether one has begun on the thread since then, or they are not listened to.
bool operators_heard(const ThreadState& thread) noexcept;

/// The context of that frame of the thread's, stack_frame().
CodeContext thread_context(ThreadState& thread, PythonFrame frame, CodePlaces& places) noexcept;

/// The name of an operator that is open on the calling thread; null if it has none.
const char* operator_name(const void* function) noexcept;

}  // namespace inject
