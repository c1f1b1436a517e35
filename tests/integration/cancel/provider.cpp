// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A hooked function that never returns, like a collective whose peer has gone.
#include <semaphore.h>
#include <unistd.h>

extern "C" {
sem_t provider_entered;

int ncclGroupEnd() {
  sem_post(&provider_entered);
  for (;;) pause();
}
}
