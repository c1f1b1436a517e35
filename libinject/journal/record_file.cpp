// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/journal/record_file.h"

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "libinject/base/atomic_file.h"
#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"
#include "libinject/base/memory_headroom.h"
#include "libinject/base/process.h"
#include "libinject/base/safe_path.h"
#include "libinject/base/text.h"
#include "libinject/journal/record_place.h"

namespace inject::recovery {

namespace {

// statfs(2). A server that does not respond would block any thread that writes to the mapping, and a full one
// raises SIGBUS regardless of allocation.
constexpr std::pair<std::uint32_t, const char*> kElsewhere[] = {
    {0x6969, "NFS"},       {0xFF534D42, "SMB"},    {0xFE534D42, "SMB"},    {0x517B, "SMB"},
    {0x65735546, "FUSE"},  {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"},   {0x19830326, "BeeGFS"},
    {0x00C36400, "Ceph"},  {0x5346414F, "AFS"},    {0x01021997, "9P"},     {0x73757245, "Coda"},
    {0x01161970, "GFS2"},  {0x7461636F, "OCFS2"},  {0x20030528, "PanFS"},  {0xAAD7AAEA, "PanFS"},
    {0x013111A8, "IBRIX"}, {0x7C7C6673, "PRL_FS"}, {0x786F4256, "VBOXSF"}, {0xBACBACBC, "vmhgfs"},
};

// Allocated blocks are written to a new location: a full disk raises SIGBUS.
constexpr std::pair<std::uint32_t, const char*> kCopyOnWrite[] = {
    {0x2FC12FC1, "ZFS"}, {0x9123683E, "btrfs"}, {0xCA451A4E, "bcachefs"}};

// A file is on another file system, whose name is not known.
constexpr std::uint32_t kOverlay[] = {0x794C7630};
// Allocated blocks are memory, or may be: tmpfs, ramfs, overlay.
constexpr std::uint32_t kInMemory[] = {0x01021994, 0x858458F6, kOverlay[0]};
// A copy of a file may share its blocks: XFS, and an overlay, which may be on one.
constexpr std::uint32_t kReflinks[] = {0x58465342, kOverlay[0]};
constexpr Nanoseconds kLookInterval = kSecond;
constexpr std::uint64_t kUnshareAtOnce = std::uint64_t{4} << 20;  // a millisecond or two
// The file may take at most a quarter of what the memory limit leaves.
constexpr std::uint64_t kMemoryShare = 4;

std::string in_megabytes(std::uint64_t bytes) {
  return std::to_string((bytes + 999'999) / 1'000'000) + " MB";
}

// Some hundred microseconds of the drain thread's time.
constexpr std::size_t kWarmAtOnce = std::size_t{256} << 10;

constexpr std::uint64_t whole(std::uint64_t bytes) {
  return (bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}

bool is_one_of(std::span<const std::uint32_t> known, const struct statfs& system) {
  return std::find(known.begin(), known.end(), static_cast<std::uint32_t>(system.f_type)) != known.end();
}

struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The first extent of the file at or after `from` whose blocks are shared with another file; empty if none.
Extent shared_extent(int file, std::uint64_t from) noexcept {
  constexpr std::uint32_t kAtOnce = 32;
  std::array<char, sizeof(fiemap) + kAtOnce * sizeof(fiemap_extent)> memory;
  for (;;) {
    fiemap asked{};
    asked.fm_start = from;
    asked.fm_length = FIEMAP_MAX_OFFSET - from;
    asked.fm_extent_count = kAtOnce;
    std::memcpy(memory.data(), &asked, sizeof asked);
    if (ioctl(file, FS_IOC_FIEMAP, memory.data()) != 0) return {};
    std::memcpy(&asked, memory.data(), sizeof asked);
    const std::uint64_t begin = from;
    for (std::uint32_t i = 0; i < std::min(asked.fm_mapped_extents, kAtOnce); ++i) {
      fiemap_extent extent{};
      std::memcpy(&extent, memory.data() + sizeof asked + i * sizeof extent, sizeof extent);
      const std::uint64_t end = extent.fe_logical + extent.fe_length;
      if ((extent.fe_flags & FIEMAP_EXTENT_SHARED) != 0)
        return {std::max<std::uint64_t>(extent.fe_logical, from), end};
      if ((extent.fe_flags & FIEMAP_EXTENT_LAST) != 0) return {};
      from = std::max(from, end);
    }
    if (from == begin) return {};
  }
}

constexpr std::size_t kProbedBlock = 4096;

/// Where the file's first block is on the disk, once it has been written there; errno on failure.
std::optional<std::uint64_t> place_of_first_block(int file) noexcept {
  std::array<char, sizeof(fiemap) + sizeof(fiemap_extent)> memory;
  fiemap asked{};
  asked.fm_length = kProbedBlock;
  asked.fm_flags = FIEMAP_FLAG_SYNC;
  asked.fm_extent_count = 1;
  std::memcpy(memory.data(), &asked, sizeof asked);
  if (ioctl(file, FS_IOC_FIEMAP, memory.data()) != 0) return std::nullopt;
  std::memcpy(&asked, memory.data(), sizeof asked);
  fiemap_extent extent{};
  std::memcpy(&extent, memory.data() + sizeof asked, sizeof extent);
  errno = ENODATA;
  constexpr std::uint32_t kNowhere =
      FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL;
  if (asked.fm_mapped_extents == 0 || (extent.fe_flags & kNowhere) != 0) return std::nullopt;
  return extent.fe_physical;
}

/// Whether a block that has been allocated stays where it is when it is written again. The file is new, and
/// empty afterwards.
bool keeps_its_blocks(int file) noexcept {
  constexpr std::size_t kAllocated = 64 * kProbedBlock;
  const auto write_first_block = [file](char value) {
    std::array<char, kProbedBlock> block;
    block.fill(value);
    return pwrite(file, block.data(), block.size(), 0) == static_cast<ssize_t>(block.size());
  };
  if (allocate_file(file, kAllocated) != 0) return false;
  // Even on btrfs, the first write goes to the block that was allocated.
  bool keeps = false;
  if (write_first_block('a')) {
    if (const std::optional<std::uint64_t> first = place_of_first_block(file)) {
      keeps = write_first_block('b') && place_of_first_block(file) == first;
    } else if (errno == EOPNOTSUPP || errno == ENOTTY) {
      // No disk (tmpfs), or one that does not say, as ZFS, which then does not allocate blocks in advance.
      struct stat found {};
      keeps = fstat(file, &found) == 0 && static_cast<std::size_t>(found.st_blocks) * 512 >= kAllocated;
    }
  }
  return ftruncate(file, 0) == 0 && keeps;
}

}  // namespace

std::string filesystem_problem(std::uint64_t magic) {
  for (const auto& [known, name] : kCopyOnWrite) {
    if (known == static_cast<std::uint32_t>(magic))
      return "space allocated on " + std::string(name) + " does not guarantee later writes";
  }
  for (const auto& [known, name] : kElsewhere) {
    if (known == static_cast<std::uint32_t>(magic))
      return "the output folder is on a network file system (" + std::string(name) + ")";
  }
  return {};
}

bool RecordFile::may_make(int folder, std::size_t bytes, std::string& problem) {
  struct statfs system {};
  struct statvfs room {};
  if (fstatfs(folder, &system) != 0 || fstatvfs(folder, &room) != 0) {
    problem = error_text(errno);
    return false;
  }
  problem = filesystem_problem(static_cast<std::uint64_t>(system.f_type));
  unfit_ = !problem.empty();
  if (unfit_) return false;
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) {
    problem = "the file size limit cannot be read";
    return false;
  }
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
    problem = "they take " + in_megabytes(bytes) + " and files may have " + in_megabytes(limit.rlim_cur) +
              " (ulimit -f)";
    return false;
  }
  // A program with a limited address space has its own use for it.
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    problem = "the address space is limited (ulimit -v)";
    return false;
  }
  // Memory that the kernel cannot write back counts against the memory limit, and the program is killed when
  // that is reached.
  if (is_one_of(kInMemory, system)) {
    const std::optional<MemoryHeadroom> memory = group_memory();
    if (memory && memory->left / kMemoryShare < bytes) {
      problem = "they take " + in_megabytes(bytes) + " there, and " + in_megabytes(memory->left) +
                " are left of the " + in_megabytes(memory->limit) + " of memory of its control group";
      return false;
    }
  }
  // The program must not run out of disk space because of us.
  if (static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize < 2 * static_cast<std::uint64_t>(bytes)) {
    problem = "they take " + in_megabytes(bytes) + " and the disk has " +
              in_megabytes(static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize);
    return false;
  }
  return true;
}

int RecordFile::make(const ParentFolder& where, std::size_t bytes, std::string& problem) {
  if (!where.is_open()) {
    problem = where.problem();
    return -1;
  }
  if (!may_make(where.descriptor(), bytes, problem)) return -1;
  const int file = open_output(where, O_EXCL | O_RDWR, problem);
  if (file < 0) return -1;
  const auto give_up = [&](const std::string& why) {
    problem = why;
    close(file);
    unlinkat(where.descriptor(), where.name().c_str(), 0);
    return -1;
  };
  struct stat made {};
  struct statfs system {};
  if (fstat(file, &made) != 0 || fstatfs(file, &system) != 0) return give_up(error_text(errno));
  if (is_one_of(kOverlay, system) && !keeps_its_blocks(file)) {
    unfit_ = true;
    return give_up("space allocated on what is below this overlay does not guarantee later writes");
  }
  if (const int failed = allocate_file(file, bytes); failed != 0)
    return give_up("they take " + in_megabytes(bytes) + ": " + error_text(failed));
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return give_up(error_text(errno));
  // Shortening the file would end the process (SIGBUS): with this mode, only the administrator could do so by
  // mistake. If the mode can't be changed, it stays as open_output() set it.
  [[maybe_unused]] const int changed = fchmod(file, S_IRUSR);
  base_ = static_cast<std::uint8_t*>(mapped);
  has_reflinks_ = is_one_of(kReflinks, system);
  device_ = made.st_dev;
  inode_ = made.st_ino;
  bytes_ = bytes;
  return file;
}

int RecordFile::make_elsewhere(const std::string& folder, std::size_t bytes, Times times,
                               std::string& problem) {
  RecordPointer pointer{host_name(), "", getpid(), times.base_utc};
  for (const std::string& place : local_folders()) {
    pointer.path = place + "/" + local_name(pointer.pid, pointer.base_utc);
    const ParentFolder where(pointer.path, ParentFolder::Missing::kMake);
    if (!where.is_open() || where.is_shared()) continue;
    std::string reason;
    const int file = make(where, bytes, reason);
    if (file < 0) continue;
    mark_in_use(file);
    lock_ = Descriptor(file);
    remove_left_over(place);
    AtomicFile said(folder, kPointerName);
    said.file().buffer() = pointer_text(pointer);
    if (said.finish() && said.commit()) {
      path_ = pointer.path;
      pointer_path_ = folder + "/" + kPointerName;
      problem.clear();
      return file;
    }
    problem = std::string(kPointerName) + ": " + said.error();
    munmap(base_, bytes);
    close(file);
    lock_ = Descriptor();
    unlinkat(where.descriptor(), where.name().c_str(), 0);
    return -1;
  }
  problem += ", and no folder for temporary files is suitable";
  return -1;
}

bool RecordFile::open(const std::string& folder, Core& core, ActivityBuffers& buffers, Journal& journal,
                      Times times, std::string& problem) {
  BlockPool& ring = core.ring;
  Header header;
  std::uint64_t end = kHeaderBytes;
  const auto place = [&end](Part& part, std::uint64_t bytes) {
    part = {end, bytes};
    end += whole(bytes);
  };
  place(header.info, 2 * kInfoBytes);
  place(header.counts, ThreadRegistry::kCountLines * sizeof(RecordCounts));
  place(header.marks, buffers.units() * sizeof(BufferMark));
  place(header.ring, ring.capacity() * sizeof(Block));
  place(header.buffers, buffers.total_bytes());
  place(header.journal, header.ring.bytes + header.buffers.bytes);
  header.file_bytes = end;

  const ParentFolder beside(folder + "/" + kFileName);
  int file = make(beside, end, problem);
  if (file >= 0) {
    path_ = folder + "/" + kFileName;
  } else if (unfit_) {
    file = make_elsewhere(folder, end, times, problem);
  }
  if (file < 0) return false;
  header.functions = function_print();
  header.pid = getpid();
  header.process_start = process_start_of(header.pid);
  header.boot = boot_hash();
  header.base = times.base;
  header.base_utc = times.base_utc;
  header.block_bytes = sizeof(Block);
  header.unit_bytes = buffers.unit_bytes();
  header.checksum = header_checksum(header);
  std::memcpy(base_, &header, sizeof header);
  const auto part = [this](const Part& p) { return SharedRegion{base_ + p.offset, p.bytes}; };
  auto* live = ::new (base_ + kLiveOffset) Live{};
  live->alive.store(now(), std::memory_order_relaxed);
  info_ = base_ + header.info.offset;
  // Before the first record is written there: whatever is taken from a queue must go into the journal.
  journal.start(base_ + header.journal.offset, header.journal.bytes, *live);
  core.threads.keep_counts(reinterpret_cast<RecordCounts*>(base_ + header.counts.offset));
  const bool ring_moved = ring.move_to(part(header.ring));
  const bool buffers_moved =
      buffers.move_to(part(header.buffers), reinterpret_cast<BufferMark*>(base_ + header.marks.offset));
  live_ = live;
  owner_.emplace();
  if (ring_moved) cold_[0] = ring.used_first();
  if (buffers_moved) cold_[1] = buffers.used_first();
  // Buffers that CUPTI already has are copied there by the thread that completes them.
  if (buffers_moved) cold_[2] = {base_ + header.buffers.offset, buffers.used_first().size()};
  cold_[3] = {base_ + header.counts.offset, header.counts.bytes};
  // The journal alone is still useful: it has what was taken, some milliseconds old.
  if (!ring_moved || !buffers_moved) problem = "the kernel refuses to remap them into the file";
  if (!lock_.is_open()) close(file);
  return true;
}

bool RecordFile::warm() {
  bool more = false;
  for (std::span<std::uint8_t>& range : cold_) {
    const std::size_t bytes = std::min(kWarmAtOnce, range.size());
    if (bytes != 0) warm_pages(range.data(), bytes);
    range = range.subspan(bytes);
    more = more || !range.empty();
  }
  return more;
}

bool RecordFile::unshare_blocks() {
  if (!is_open() || !has_reflinks_) return true;
  const Nanoseconds time = now();
  if (unshared_to_ == 0 && time < next_look_) return true;
  const std::uint64_t from = std::exchange(unshared_to_, 0);
  next_look_ = time + kLookInterval;
  // By name: the program may close all of its descriptors.
  const ParentFolder where(path_);
  if (!where.is_open()) return true;
  const int file = open_file_at(where.descriptor(), where.name().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return true;
  struct stat found {};
  Extent shared;
  if (fstat(file, &found) == 0 && found.st_dev == device_ && found.st_ino == inode_)
    shared = shared_extent(file, from);
  close(file);
  const std::uint64_t begin = shared.begin / kHeaderBytes * kHeaderBytes;  // rounded down to a page
  const std::uint64_t end = std::min({whole(shared.end), begin + kUnshareAtOnce, bytes_});
  if (begin >= end) return true;
  if (!warm_pages(base_ + begin, end - begin)) return std::exchange(said_, true);
  unshared_to_ = end;
  return true;
}

void RecordFile::write_info(std::string_view text) {
  if (!is_open() || text.size() > kInfoBytes - sizeof(InfoHeader)) return;
  std::uint8_t* place = info_ + (++info_number_ % 2) * kInfoBytes;
  InfoHeader header{0, 0, 0};
  std::memcpy(place, &header, sizeof header);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(place + sizeof header, text.data(), text.size());
  header = {block_checksum(text.data(), text.size(), info_number_), info_number_, text.size()};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(place, &header, sizeof header);
}

void RecordFile::remove() {
  // A forked child also has the mapping.
  if (!is_open() || !owner_->is_this()) return;
  for (const std::string& path : {path_, pointer_path_}) {
    if (path.empty()) continue;
    const ParentFolder where(path);
    if (where.is_open()) unlinkat(where.descriptor(), where.name().c_str(), 0);
  }
  if (const int locked = std::exchange(lock_, Descriptor()).get(); locked >= 0) close(locked);
}

}  // namespace inject::recovery
