// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How fast copies can be at most, and what to do about those that are slow, many, or waited for.
// docs/copies.md has the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libinject/analysis/peaks.h"

namespace inject {

/// What a copy goes over.
enum class CopyPath : std::uint8_t {
  kToDevice,      ///< from the host, by the link
  kFromDevice,    ///< to the host, by the link
  kWithinDevice,  ///< reads and writes one device's memory
  kOther,         ///< between devices, on the host, or not known
};

/// CUpti_ActivityMemcpyKind, as far as it matters here: pipeline/decode.cpp holds them against CUPTI's own.
inline constexpr std::uint8_t kHostToDevice = 1;
inline constexpr std::uint8_t kDeviceToHost = 2;
inline constexpr std::uint8_t kHostToArray = 3;
inline constexpr std::uint8_t kArrayToHost = 4;
inline constexpr std::uint8_t kArrayToArray = 5;
inline constexpr std::uint8_t kArrayToDevice = 6;
inline constexpr std::uint8_t kDeviceToArray = 7;
inline constexpr std::uint8_t kDeviceToDevice = 8;
inline constexpr std::uint8_t kPeerToPeer = 10;

/// Of a CUpti_ActivityMemcpyKind.
CopyPath copy_path(std::uint32_t kind) noexcept;

/// CUpti_ActivityMemoryKind, as far as it matters here.
inline constexpr std::uint8_t kPageableMemory = 1;
inline constexpr std::uint8_t kPinnedMemory = 2;
inline constexpr std::uint8_t kMemoryKinds = 8;  ///< further ones are not known

/// Copies of fewer bytes are small: setting up takes longer than moving them.
inline constexpr std::uint64_t kSmallCopy = 64 * 1024;

/// Bytes a second of a PCIe link in one direction, the transfer rate less what its encoding takes:
///
///     generation   1     2     3     4     5     6
///     GT/s       2.5     5     8    16    32    64     a lane; a transfer is a bit
///     encoding   8b/10b (1, 2), 128b/130b (3, 4, 5), 236 of the 256 bytes of a FLIT (6)
///
/// A FLIT has 236 bytes for packets, 6 for the data link layer, 8 of CRC and 6 of error correction. Packets
/// have headers on top of that, and the layer below its own: copies reach 85 to 90 % of it. Nothing for what
/// no link is. Sources: PCI-SIG's PCI Express Base Specification 2.1 (8b/10b), 5.0 (128b/130b) and 6.0 (flit
/// mode), their chapters on the physical layer; glennklockwood.com/garden/PCIe-Gen6 has the FLIT's parts.
std::optional<double> pcie_bandwidth(int generation, int width) noexcept;

/// The generation at which copies ran, from the highest that was read and the highest that device and slot
/// can do; 0 if that is not known. Drivers let a link that idles run as generation 1, so that a lower one may
/// be what the link was between two copies.
int copying_generation(int highest_read, int possible) noexcept;

/// Bytes a second that copies on this path can move at most: the link's, or half of the memory's, which is
/// both read and written. Nothing if that is not known.
std::optional<double> copy_bandwidth(CopyPath path, int pcie_generation, int pcie_width,
                                     const DeviceSpecs& device) noexcept;

/// `link`, unless copies at `rate` (bytes a second) prove that it is another one: of PCIe no copy is faster.
std::optional<double> plausible_link(CopyPath path, std::optional<double> link, double rate) noexcept;

/// Copies of one path between memory of the same kinds.
struct CopyFacts {
  CopyPath path = CopyPath::kOther;
  std::uint8_t host_memory = 0;  ///< the kind of the host's side, 0 where there is none
  std::uint64_t count = 0;
  std::uint64_t time = 0;  ///< nanoseconds, as all times
  std::uint64_t bytes = 0;
  std::uint64_t small = 0;                ///< of `count`
  std::uint64_t synchronizing = 0;        ///< of `count`, those that the host waited for
  std::uint64_t small_synchronizing = 0;  ///< both
  std::uint64_t judged_time = 0;          ///< of `time`, what is known to be overlapped or not
  std::uint64_t overlapped = 0;           ///< of that, with kernels
  std::uint64_t device_time = 0;          ///< that the copies are part of, 0 if not known
  std::optional<double> link;             ///< copy_bandwidth()
};

/// What could be done, "; " between several; empty if there is nothing to say.
std::string copy_hint(const CopyFacts& copies);

}  // namespace inject
