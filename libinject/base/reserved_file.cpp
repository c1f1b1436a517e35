// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/reserved_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "libinject/base/atomic_file.h"
#include "libinject/base/file_work.h"
#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"

namespace inject {

std::array<std::string, 2> ReservedFile::spare_names(std::string_view name) {
  const std::string hidden = "." + std::string(name);
  return {hidden + ".spare", hidden + ".last"};
}

void ReservedFile::reserve(const std::string& folder, std::string_view name) {
  path_ = folder + "/" + std::string(name);
  const auto names = spare_names(name);
  for (std::size_t i = 0; i < spares_.size(); ++i) spares_[i].path = folder + "/" + names[i];
  renew();
}

void ReservedFile::renew() {
  for (Spare& spare : spares_) {
    if (!spare.path.empty() && !spare.allocated) allocate(spare);
  }
}

void ReservedFile::allocate(Spare& spare) {
  const FileWork work;
  const QuietSignals quiet;  // RLIMIT_FSIZE
  const FolderAbove folder(spare.path);
  if (!folder.is_open()) return;
  ::unlinkat(folder.descriptor(), folder.name().c_str(), 0);
  std::string problem;
  const int file = open_output(folder, O_EXCL, problem);
  if (file < 0) return;
  spare.allocated = allocate_file(file, kBytes) == 0;
  ::close(file);
  // Some of its blocks may have been allocated.
  if (!spare.allocated) ::unlinkat(folder.descriptor(), folder.name().c_str(), 0);
}

bool ReservedFile::replace(Spare& spare, std::string_view text) {
  const FileWork work;
  OutputFile file;
  const bool written = file.open(spare.path, OutputFile::Existing::kOverwrite) &&
                       (file.buffer().assign(text), file.cut(text.size())) && file.sync() && file.close() &&
                       ::rename(spare.path.c_str(), path_.c_str()) == 0;
  spare.allocated = false;
  return written;
}

bool ReservedFile::put(std::string_view text, Write write) {
  if (text.size() > kBytes) return false;
  for (Spare& spare : spares_) {
    const bool kept = write != Write::kLast && &spare == &spares_.back();
    if (!kept && spare.allocated && replace(spare, text)) return true;
  }
  return false;
}

void ReservedFile::remove() {
  for (Spare& spare : spares_) {
    if (!spare.path.empty()) ::unlink(spare.path.c_str());
    spare = Spare();
  }
  path_.clear();
}

}  // namespace inject
