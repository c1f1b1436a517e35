// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/gzip_file.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace inject {

namespace {
// A window of 15 bits, and a gzip header instead of zlib's.
constexpr int kGzipWindow = 15 + 16;
// A table of 4,096 strings to search for, which fits into a fast cache and soon moves on: what is written
// here repeats itself within a few lines.
constexpr int kMemoryLevel = 5;
// On the stack, possibly that of a program thread.
constexpr std::size_t kPart = 8 * 1024;
}  // namespace

void GzipFile::EndStream::operator()(z_stream* stream) const noexcept {
  deflateEnd(stream);
  delete stream;  // NOLINT(cppcoreguidelines-owning-memory)
}

GzipFile::~GzipFile() {
  if (is_open() && !in_place_) fail(path_ + " is not complete");
}

bool GzipFile::fail(std::string problem) {
  file_.then([problem = std::move(problem)](OutputFile& file) { file.fail(problem); });
  stream_.reset();
  return false;
}

// After a failure, the file can't be completed any more.
bool GzipFile::check() {
  if (file_.failed()) stream_.reset();
  return stream_ != nullptr;
}

void GzipFile::write_behind(FileQueue* queue) {
  queue_ = queue;
  if (stream_ != nullptr) file_.write_behind(queue);
}

bool GzipFile::open(const std::string& folder, std::string_view name) {
  path_ = folder + "/" + std::string(name);
  temporary_ = folder + "/." + std::string(name) + ".new";
  // The folder's name may be another one's by now, which may have files of the same names.
  file_.on_failure([this](const OutputFile& file) {
    const std::string& path = is_in_place_ ? path_ : temporary_;
    if (file.is_at(path)) ::unlink(path.c_str());
  });
  if (!file_.open(temporary_, OutputFile::Existing::kReplace)) return false;
  auto stream = std::make_unique<z_stream>();
  if (deflateInit2(stream.get(), Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kMemoryLevel, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    return fail("cannot write " + path_ + ": out of memory");
  stream_ = Stream(stream.release());
  file_.write_behind(queue_);
  return true;
}

bool GzipFile::compress(z_stream& stream, std::string_view text, int flush) {
  std::array<char, kPart> part;
  do {
    const std::size_t length = std::min<std::size_t>(text.size(), std::numeric_limits<uInt>::max());
    // zlib only reads there, but lacks the const.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(length);
    text.remove_prefix(length);
    int code = Z_OK;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(part.data());
      stream.avail_out = static_cast<uInt>(part.size());
      code = deflate(&stream, text.empty() ? flush : Z_NO_FLUSH);
      file_.buffer().append(part.data(), part.size() - stream.avail_out);
      file_.write_if_full();
    } while (stream.avail_out == 0 && code == Z_OK);
  } while (!text.empty());
  return !file_.failed();
}

// For a reader, the file is gone until it is complete again; a reader that has it open sees it change.
bool GzipFile::reopen() {
  in_place_ = false;
  file_.then([this](OutputFile& file) {
    if (!file.error().empty()) return;
    if (!file.is_at(path_)) {
      file.fail(path_ + " has been moved or removed");
      return;
    }
    is_in_place_ = ::rename(path_.c_str(), temporary_.c_str()) != 0;
    if (is_in_place_) file.fail("cannot reopen " + path_ + ": " + std::generic_category().message(errno));
  });
  return file_.cut(bytes_before_end_) || check();
}

bool GzipFile::add(std::string_view text) {
  if (!is_open() || (in_place_ && !reopen())) return false;
  return compress(*stream_, text, Z_NO_FLUSH) || check();
}

bool GzipFile::complete(std::string_view end) {
  if (!is_open() || (in_place_ && !reopen())) return false;
  if (!file_.flush()) return check();
  bytes_before_end_ = file_.bytes();
  // The end is written with a copy of the compressor's state, so that the file can continue from where it was
  // before.
  auto copy = std::make_unique<z_stream>();
  if (deflateCopy(copy.get(), stream_.get()) != Z_OK)
    return fail("cannot write " + path_ + ": out of memory");
  const Stream ending(copy.release());
  compress(*ending, end, Z_FINISH);
  file_.then([this](OutputFile& file) {
    if (!file.sync()) return;
    if (!file.is_at(temporary_)) {
      file.fail(temporary_ + " has been moved or removed");
      return;
    }
    is_in_place_ = ::rename(temporary_.c_str(), path_.c_str()) == 0;
    if (!is_in_place_)
      file.fail("cannot put " + path_ + " in place: " + std::generic_category().message(errno));
  });
  in_place_ = check();
  return in_place_;
}

}  // namespace inject
