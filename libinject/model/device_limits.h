// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// From the device's attributes; 0 if one could not be read.
struct DeviceLimits {
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  int warp_size = 0;
  int threads_per_block = 0;
  int threads_per_multiprocessor = 0;
  int blocks_per_multiprocessor = 0;
  int registers_per_block = 0;
  int registers_per_multiprocessor = 0;
  int shared_per_block = 0;        ///< bytes; without opting in to more
  int shared_per_block_optin = 0;  ///< maximum with opt-in
  int shared_per_multiprocessor = 0;
  int reserved_shared_per_block = 0;  ///< by the driver, in addition to what the kernel requests
};

}  // namespace inject
