// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/write_behind_file.h"

#include "libinject/base/file_work.h"

namespace inject {

bool WriteBehindFile::open(std::string path, OutputFile::Existing existing) {
  open_ = file_.open(std::move(path), existing);
  return open_;
}

// If the queue's thread can't be started, the caller runs the jobs itself.
void WriteBehindFile::add(std::size_t bytes, FileQueue::Job job) {
  if (queue_ == nullptr) {
    job();
  } else if (!queue_->add(bytes, std::move(job))) {
    queue_->run();
  }
}

bool WriteBehindFile::flush() {
  const std::uint64_t rows = std::exchange(rows_, 0);
  const std::size_t bytes = buffer_.size();
  if (!is_open()) {
    rows_lost_.fetch_add(rows, std::memory_order_relaxed);
    buffer_.clear();
  } else if (queue_ == nullptr) {
    bytes_ += bytes;
    write(buffer_, rows);
  } else if (bytes != 0) {
    bytes_ += bytes;
    const std::size_t held = buffer_.capacity();
    try {
      add(held, [this, rows, text = std::exchange(buffer_, {})]() mutable { write(text, rows); });
    } catch (...) {
      // Out of memory for the job. Rows after a gap would be of no use.
      rows_lost_.fetch_add(rows, std::memory_order_relaxed);
      closed_ = true;
      throw;
    }
  }
  return is_open();
}

bool WriteBehindFile::cut(std::uint64_t bytes) {
  flush();
  bytes_ = bytes;
  return then([bytes](OutputFile& file) { file.cut(bytes); });
}

bool WriteBehindFile::then(Step step) {
  flush();
  add(0, [this, step = std::move(step)] {
    const FileWork work;
    try {
      step(file_);
    } catch (...) {
      file_.fail("out of memory");  // short enough to need no allocation
    }
    settle();
  });
  return !failed();
}

bool WriteBehindFile::close() {
  then([](OutputFile& file) { file.close(); });
  closed_ = true;
  return !failed();
}

void WriteBehindFile::write(std::string& text, std::uint64_t rows) noexcept {
  file_.buffer().swap(text);
  // A failed write leaves none of its data in the file.
  if (!file_.flush()) rows_lost_.fetch_add(rows, std::memory_order_relaxed);
  file_.buffer().swap(text);
  settle();
}

void WriteBehindFile::settle() noexcept {
  if (file_.error().empty() || failed()) return;
  try {
    error_ = file_.error();
  } catch (...) {
    error_ = "out of memory";
  }
  if (on_failure_) on_failure_(file_);
  file_.close();
  failed_.store(true, std::memory_order_release);
}

}  // namespace inject
