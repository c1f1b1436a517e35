// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch reports its optimizers' steps: torch.optim.Optimizer wraps each in a RecordFunction of user scope
// named `Optimizer.step#CLASS.step`, whatever kernels it launches. A callback for that scope makes a sign of
// it (SignKind::kStep). The same callback is called for fetches from data loaders (loader_fetch.h).
#pragma once

namespace inject {

/// Registers the callback if PyTorch is loaded and its interface is the known one; iteration_watch.steps_told
/// then becomes true. Later calls register it again if the program has cleared it. Cheap if nothing has been
/// loaded since the last call, and PyTorch has called back; waits for another thread that is loading PyTorch.
/// Called when CUDA is initialised, and on our own thread, with no lock held.
void listen_to_steps() noexcept;

}  // namespace inject
