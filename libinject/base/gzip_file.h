// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "libinject/base/write_behind_file.h"

namespace inject {

/// A gzip file that grows, and exists under its name only while it is complete: complete() finishes what was
/// added so far with some text and puts it in place; adding more removes that end and the name again. A
/// reader finds a complete file or none. Compressed at zlib's fastest level. After a failure nothing is
/// written, and the file is removed, because it has no valid end. For one thread, with all signals blocked
/// (OutputFile).
class GzipFile {
 public:
  GzipFile() = default;
  /// Removes the file if it is not complete.
  ~GzipFile();
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  /// Call before open(); as in WriteBehindFile.
  void write_behind(FileQueue* queue);
  bool has_room() { return file_.has_room(); }

  /// Creates `.name.new` in `folder`. False on failure: see error().
  bool open(const std::string& folder, std::string_view name);
  bool is_open() const { return stream_ != nullptr && !file_.failed(); }
  bool add(std::string_view text);
  bool complete(std::string_view end);
  /// The file stays as it is: nothing can be added from here on.
  void close() { stream_.reset(); }

  /// Compressed size, without the end.
  std::uint64_t bytes() const { return file_.bytes(); }
  /// The first failure; empty if there was none.
  std::string error() const { return file_.error(); }

 private:
  struct EndStream {
    void operator()(z_stream* stream) const noexcept;
  };
  using Stream = std::unique_ptr<z_stream, EndStream>;

  bool compress(z_stream& stream, std::string_view text, int flush);
  bool reopen();
  bool fail(std::string problem);
  bool check();

  std::string path_;
  std::string temporary_;
  FileQueue* queue_ = nullptr;
  WriteBehindFile file_;
  Stream stream_;
  bool in_place_ = false;
  bool is_in_place_ = false;            // on the disk
  std::uint64_t bytes_before_end_ = 0;  // bytes, while in_place_
};

}  // namespace inject
