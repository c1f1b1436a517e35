// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/capture/python/interpreter.h"

namespace inject {

enum class PythonTest : unsigned char { kPassed, kFailed, kNoFrames };

struct PythonTestResult {
  PythonTest test = PythonTest::kNoFrames;
  const char* why = "";  // it failed; a constant
};

/// Whether the frames of `thread`, the calling thread's PyThreadState, are as the layout says: types, counts,
/// zeros behind texts, a line table that tells of as many instructions as there are. What is not yet trusted
/// is read only after the kernel has said that it can be, so a wrong layout fails and does no harm. Makes
/// some hundred system calls; no lock, no allocation, errno is kept.
PythonTestResult test_layout(const PythonInterpreter& interpreter, const void* thread) noexcept;

}  // namespace inject
