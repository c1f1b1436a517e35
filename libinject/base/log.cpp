// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/log.h"

#define FMT_HEADER_ONLY
#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <span>

#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"
#include "libinject/base/text.h"

namespace inject {

namespace {

constexpr std::size_t kMaxNotable = 100;
constexpr std::size_t kMaxLineLength = 8192;

// A descriptor rather than a FILE*: nothing is buffered that a fork could write twice, and no lock of the
// host's stdio is taken.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int descriptor)
      : file_(descriptor == STDERR_FILENO ? Descriptor() : Descriptor(descriptor)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    base_sink<std::mutex>::formatter_->format(message, text);
    const int descriptor = file_.is_open() ? file_.get() : STDERR_FILENO;
    if (descriptor >= 0) write_quietly(descriptor, {text.data(), text.size()});
  }
  void flush_() override {}

 private:
  Descriptor file_;  // not open: stderr
};

// Leaked on purpose: messages may be logged until the process is gone.
constinit std::atomic<spdlog::logger*> logger{nullptr};
// There was no memory for a logger; messages of this level go to stderr without one.
constinit std::atomic<LogLevel> level_without_logger{LogLevel::kOff};

// Writes the line that spdlog would write, if there is no memory for it.
void write_without_memory(LogLevel level, std::string_view text) noexcept {
  std::array<char, 512> line;
  const int length =
      std::snprintf(line.data(), line.size(), "libinject[%ld] %s: %.*s\n", static_cast<long>(getpid()),
                    level == LogLevel::kWarn ? "warning" : "error",
                    static_cast<int>(std::min(text.size(), line.size())), text.data());
  if (length <= 0) return;
  const std::size_t size = std::min(static_cast<std::size_t>(length), line.size() - 1);
  line[size - 1] = '\n';
  for (char& c : std::span(line).first(size - 1)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  write_quietly(STDERR_FILENO, {line.data(), size});
}

struct Notable {
  std::mutex mutex;
  std::vector<std::string> lines;
};
Notable& notable_lines() {
  static auto* lines = new Notable;
  return *lines;
}

}  // namespace

void Log::open(LogLevel level, const std::string& file) noexcept {
  try {
    int descriptor = STDERR_FILENO;
    std::string problem;
    if (!file.empty()) {
      std::string reason;
      const int opened = open_output(file, O_APPEND, reason);
      if (opened >= 0) {
        descriptor = opened;
      } else {
        problem = "INJECT_LOG_FILE=" + file + " can't be opened (" + reason + "); messages go to stderr";
      }
    }
    auto made = std::make_unique<spdlog::logger>("libinject", std::make_shared<DescriptorSink>(descriptor));
    made->set_pattern("libinject[%P] %l: %v");
    made->set_level(static_cast<spdlog::level::level_enum>(level));
    // spdlog's own handler prints a separate line; instead, a message without memory is passed back to
    // write().
    made->set_error_handler([](const std::string&) { throw std::bad_alloc(); });
    logger.store(made.release(), std::memory_order_release);
    if (!problem.empty()) warn(problem);
  } catch (...) {
    level_without_logger.store(level, std::memory_order_release);
  }
}

void Log::write(LogLevel level, std::string_view text) noexcept {
  spdlog::logger* const target = logger.load(std::memory_order_acquire);
  const bool problem = level >= LogLevel::kWarn;
  try {
    // Paths and names come from outside, and may contain line breaks or terminal control sequences.
    const std::string message = one_line(text, kMaxLineLength);
    if (problem) {
      Notable& notable = notable_lines();
      const std::lock_guard lock(notable.mutex);
      if (notable.lines.size() < kMaxNotable) notable.lines.push_back(message);
    }
    if (target != nullptr) {
      // As an argument, never as a format: messages contain names from outside.
      target->log(static_cast<spdlog::level::level_enum>(level), "{}", message);
      return;
    }
  } catch (...) {
    if (problem && target != nullptr && target->should_log(static_cast<spdlog::level::level_enum>(level)))
      write_without_memory(level, text);
  }
  if (problem && target == nullptr && level >= level_without_logger.load(std::memory_order_acquire))
    write_without_memory(level, text);
}

void Log::error_without_allocation(std::string_view message) noexcept {
  if (logger.load(std::memory_order_acquire) != nullptr) {
    error(message);
  } else {
    write_without_memory(LogLevel::kError, message);
  }
}

std::vector<std::string> Log::notable() {
  Notable& notable = notable_lines();
  const std::lock_guard lock(notable.mutex);
  return notable.lines;
}

ThreadProblem::ThreadProblem(const char* lost, int code) noexcept {
  std::array<char, 64> room;
  const char* reason = strerror_r(code, room.data(), room.size());
  std::snprintf(text_.data(), text_.size(), "%s: a thread can't be started (%s)", lost, reason);
}

}  // namespace inject
