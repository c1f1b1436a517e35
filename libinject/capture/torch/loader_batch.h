// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How many samples a DataLoader has returned (INJECT_BATCH=auto): the first dimension of the batch's first
// tensor. When a fetch ends (loader_fetch.h), the iterator's `__next__` is one of our callers, and has the
// batch in its variable `data`, in PyTorch 1.12 to 2.15. It is queried through CPython's stable ABI, with the
// GIL, which the thread is about to take anyway: PyTorch's operators, one of which is the end of a fetch, run
// without it.
#pragma once

namespace inject {

/// Reports the batch as units of work (emit_units()) of what follows; a size that can't be read counts as
/// unknown. Reports nothing if the loader returned no batch. Call on the thread whose fetch has just ended.
void say_batch() noexcept;

}  // namespace inject
