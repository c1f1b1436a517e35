// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The file DIR/records (docs/recovery.md): what a killed process leaves behind, for `injectctl recover`. In
// host byte order; pointers in it are never dereferenced.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "libinject/base/mapping.h"
#include "libinject/model/records.h"

namespace inject::recovery {

inline constexpr const char* kFileName = "records";
inline constexpr std::uint64_t kMagic =
    0x0A43'4552'4A4E'490Au;  // "\nINJREC\n", as little-endian machines write it
inline constexpr std::uint32_t kVersion = 16;
inline constexpr std::size_t kHeaderBytes = std::size_t{64} << 10;  // the largest page size
inline constexpr std::size_t kInfoBytes = std::size_t{256} << 10;   // for each of two copies
/// The largest INJECT_RING and INJECT_BUFFERS: a header with larger values is rejected.
inline constexpr std::uint64_t kMaxArena = std::uint64_t{4} << 30;
/// Alignment of CUPTI's buffers.
inline constexpr std::uint64_t kUnitAlign = 4096;

/// A part of the file.
struct Part {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Written once, when the file is created.
struct Header {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t header_bytes = sizeof(Header);
  std::uint64_t functions = 0;  ///< the hooked functions and their order: function_print()
  std::uint64_t file_bytes = 0;
  std::int64_t pid = 0;
  std::uint64_t process_start = 0;  ///< clock ticks after boot: /proc/PID/stat
  std::uint64_t boot = 0;           ///< hash of the boot's id
  std::uint64_t base = 0;           ///< CLOCK_MONOTONIC at CUDA's initialisation
  std::uint64_t base_utc = 0;
  std::uint64_t block_bytes = 0;  ///< of the ring
  std::uint64_t unit_bytes = 0;   ///< of CUPTI's buffers
  Part info;                      ///< two copies of kInfoBytes
  Part counts;                    ///< RecordCounts, ThreadRegistry::kCountLines
  Part marks;                     ///< one BufferMark per unit
  Part ring;
  Part buffers;
  Part journal;
  std::uint64_t checksum = 0;  ///< of everything before it
};

/// After the header, at kLiveOffset: values that change. Each is a word of its own, and valid at any moment.
struct Live {
  std::atomic<std::uint64_t> journal_full;        ///< 1: what came later is in no table
  std::atomic<std::uint64_t> beyond_submissions;  ///< calls that submitted device work after that …
  std::atomic<std::uint64_t> beyond_records;      ///< … kernels, copies and memsets; both in no table
  std::atomic<std::uint64_t> written_beyond;      ///< 1: the tables were written after that
  std::atomic<std::uint64_t> written_block;       ///< the tables on disk include the journal up to this block
  std::atomic<std::uint64_t> written_calls;  ///< … and this many calls in windows, or count them as lost
  std::atomic<std::uint64_t> cupti_version;
  std::atomic<std::uint64_t> clock_ahead;  ///< offset of CUPTI's clock from CLOCK_MONOTONIC
  std::atomic<std::uint64_t> alive;        ///< CLOCK_MONOTONIC of the latest pass in the journal
  std::atomic<std::uint64_t> passes;       ///< of the drain thread: changes while it takes records
  std::array<std::atomic<std::uint64_t>, 64> record_bytes;  ///< by CUpti_ActivityKind, as seen
};
inline constexpr std::size_t kLiveOffset = 4096;
static_assert(sizeof(Header) <= kLiveOffset && kLiveOffset + sizeof(Live) <= kHeaderBytes);

/// Precedes each block of the journal. `bytes` is written last: a block without it is the end.
struct BlockHeader {
  std::uint64_t checksum;  ///< of number, length and contents
  std::uint64_t number;    ///< 1, 2, …
  std::atomic<std::uint64_t> bytes;
};
static_assert(sizeof(BlockHeader) == 24);

/// Precedes each copy in the part `info`; the valid one with the larger number is used.
struct InfoHeader {
  std::uint64_t checksum;
  std::uint64_t number;
  std::uint64_t bytes;
};

/// Entries of a block: the kind, followed by its fields.
enum class Entry : std::uint8_t {
  kThread = 1,     ///< index, tid, name
  kWindowOpen,     ///< number, begin (0: unknown), reason
  kWindowEnd,      ///< number, end (0: its times are unknown)
  kRangeNode,      ///< id, parent, style, name, domain
  kShape,          ///< id, words
  kDriverCall,     ///< function id, name
  kKernelName,     ///< id, name as reported by the driver
  kKernelPointer,  ///< address of the name in CUPTI's records, id
  kGraphNode,      ///< node, chain, thread, owner, shape, function
  kGeneration,     ///< a new attachment: graph nodes are renumbered
  kRun,            ///< block sequence, position up to which it was taken, thread, count, coded slots
  kBuffer,         ///< sequence, generation, count, coded events
  kDrops,          ///< window, its calls and ranges that found the ring full since the last entry
  kSettleTimes,    ///< last window that had ended, until
  kSettle,         ///< last window that had ended, records that CUPTI dropped since the last entry
  kSettled,        ///< last window that had ended, when CUPTI was detached, when the last work ended
  kBoundary,       ///< of iterations: number, begin, window, window before, label, followed, flags, units
  kDelivered,      ///< no fields: before kSettle, CUPTI has delivered all records that it has not dropped
};

/// Blocks are padded to multiples of this.
inline constexpr std::size_t kBlockAlign = 8;

inline std::uint64_t checksum_of(const void* data, std::size_t bytes, std::uint64_t seed = 0) {
  return hash_mix(hash_bytes({static_cast<const char*>(data), bytes}) ^ hash_mix(seed + kHashSeed));
}

inline std::uint64_t block_checksum(const void* data, std::uint64_t bytes, std::uint64_t number) {
  return checksum_of(data, bytes, number * kHashSeed ^ bytes);
}

inline std::uint64_t header_checksum(const Header& header) {
  return checksum_of(&header, offsetof(Header, checksum));
}

/// A hash that changes with every hooked function: records refer to functions by number.
std::uint64_t function_print();

/// When a process was started, in clock ticks after boot; 0 if it does not run.
std::uint64_t process_start_of(std::int64_t pid);
/// Identifies the current boot; 0 if the kernel does not provide an id.
std::uint64_t boot_hash();

}  // namespace inject::recovery
