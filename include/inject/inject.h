/* SPDX-License-Identifier: Apache-2.0
 * SPDX-FileCopyrightText: The libinject authors
 *
 * Windows and units of work from inside a program, in C or C++, without linking: the functions are weak, so a
 * program that runs without the preload finds them null. Call them through the inject_*_if_loaded forms or
 * test the pointer first. */
#ifndef INJECT_INJECT_H
#define INJECT_INJECT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a window named "inject_start" now; returns after CUPTI is attached (some 10 ms) if it is not. 0 on
 * success, -1 if a window is open already or none may be opened (INJECT_WINDOW=off or launch:..., xN used up,
 * profiling over or switched off). With INJECT_WINDOW=auto no window opens by itself after it. */
__attribute__((weak)) int inject_start(void);

/* Closes the open window, whoever opened it. Work submitted before this call belongs to it, whenever the
 * device gets to it. Does not wait. 0 on success, -1 if no window is open. */
__attribute__((weak)) int inject_stop(void);

/* Waits until all windows closed so far are written, ten seconds at most. 0 if they are, else -1. */
__attribute__((weak)) int inject_flush(void);

/* 1 while a window is open, else 0. */
__attribute__((weak)) int inject_is_open(void);

/* Declares that the GPU work that follows, on any thread, processes this many units: samples, tokens, seconds
 * of audio. Numbers add up; each is of the training iteration that the next launch, copy or synchronization
 * belongs to, so say it before the work that it is of. From any thread; takes less than 0.1 us. 0 on success;
 * -1 if INJECT_BATCH says what an iteration's units are (not known before the first CUDA or NVTX call: 0), or
 * `units` is neither 0 nor between 1e-12 and 1e12, which leaves the iteration without a number. */
__attribute__((weak)) int inject_units(double units);

#ifdef __cplusplus
} /* extern "C" */
#endif

/* The same, or -1 (0 for is_open) where libinject is not preloaded. */
static inline int inject_start_if_loaded(void) {
  return inject_start ? inject_start() : -1;
}
static inline int inject_stop_if_loaded(void) {
  return inject_stop ? inject_stop() : -1;
}
static inline int inject_flush_if_loaded(void) {
  return inject_flush ? inject_flush() : -1;
}
static inline int inject_is_open_if_loaded(void) {
  return inject_is_open ? inject_is_open() : 0;
}
static inline int inject_units_if_loaded(double units) {
  return inject_units ? inject_units(units) : -1;
}

#endif
