// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>
#include <string_view>

namespace inject {

class Session;

/// The answer of `session` to a request of injectctl (endpoint.h).
std::string answer_request(Session& session, std::string_view request);

}  // namespace inject
