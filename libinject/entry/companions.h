// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Ties the control socket and INJECT_AFTER's watch to the session's lifetime. Called once, before there is a
/// session; no allocation.
void register_companions() noexcept;

}  // namespace inject
