// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A second module that calls, in turn with the program. Not a tail call.
extern "C" int cudaStreamSynchronize(unsigned long stream);

__attribute__((visibility("default"))) int call_from_elsewhere() {
  return cudaStreamSynchronize(0) + 1;
}
