// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <limits>

#include "libinject/model/call_shape.h"

namespace inject {

/// A number of bytes that is unknown, or does not fit into 64 bits. What it is added to becomes unknown too.
inline constexpr std::uint64_t kUnknownBytes = std::numeric_limits<std::uint64_t>::max();

/// Bytes of an element of an ncclDataType_t, 0 if unknown.
constexpr unsigned collective_type_bytes(unsigned type) {
  constexpr std::uint8_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type < sizeof kBytes ? kBytes[type] : 0;
}

/// Whether a call's count is the part of one rank.
constexpr bool counts_parts(Collective operation) {
  return operation == Collective::kAllGather || operation == Collective::kReduceScatter ||
         operation == Collective::kAllToAll || operation == Collective::kGather ||
         operation == Collective::kScatter;
}

/// Bytes of a call as nccl-tests count them: the larger of what a rank contributes and what it receives, on
/// the root if there is one. If counts_parts(), this depends on the number of ranks; if that is unknown, the
/// result is one part. kUnknownBytes for an unknown type.
constexpr std::uint64_t collective_bytes(Collective operation, unsigned type, std::uint64_t count,
                                         std::uint32_t ranks) {
  const std::uint64_t factor =
      std::uint64_t{collective_type_bytes(type)} * (counts_parts(operation) && ranks > 1 ? ranks : 1);
  std::uint64_t bytes = 0;
  return factor == 0 || __builtin_mul_overflow(count, factor, &bytes) ? kUnknownBytes : bytes;
}

}  // namespace inject
