// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/driver/arguments.h"

namespace inject::sim::drv::impl {
namespace {

// Where one end of a copy is.
std::byte* end_of_copy(CUmemorytype type, const void* host, CUdeviceptr device) {
  void* end = type == CU_MEMORYTYPE_HOST ? const_cast<void*>(host) : pointer(device);
  return static_cast<std::byte*>(end);
}

// Both structures that describe a box name their fields alike.
template <class Params>
CopyWork copy_3d(const Params& params) {
  CopyWork work;
  work.width = params.WidthInBytes;
  work.height = params.Height;
  work.depth = params.Depth;
  work.source_pitch = params.srcPitch != 0 ? params.srcPitch : params.WidthInBytes;
  work.target_pitch = params.dstPitch != 0 ? params.dstPitch : params.WidthInBytes;
  work.source_slice = work.source_pitch * (params.srcHeight != 0 ? params.srcHeight : params.Height);
  work.target_slice = work.target_pitch * (params.dstHeight != 0 ? params.dstHeight : params.Height);
  const std::byte* source = end_of_copy(params.srcMemoryType, params.srcHost, params.srcDevice);
  std::byte* target = end_of_copy(params.dstMemoryType, params.dstHost, params.dstDevice);
  work.source =
      source + params.srcZ * work.source_slice + params.srcY * work.source_pitch + params.srcXInBytes;
  work.target =
      target + params.dstZ * work.target_slice + params.dstY * work.target_pitch + params.dstXInBytes;
  return work;
}

}  // namespace

SetWork set_work(CUdeviceptr target, std::uint32_t value, unsigned element, std::size_t count) {
  SetWork work;
  work.target = pointer(target);
  work.value = value;
  work.element = element;
  work.width = count;
  return work;
}

CopyWork copy_work(const CUDA_MEMCPY2D& params) {
  CopyWork work;
  const std::byte* source = end_of_copy(params.srcMemoryType, params.srcHost, params.srcDevice);
  std::byte* target = end_of_copy(params.dstMemoryType, params.dstHost, params.dstDevice);
  work.source = source + params.srcY * params.srcPitch + params.srcXInBytes;
  work.target = target + params.dstY * params.dstPitch + params.dstXInBytes;
  work.width = params.WidthInBytes;
  work.height = params.Height;
  work.source_pitch = params.srcPitch != 0 ? params.srcPitch : params.WidthInBytes;
  work.target_pitch = params.dstPitch != 0 ? params.dstPitch : params.WidthInBytes;
  return work;
}

CopyWork copy_work(const CUDA_MEMCPY3D& params) {
  return copy_3d(params);
}

CopyWork copy_work(const CUDA_MEMCPY3D_PEER& params) {
  return copy_3d(params);
}

}  // namespace inject::sim::drv::impl
