// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// Has the control socket and what INJECT_AFTER asks for come and go with the session. Once, before there is
/// one; no allocation.
void register_companions() noexcept;

}  // namespace inject
