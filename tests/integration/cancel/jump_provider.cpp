// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A hooked function in which a signal interrupts the program, as in a long wait.
#include <cuda_runtime_api.h>

#include <csignal>

cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  raise(SIGALRM);
  return cudaSuccess;
}
