// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/model/call_shape.h"

namespace inject {

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
/// result is one part. Saturates.
constexpr std::uint64_t collective_bytes(Collective operation, unsigned type, std::uint64_t count,
                                         std::uint32_t ranks) {
  const std::uint64_t factor =
      std::uint64_t{collective_type_bytes(type)} * (counts_parts(operation) && ranks > 1 ? ranks : 1);
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(count, factor, &bytes) ? ~std::uint64_t{0} : bytes;
}

}  // namespace inject
