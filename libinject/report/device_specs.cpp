// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/device_specs.h"

namespace inject {

DeviceSpecs specs_of(const RunInfo& run, std::uint32_t device) {
  const DeviceInfo* found = run.devices.empty() ? nullptr : &run.devices.front();
  for (const DeviceInfo& info : run.devices) {
    if (info.id == device) found = &info;
  }
  if (found == nullptr) return {};
  DeviceSpecs specs;
  specs.major = found->compute_major;
  specs.minor = found->compute_minor;
  specs.multiprocessors = found->multiprocessors;
  specs.clock_khz = found->clock_khz;
  specs.memory_clock_khz = found->memory_clock_khz;
  specs.bus_bits = found->memory_bus_bits;
  specs.variant = product_variant(specs.major, specs.minor, found->name);
  return specs;
}

}  // namespace inject
