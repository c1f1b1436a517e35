// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/mapped_file.h"

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "libinject/base/mapping.h"

namespace inject::recovery {

namespace {
// A process may have some 65,000 mappings. Whatever follows this many pieces is mapped as one.
constexpr int kMaxPieces = 1000;
}  // namespace

MappedFile::~MappedFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

bool MappedFile::map(int file, std::size_t begin, std::size_t end) {
  return mmap(base_ + begin, end - begin, PROT_READ, MAP_SHARED | MAP_FIXED, file,
              static_cast<off_t>(begin)) != MAP_FAILED;
}

bool MappedFile::open(int file, std::size_t bytes) {
  if (bytes == 0) return true;
  void* all = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return false;
  base_ = static_cast<std::uint8_t*>(all);
  bytes_ = bytes;
  // Holes are left to the existing zeros: reading a hole of the file makes the kernel allocate a page.
  std::size_t at = 0;
  for (int pieces = 0; at < bytes; ++pieces) {
    const off_t data = lseek(file, static_cast<off_t>(at), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return true;
    const off_t hole = data < 0 || pieces == kMaxPieces ? -1 : lseek(file, data, SEEK_HOLE);
    const std::size_t begin =
        data < 0 ? at : static_cast<std::size_t>(data) / whole_pages(1) * whole_pages(1);
    const std::size_t end = hole < 0 ? bytes : std::min(bytes, whole_pages(static_cast<std::size_t>(hole)));
    if (begin >= bytes) return true;
    if (!map(file, begin, end)) return false;
    at = end;
  }
  return true;
}

}  // namespace inject::recovery
