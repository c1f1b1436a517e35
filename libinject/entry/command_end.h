// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// `inject run` becomes the command that it runs, so at the command's end nobody is left who could say that
// nothing was profiled: the process itself does.
#pragma once

namespace inject {

/// Notes whether this process is the command of an `inject run`. Once, when the library is loaded; no
/// allocation.
void note_command() noexcept;
/// CUDA is in use: the session has the last word.
void note_cuda() noexcept;

}  // namespace inject
