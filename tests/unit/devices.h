// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include "libinject/model/run_info.h"

namespace inject {

/// An H200's attributes, as far as the tables need them.
inline DeviceInfo h200(std::uint32_t id) {
  DeviceInfo device;
  device.id = id;
  device.name = "NVIDIA H200";
  device.compute_major = 9;
  device.multiprocessors = 132;
  device.warp_size = 32;
  device.threads_per_block = 1024;
  device.threads_per_multiprocessor = 2048;
  device.blocks_per_multiprocessor = 32;
  device.registers_per_block = 65536;
  device.registers_per_multiprocessor = 65536;
  device.shared_per_block = 49152;
  device.shared_per_block_optin = 232448;
  device.shared_per_multiprocessor = 233472;
  device.reserved_shared_per_block = 1024;
  return device;
}

}  // namespace inject
