// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "libinject/config/text.h"
#include "libinject/host_io.h"
#include "libinject/safe_path.h"

namespace inject {

namespace {

constexpr std::size_t kMostNotable = 100;
constexpr std::size_t kLongestLine = 8192;

// A descriptor rather than a FILE*: nothing buffered that a fork could write twice, no lock of the host's
// stdio.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int descriptor)
      : file_(descriptor == STDERR_FILENO ? Descriptor() : Descriptor(descriptor)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    base_sink<std::mutex>::formatter_->format(message, text);
    const int descriptor = file_.is_open() ? file_.get() : STDERR_FILENO;
    if (descriptor >= 0) write_quietly(descriptor, {text.data(), text.size()});
  }
  void flush_() override {}

  Descriptor file_;  // not open: stderr
};

// Leaked on purpose: messages may come until the process is gone.
constinit std::atomic<spdlog::logger*> logger{nullptr};

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
    logger.store(made.release(), std::memory_order_release);
    if (!problem.empty()) warn(problem);
  } catch (...) {
    // Without memory for a logger there are no messages; the program is not harmed.
  }
}

void Log::write(LogLevel level, std::string_view text) noexcept {
  try {
    // Paths and names come from outside, and may hold line breaks or a terminal's commands.
    const std::string message = one_line(text, kLongestLine);
    if (level >= LogLevel::kWarn) {
      Notable& notable = notable_lines();
      const std::lock_guard lock(notable.mutex);
      if (notable.lines.size() < kMostNotable) notable.lines.push_back(message);
    }
    if (spdlog::logger* target = logger.load(std::memory_order_acquire); target != nullptr) {
      // As an argument, never as a format: messages carry names from outside.
      target->log(static_cast<spdlog::level::level_enum>(level), "{}", message);
    }
  } catch (...) {
    // A message that can't be written is not worth the program's time.
  }
}

std::vector<std::string> Log::notable() {
  Notable& notable = notable_lines();
  const std::lock_guard lock(notable.mutex);
  return notable.lines;
}

}  // namespace inject
