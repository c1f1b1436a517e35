// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/entry/command_end.h"

#include <glob.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>

#include "libinject/base/caller_state.h"
#include "libinject/base/host_io.h"
#include "libinject/base/out_path.h"
#include "libinject/base/process.h"
#include "libinject/config/options.h"

namespace inject {

namespace {

// =PID:SECONDS:FAULTS: the command's process, its start, and the page faults of its children until then,
// which show whether it has had other children: scripts/libinject/commands/run.py.
constexpr std::string_view kVariable = "_INJECT_RUN=";
// How far a file server's clock may be behind.
constexpr long kSlack = 2;

constinit std::atomic<pid_t> command{0};
constinit long begun = 0;
constinit long faults_before = 0;
constinit std::atomic<bool> cuda_seen{false};

/// INJECT_OUT as a pattern for glob(): other processes of the command, whose values may be in the name, may
/// be the ones that used CUDA.
std::string any_folder(std::string_view out) {
  std::string pattern;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '%' && i + 1 < out.size()) {
      const char kind = out[++i];
      pattern += kind == '%' ? '%' : '*';
      if (kind == 'q') i = std::min(out.find('}', i), out.size() - 1);
    } else {
      if (std::string_view("*?[\\").find(out[i]) != std::string_view::npos) pattern += '\\';
      pattern += out[i];
    }
  }
  while (pattern.size() > 1 && pattern.back() == '/') pattern.pop_back();
  return pattern.front() == '/' ? pattern : working_directory() + "/" + pattern;
}

bool has_new_folder(const std::string& pattern) {
  glob_t found{};
  bool any = false;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc && !any; ++i) {
      struct stat status {};
      any = stat(found.gl_pathv[i], &status) == 0 && S_ISDIR(status.st_mode) &&
            status.st_mtim.tv_sec >= begun - kSlack;
    }
  }
  globfree(&found);
  return any;
}

__attribute__((destructor)) void at_end() {
  if (command.load(std::memory_order_relaxed) == 0 || cuda_seen.load(std::memory_order_relaxed)) return;
  if (command.load(std::memory_order_relaxed) != getpid()) return;  // a forked child
  const CallerState caller;
  try {
    const Options options = parse_options(environ).options;
    if (options.window.kind == WindowKind::kOff || options.log_level > LogLevel::kWarn) return;
    const std::string folder = any_folder(options.out);
    if (has_new_folder(folder) || has_new_folder(folder + ".[0-9]*")) return;
    // Whether child processes used CUDA is not known: without a window there is no folder.
    rusage children{};
    const bool alone = getrusage(RUSAGE_CHILDREN, &children) == 0 && children.ru_minflt == faults_before;
    write_quietly(STDERR_FILENO,
                  alone ? "libinject: no output folder was made: the command has not used CUDA\n"
                        : "libinject: no output folder was made: no process of this command has used CUDA, "
                          "or no window opened\n");
  } catch (...) {
    // Out of memory for a message.
  }
}

}  // namespace

void note_command() noexcept {
  // Not by getenv(): a shell has its own, which searches the shell's variables once there are any.
  const char* text = nullptr;
  for (char** entry = environ; entry != nullptr && *entry != nullptr && text == nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(kVariable)) text = *entry + kVariable.size();
  }
  if (text == nullptr) return;
  char* end = nullptr;
  const long pid = strtol(text, &end, 10);
  if (pid != getpid() || *end != ':') return;
  begun = strtol(end + 1, &end, 10);
  if (*end != ':') return;
  faults_before = strtol(end + 1, nullptr, 10);
  command.store(static_cast<pid_t>(pid), std::memory_order_relaxed);
}

void note_cuda() noexcept {
  cuda_seen.store(true, std::memory_order_relaxed);
}

}  // namespace inject
