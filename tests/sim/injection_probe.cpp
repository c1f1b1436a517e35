// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// An injection library that counts how often the driver initialises it.
extern "C" {
int injection_count = 0;
int InitializeInjection(void) {
  ++injection_count;
  return 1;
}
}
