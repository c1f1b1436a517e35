// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What kind of copy a copy is: that follows from where its two ends are.
#pragma once

#include "tests/sim/core/device.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::internal {

struct Place {
  MemoryType type = MemoryType::kPageable;
  int device = -1;
  Context* context = nullptr;
  bool on_device() const { return type == MemoryType::kDevice || type == MemoryType::kManaged; }
};
Place place_of(const void* pointer);

struct CopyClass {
  CUpti_ActivityMemcpyKind kind = CUPTI_ACTIVITY_MEMCPY_KIND_UNKNOWN;
  Rate rate = Rate::kDeviceToDevice;
  Place source, target;
  bool peer = false;
};
CopyClass classify(const CopyWork& work);
const char* copy_name(const CopyClass& copy);

}  // namespace inject::sim::internal
#pragma GCC visibility pop
