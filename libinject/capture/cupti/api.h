// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>

namespace inject {

/// Functions of the CUPTI library, found at run time: the library is never linked. Types come from the
/// vendor's header.
struct CuptiApi {
#define INJECT_CUPTI_FUNCTIONS(X) \
  X(Subscribe)                    \
  X(Unsubscribe)                  \
  X(EnableCallback)               \
  X(EnableDomain)                 \
  X(GetCallbackName)              \
  X(GetVersion)                   \
  X(GetResultString)              \
  X(Finalize)                     \
  X(ActivityEnable)               \
  X(ActivityDisable)              \
  X(ActivityFlushAll)             \
  X(ActivityGetNextRecord)        \
  X(ActivityGetNumDroppedRecords) \
  X(ActivityRegisterCallbacks)    \
  X(ActivitySetAttribute)
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is being declared
#define INJECT_CUPTI_MEMBER(name) decltype(&::cupti##name) name = nullptr;
  INJECT_CUPTI_FUNCTIONS(INJECT_CUPTI_MEMBER)
#undef INJECT_CUPTI_MEMBER
  /// Optional: absent before CUDA 12.
  // NOLINTNEXTLINE(readability-identifier-naming): the vendor's name, as the others'
  decltype(&::cuptiActivityRegisterTimestampCallback) ActivityRegisterTimestampCallback = nullptr;

  /// Optional: without it, the kernels of CUDA graphs are not attributed to calls.
  // NOLINTNEXTLINE(readability-identifier-naming): the vendor's name, as the others'
  decltype(&::cuptiGetGraphNodeId) GetGraphNodeId = nullptr;

  /// Optional: absent before CUDA 13. Used only to get the name of the current subscriber.
  // NOLINTNEXTLINE(readability-identifier-naming): the vendor's name, as the others'
  decltype(&::cuptiSubscribe_v2) Subscribe_v2 = nullptr;

  std::uint32_t version = 0;  ///< CUPTI_API_VERSION of the library found
  std::string path;           ///< the file that was loaded

  /// Text for a CUPTI error code, e.g. "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)".
  std::string describe(CUptiResult result) const;
};

/// Finds and loads CUPTI: the copy that the process has loaded; else the one that belongs to the process's
/// CUDA libraries (beside libcudart or libcublas, or in the wheel's folder for CUPTI), then $CUDA_HOME, then
/// the system. An older copy of the same soname loaded too early breaks frameworks that bring their own, so
/// the order matters. On failure returns false and sets `error` to the reason. Once loaded, it stays loaded.
bool load_cupti(CuptiApi& api, std::string& error);

}  // namespace inject
