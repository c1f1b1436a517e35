// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/prometheus_file.h"

#include <sys/stat.h>

#include <exception>
#include <utility>

#include "libinject/base/atomic_file.h"
#include "libinject/base/clock.h"
#include "libinject/base/format.h"

namespace inject {

// The pid is in the temporary name, so that each of several processes with the same path puts a complete file
// in place.
void PrometheusFile::open(std::string path, int pid) {
  info_.file = std::move(path);
  const std::string name = info_.file.substr(info_.file.rfind('/') + 1);
  temporary_ = str_format(".{}.{}.new", name, pid);
}

bool PrometheusFile::write_text(const std::string& text) {
  // Writing the file would replace a folder, a device or a link, or fail: neither is what the user requested.
  struct stat found {};
  if (::lstat(info_.file.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
    error_ = "cannot put " + info_.file + " in place: something other than a regular file is there";
    return false;
  }
  const std::size_t slash = info_.file.rfind('/');
  AtomicFile file(info_.file.substr(0, slash), info_.file.substr(slash + 1), temporary_);
  file.file().buffer() = text;
  if (file.file().let_others_read() && file.finish() && file.commit()) return true;
  error_ = file.error();
  return false;
}

std::string PrometheusFile::text(const Report& report, PrometheusState state) {
  return metrics_.text(report, state, realtime(), info_.failed);
}

bool PrometheusFile::write(const std::string& text) noexcept {
  bool done = false;
  try {
    done = write_text(text);
  } catch (const std::exception& problem) {
    // Most likely out of memory, so this may fail as well.
    try {
      error_ = "cannot write " + info_.file + ": " + problem.what();
    } catch (...) {
      error_.clear();
    }
  }
  ++(done ? info_.written : info_.failed);
  return done;
}

}  // namespace inject
