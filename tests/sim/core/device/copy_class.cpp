// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/device/copy_class.h"

namespace inject::sim::internal {

Place place_of(const void* pointer) {
  Allocation found;
  if (!find_allocation(pointer, found)) return {};
  return {found.type, found.device, found.context};
}

CopyClass classify(const CopyWork& work) {
  CopyClass copy;
  copy.source = place_of(work.source);
  copy.target = place_of(work.target);
  bool from_device = copy.source.on_device();
  bool to_device = copy.target.on_device();
  if (from_device && to_device) {
    copy.peer = copy.source.device != copy.target.device;
    copy.kind = copy.peer ? CUPTI_ACTIVITY_MEMCPY_KIND_PTOP : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    copy.rate = copy.peer ? Rate::kPeer : Rate::kDeviceToDevice;
  } else if (from_device) {
    copy.kind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    copy.rate = Rate::kDeviceToHost;
  } else if (to_device) {
    copy.kind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    copy.rate = Rate::kHostToDevice;
  } else {
    copy.kind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
    copy.rate = Rate::kDeviceToDevice;
  }
  return copy;
}

const char* copy_name(const CopyClass& copy) {
  switch (copy.kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "PtoP";
    default:
      return "HtoH";
  }
}

}  // namespace inject::sim::internal
