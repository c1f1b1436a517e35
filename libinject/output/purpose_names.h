// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/model/memory_purposes.h"

namespace inject {

std::string_view purpose_name(std::size_t purpose);
/// True if its amount is known.
bool is_known(const MemoryPurposes& memory, const DevicePurposes& device, std::size_t purpose);
/// Bytes in use on the device, as far as known.
std::uint64_t all_bytes(const DevicePurposes& device);
/// The allocator's peak minus what lasts from one iteration to the next; empty if that is unknown.
std::optional<std::uint64_t> activations_at_peak(const MemoryPurposes& memory, const DevicePurposes& device);

}  // namespace inject
