// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/capture/python/interpreter.h"

namespace inject {

enum class PythonTest : unsigned char { kPassed, kFailed, kNoFrames };

struct PythonTestResult {
  PythonTest test = PythonTest::kNoFrames;
  const char* why = "";  // if it failed; a constant
};

/// Tests whether the frames of `thread`, the calling thread's PyThreadState, match the layout: types, counts,
/// zeros after texts, a line table that covers as many instructions as there are. Untested memory is read
/// only after the kernel has confirmed that it can be, so a wrong layout fails and does no harm. Makes some
/// hundred system calls; no lock, no allocation, errno is preserved.
PythonTestResult test_layout(const PythonInterpreter& interpreter, const void* thread) noexcept;

}  // namespace inject
