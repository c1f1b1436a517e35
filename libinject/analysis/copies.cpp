// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/copies.h"

#include <string_view>

namespace inject {

namespace {

// Copies that take at least this share of the device's time are worth a change of the program.
constexpr double kWorthwhile = 0.01;
// Each read of a value makes the host wait and the device idle for about 0.1 ms; each small copy takes about
// 10 µs of both. At these rates per second they cost 1 % of the time.
constexpr double kReadsPerSecond = 100;
constexpr double kSmallPerSecond = 1000;
constexpr std::uint64_t kMinReads = 10;
constexpr std::uint64_t kMinSmall = 100;
// Large enough to reach the link's rate.
constexpr std::uint64_t kLargeCopy = 1024 * 1024;
constexpr double kSlow = 0.5;
constexpr double kHardlyOverlapped = 0.1;

void add(std::string& hints, std::string_view hint) {
  if (!hints.empty()) hints += "; ";
  hints += hint;
}

bool at_least(std::uint64_t part, double share, std::uint64_t whole) {
  return static_cast<double>(part) >= share * static_cast<double>(whole);
}

}  // namespace

CopyPath copy_path(std::uint32_t kind) noexcept {
  switch (kind) {
    case kHostToDevice:
    case kHostToArray:
      return CopyPath::kToDevice;
    case kDeviceToHost:
    case kArrayToHost:
      return CopyPath::kFromDevice;
    case kArrayToArray:
    case kArrayToDevice:
    case kDeviceToArray:
    case kDeviceToDevice:
      return CopyPath::kWithinDevice;
    default:
      return CopyPath::kOther;
  }
}

std::optional<double> pcie_bandwidth(int generation, int width) noexcept {
  struct Rate {
    double transfers;  // per second and lane, one bit each
    double payload;    // share of the bits available to packets
  };
  constexpr Rate kRates[] = {{2.5e9, 8.0 / 10},   {5e9, 8.0 / 10},     {8e9, 128.0 / 130},
                             {16e9, 128.0 / 130}, {32e9, 128.0 / 130}, {64e9, 236.0 / 256}};
  constexpr int kGenerations = sizeof(kRates) / sizeof(kRates[0]);
  constexpr int kWidest = 32;
  if (generation < 1 || generation > kGenerations || width < 1 || width > kWidest) return std::nullopt;
  const Rate& rate = kRates[generation - 1];
  return rate.transfers * rate.payload * width / 8;
}

int copying_generation(int highest_read, int possible) noexcept {
  return possible > 0 && highest_read >= possible ? highest_read : 0;
}

std::optional<double> plausible_link(CopyPath path, std::optional<double> link, double rate) noexcept {
  const bool pcie = path == CopyPath::kToDevice || path == CopyPath::kFromDevice;
  return pcie && link && rate > *link ? std::nullopt : link;
}

std::optional<double> copy_bandwidth(CopyPath path, int pcie_generation, int pcie_width,
                                     const DeviceSpecs& device) noexcept {
  switch (path) {
    case CopyPath::kToDevice:
    case CopyPath::kFromDevice:
      return pcie_bandwidth(pcie_generation, pcie_width);
    case CopyPath::kWithinDevice:
      if (const auto memory = peak_bandwidth(device)) return *memory / 2;
      break;
    case CopyPath::kOther:
      break;
  }
  return std::nullopt;
}

std::string copy_hint(const CopyFacts& copies) {
  std::string hints;
  if (copies.count == 0 || copies.device_time == 0) return hints;
  const bool upload = copies.path == CopyPath::kToDevice;
  const bool download = copies.path == CopyPath::kFromDevice;
  const double seconds = static_cast<double>(copies.device_time) * 1e-9;
  const bool mostly_small = at_least(copies.small, 0.5, copies.count);

  if (download && at_least(copies.small_synchronizing, 0.5, copies.count) &&
      copies.small_synchronizing >= kMinReads &&
      static_cast<double>(copies.small_synchronizing) >= kReadsPerSecond * seconds) {
    add(hints, "values read one by one (.item(), .cpu()): collect them on the device and read them together");
  } else if (mostly_small && copies.small >= kMinSmall &&
             static_cast<double>(copies.small) >= kSmallPerSecond * seconds) {
    add(hints, "small copies: batch them");
  }

  // The remaining hints are about time spent moving bytes between host and device.
  const std::uint64_t average = copies.bytes / copies.count;
  if ((!upload && !download) || average < kSmallCopy ||
      !at_least(copies.time, kWorthwhile, copies.device_time))
    return hints;
  if (copies.host_memory == kPageableMemory) {
    add(hints, upload ? "pageable memory: pin it (pin_memory=True) and copy with non_blocking=True"
                      : "pageable memory: copy into pinned memory with non_blocking=True");
    return hints;
  }
  if (at_least(copies.synchronizing, 0.5, copies.count)) {
    add(hints, "the host waits for the copies: non_blocking=True");
  } else if (upload && copies.judged_time != 0 &&
             !at_least(copies.overlapped, kHardlyOverlapped, copies.judged_time)) {
    add(hints, "no kernel runs meanwhile: copy ahead of time, on a stream of its own");
  }
  if (copies.host_memory == kPinnedMemory && average >= kLargeCopy && copies.link && copies.time != 0 &&
      static_cast<double>(copies.bytes) / (static_cast<double>(copies.time) * 1e-9) < kSlow * *copies.link) {
    add(hints, "slower than the link: memory of another NUMA node, or a link that is shared");
  }
  return hints;
}

}  // namespace inject
