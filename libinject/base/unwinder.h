// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Prepares the C++ runtime that is linked into this library for a thread that is cancelled inside a hook.
/// The process's own unwinder (libgcc_s) then runs our cleanups, and these call functions of our copy, which
/// abort if that copy has never unwound anything. Takes about 10 µs; call it before any hook can have work to
/// do.
void prepare_unwinder() noexcept;

}  // namespace inject
