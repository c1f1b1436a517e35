// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The simulated devices' hardware counters, sampled over time: what a kernel does to them follows from its
// name. cupti_metrics.cpp puts CUPTI's functions over it.
#pragma once

#include <cupti.h>
#include <cupti_pmsampling.h>

#include <array>
#include <cstdint>
#include <vector>

#include "tests/sim/core/timeline.h"

namespace inject::sim::counters {

/// A kernel is about to be submitted to a device. Returns up to when that one has been sampled: the kernel
/// must not start before.
Nanoseconds note_kernel(int device, const char* name, const OpRef& op);

/// What is counted: parts of a sample's time, 0 to 1, in which a kernel ran: any, one of matrices (its name
/// holds `gemm` or `matmul`), one of double precision (`fp64`), any other.
enum Part : std::uint8_t { kAny, kMatrix, kDouble, kOther, kParts };

struct Sample {
  std::uint64_t start = 0;  ///< on the client's clock
  std::uint64_t end = 0;
  std::array<double, kParts> parts{};
  bool contrary = false;  ///< the SMs' activity is counted too low
  bool torn = false;      ///< most of what the SMs counted went into an image that is no more
};

// The order in which CUPTI wants to be called. Where the real one ends the program or hangs, the call is
// counted in misuse() and fails.
CUptiResult initialize();
CUptiResult deinitialize();
/// Before any call that needs the above.
CUptiResult enter();
void subscribed();
void unsubscribing();
void finalized(bool by_client);
std::uint64_t misuse();

/// What a device's sampling was from being enabled to being disabled: CLOCK_MONOTONIC, 0 for what has not
/// come about.
struct Period {
  int device = 0;
  Nanoseconds interval = 0;
  Nanoseconds enabled = 0;
  Nanoseconds started = 0;
  Nanoseconds stopped = 0;
  Nanoseconds disabled = 0;
  std::uint64_t given =
      0;  ///< whole samples that came with their times, but for the one that spans the set-up
};
std::vector<Period> periods();

struct Object;
/// A device's sampling. Null in `object` unless it succeeds.
CUptiResult enable(int device, Object*& object);
CUptiResult disable(Object* object);
bool enabled(int device);
/// Nanoseconds between samples; how many of them the hardware's buffer holds.
/// `silent`: a part of what is counted never comes, so that no sample is ever complete.
CUptiResult configure(Object* object, Nanoseconds interval, std::size_t capacity, bool silent);
/// What has been told of the sample under way is thrown away: the rest comes as the next one.
void tear(Object* object);
CUptiResult start(Object* object);
CUptiResult stop(Object* object);
/// The next samples that are over, oldest first, as many as `most`; those beyond are lost, and come without
/// times in the next calls. CUPTI_ERROR_OUT_OF_MEMORY once the hardware's buffer has overflowed, from then
/// on.
/// With the fault pm_overflow_flag there is no error: the flag, and the samples that the buffer held. With
/// pm_overflow_silent neither, and later ones come again.
struct Decoded {
  bool more = false;
  bool overflow = false;
  std::uint64_t begun = 0;  ///< when a sample began that is not over; 0: there is none
};
CUptiResult decode(Object* object, std::size_t most, std::vector<Sample>& samples, Decoded& decoded);

}  // namespace inject::sim::counters
