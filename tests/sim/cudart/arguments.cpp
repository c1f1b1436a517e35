// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/cudart/arguments.h"

namespace inject::sim::rt {
namespace {

// Both structures that describe a box name their fields alike, for the runtime as for the driver.
template <class Box, class Params>
Box box(const Params& p) {
  Box copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(p.srcPtr.ptr);
  copy.dstDevice = address(p.dstPtr.ptr);
  copy.srcXInBytes = p.srcPos.x;
  copy.srcY = p.srcPos.y;
  copy.srcZ = p.srcPos.z;
  copy.dstXInBytes = p.dstPos.x;
  copy.dstY = p.dstPos.y;
  copy.dstZ = p.dstPos.z;
  copy.srcPitch = p.srcPtr.pitch;
  copy.dstPitch = p.dstPtr.pitch;
  copy.srcHeight = p.srcPtr.ysize;
  copy.dstHeight = p.dstPtr.ysize;
  copy.WidthInBytes = p.extent.width;
  copy.Height = p.extent.height;
  copy.Depth = p.extent.depth;
  return copy;
}

}  // namespace

CUDA_MEMCPY3D copy_3d(const cudaMemcpy3DParms& p) {
  return box<CUDA_MEMCPY3D>(p);
}

CUDA_MEMCPY3D_PEER copy_3d(const cudaMemcpy3DPeerParms& p) {
  auto copy = box<CUDA_MEMCPY3D_PEER>(p);
  copy.srcContext = primary_context(p.srcDevice)->handle();
  copy.dstContext = primary_context(p.dstDevice)->handle();
  return copy;
}

}  // namespace inject::sim::rt
