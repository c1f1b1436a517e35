// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/memory_reading.h"

#include <cstdint>
#include <span>
#include <utility>

#include "libinject/base/json_reader.h"

namespace inject {

namespace {

std::uint64_t size_in(JsonReader& json) {
  const std::int64_t value = json.integer();
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

void read_sizes(JsonReader& json, std::span<std::uint64_t> sizes) {
  std::size_t at = 0;
  json.array([&] {
    if (at < sizes.size()) sizes[at++] = size_in(json);
  });
}

LargestTensor largest_in(JsonReader& json) {
  LargestTensor largest;
  json.array([&] {
    if (json.peek() == '"') {
      largest.text = json.string();
    } else {
      largest.bytes = size_in(json);
    }
  });
  return largest;
}

void read_bytes(JsonReader& json, DevicePurposes& device) {
  std::size_t at = 0;
  json.array([&] {
    if (at >= kMemoryPurposes) return;
    device.unknown[at] = json.peek() == 'n';  // null; the value is skipped
    if (!device.unknown[at]) device.bytes[at] = size_in(json);
    ++at;
  });
}

DevicePurposes device_in(JsonReader& json) {
  DevicePurposes device;
  json.object([&](std::string_view key) {
    if (key == "device") device.device = static_cast<std::uint32_t>(size_in(json));
    if (key == "in_use") device.in_use = size_in(json);
    if (key == "peak_allocated") device.peak_allocated = size_in(json);
    if (key == "peak_reserved") device.peak_reserved = size_in(json);
    if (key == "bytes") read_bytes(json, device);
    if (key == "tensors") read_sizes(json, device.tensors);
    if (key == "largest") {
      std::size_t at = 0;
      json.array([&] {
        if (at < device.largest.size()) device.largest[at++] = largest_in(json);
      });
    }
  });
  return device;
}

}  // namespace

std::optional<MemoryPurposes> memory_purposes_of(std::string_view text) {
  JsonReader json(text);
  MemoryPurposes memory;
  json.object([&](std::string_view key) {
    if (key == "devices") json.array([&] { memory.devices.push_back(device_in(json)); });
    if (key == "unplaced") read_sizes(json, memory.unplaced);
    if (key == "objects") memory.objects = size_in(json);
    if (key == "ns") memory.time = size_in(json);
    if (key == "cpu_ns") memory.cpu = size_in(json);
    if (key == "unfinished") memory.is_unfinished = json.boolean();
    if (key == "error") memory.error = json.string();
  });
  if (json.failed()) return std::nullopt;
  return memory;
}

}  // namespace inject
