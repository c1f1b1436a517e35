// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Peak rates of copies, and hints on copies that are slow, numerous, or waited for. docs/copies.md has the
// rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libinject/analysis/peaks.h"

namespace inject {

/// The path that a copy takes.
enum class CopyPath : std::uint8_t {
  kToDevice,      ///< from the host, over the link
  kFromDevice,    ///< to the host, over the link
  kWithinDevice,  ///< reads and writes one device's memory
  kOther,         ///< between devices, on the host, or unknown
};

/// CUpti_ActivityMemcpyKind, as far as needed here; pipeline/decode.cpp checks the values against CUPTI's.
inline constexpr std::uint8_t kHostToDevice = 1;
inline constexpr std::uint8_t kDeviceToHost = 2;
inline constexpr std::uint8_t kHostToArray = 3;
inline constexpr std::uint8_t kArrayToHost = 4;
inline constexpr std::uint8_t kArrayToArray = 5;
inline constexpr std::uint8_t kArrayToDevice = 6;
inline constexpr std::uint8_t kDeviceToArray = 7;
inline constexpr std::uint8_t kDeviceToDevice = 8;
inline constexpr std::uint8_t kPeerToPeer = 10;

/// `kind`: a CUpti_ActivityMemcpyKind.
CopyPath copy_path(std::uint32_t kind) noexcept;

/// CUpti_ActivityMemoryKind, as far as needed here.
inline constexpr std::uint8_t kPageableMemory = 1;
inline constexpr std::uint8_t kPinnedMemory = 2;
inline constexpr std::uint8_t kMemoryKinds = 8;  ///< further kinds are unknown

/// Copies of fewer bytes are small: setting them up takes longer than moving the data.
inline constexpr std::uint64_t kSmallCopy = 64 * 1024;

/// Bytes per second of a PCIe link in one direction, the transfer rate less the overhead of its encoding:
///
///     generation   1     2     3     4     5     6
///     GT/s       2.5     5     8    16    32    64     a lane; a transfer is a bit
///     encoding   8b/10b (1, 2), 128b/130b (3, 4, 5), 236 of the 256 bytes of a FLIT (6)
///
/// A FLIT has 236 bytes for packets, 6 for the data link layer, 8 of CRC and 6 of error correction. Packets
/// have headers on top of that, and the data link layer has packets of its own: copies reach 85 to 90 % of
/// it. Empty if there is no such link. Sources: PCI-SIG's PCI Express Base Specification 2.1 (8b/10b), 5.0
/// (128b/130b) and 6.0 (flit mode), their chapters on the physical layer; glennklockwood.com/garden/PCIe-Gen6
/// has the FLIT's parts.
std::optional<double> pcie_bandwidth(int generation, int width) noexcept;

/// The generation at which copies ran, given the highest one read and the highest one that device and slot
/// support; 0 if unknown. Drivers run an idle link as generation 1, so a lower reading may be from between
/// two copies.
int copying_generation(int highest_read, int possible) noexcept;

/// Peak bytes per second of copies on this path: the link's, or half of the memory's, which is both read and
/// written. Empty if unknown.
std::optional<double> copy_bandwidth(CopyPath path, int pcie_generation, int pcie_width,
                                     const DeviceSpecs& device) noexcept;

/// `link`, or empty if copies at `rate` (bytes per second) show that the actual link is a different one: no
/// copy over PCIe is faster than its link.
std::optional<double> plausible_link(CopyPath path, std::optional<double> link, double rate) noexcept;

/// Copies on one path between the same kinds of memory.
struct CopyFacts {
  CopyPath path = CopyPath::kOther;
  std::uint8_t host_memory = 0;  ///< the kind of memory on the host's side, 0 if none
  std::uint64_t count = 0;
  std::uint64_t time = 0;  ///< nanoseconds, like all times
  std::uint64_t bytes = 0;
  std::uint64_t small = 0;                ///< of `count`
  std::uint64_t synchronizing = 0;        ///< of `count`, those that the host waited for
  std::uint64_t small_synchronizing = 0;  ///< both
  std::uint64_t judged_time = 0;          ///< part of `time` that could be checked for overlap
  std::uint64_t overlapped = 0;           ///< part of `judged_time` that overlapped with kernels
  std::uint64_t device_time = 0;          ///< total time of the device, including the copies; 0 if unknown
  std::optional<double> link;             ///< copy_bandwidth()
};

/// Suggestions, separated by "; "; empty if there are none.
std::string copy_hint(const CopyFacts& copies);

}  // namespace inject
