// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// `inject run` becomes the command that it runs, so at the command's end it can't report that nothing was
// profiled: the process itself does.
#pragma once

namespace inject {

/// Notes whether this process is the command of an `inject run`. Called once, when the library is loaded; no
/// allocation.
void note_command() noexcept;
/// CUDA is in use: the session prints the final message.
void note_cuda() noexcept;

}  // namespace inject
