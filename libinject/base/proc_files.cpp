// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/proc_files.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace inject {

namespace {

/// Parses a number that is followed by something, because the last number of a text may be truncated.
std::optional<std::uint64_t> take_number(std::string_view& text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  std::uint64_t number = 0;
  const auto found = std::from_chars(text.data(), text.data() + text.size(), number);
  if (found.ec != std::errc() || found.ptr == text.data() + text.size()) return std::nullopt;
  if (*found.ptr != ' ' && *found.ptr != '\n') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(found.ptr - text.data()));
  return negative ? std::uint64_t{0} - number : number;
}

/// What follows `name` and a colon at the beginning of a line; empty if there is no such line.
std::string_view after_name(std::string_view text, std::string_view name) noexcept {
  while (!text.empty()) {
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == ':')
      return text.substr(name.size() + 1);
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return {};
}

/// The number on the line that begins with `name` and a colon.
std::optional<std::uint64_t> number_of_line(std::string_view text, std::string_view name) noexcept {
  std::string_view rest = after_name(text, name);
  return take_number(rest);
}

}  // namespace

// PID (NAME) STATE PARENT GROUP SESSION …: a name may contain anything, so the last parenthesis ends it.
std::optional<TaskStat> parse_task_stat(std::string_view text) noexcept {
  const std::size_t begin = text.find('(');
  const std::size_t end = text.rfind(')');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return std::nullopt;
  TaskStat stat;
  stat.name = TaskName(text.substr(begin + 1, end - begin - 1));
  text.remove_prefix(end + 1);
  if (text.size() < 3 || text[0] != ' ' || text[2] != ' ') return std::nullopt;
  stat.state = text[1];
  text.remove_prefix(2);
  // From the 4th field, the parent, to the 22nd, the start.
  std::array<std::uint64_t, 19> fields{};
  for (std::uint64_t& field : fields) {
    const std::optional<std::uint64_t> number = take_number(text);
    if (!number) return std::nullopt;
    field = *number;
  }
  stat.parent = static_cast<pid_t>(fields[0]);
  stat.session = static_cast<pid_t>(fields[2]);
  stat.minor_faults = fields[6];
  stat.major_faults = fields[8];
  stat.children_minor_faults = fields[7];
  stat.children_major_faults = fields[9];
  stat.children_ticks = fields[12] + fields[13];
  stat.threads = fields[16];
  stat.start = fields[18];
  return stat;
}

std::optional<std::uint64_t> parse_run_queue_wait(std::string_view text) noexcept {
  if (!take_number(text)) return std::nullopt;
  return take_number(text);
}

std::optional<ContextSwitches> parse_switches(std::string_view text) noexcept {
  const auto voluntary = number_of_line(text, "voluntary_ctxt_switches");
  const auto involuntary = number_of_line(text, "nonvoluntary_ctxt_switches");
  if (!voluntary || !involuntary) return std::nullopt;
  return ContextSwitches{*voluntary, *involuntary};
}

bool ignores_signal(std::string_view status, int signal) noexcept {
  std::string_view rest = after_name(status, "SigIgn");
  if (rest.starts_with('\t')) rest.remove_prefix(1);
  constexpr int kHexadecimal = 16;
  std::uint64_t ignored = 0;
  const auto found = std::from_chars(rest.data(), rest.data() + rest.size(), ignored, kHexadecimal);
  return found.ec == std::errc() && ((ignored >> (signal - 1)) & 1) != 0;
}

std::optional<std::uint64_t> parse_read_bytes(std::string_view text) noexcept {
  return number_of_line(text, "read_bytes");
}

bool proc_is_ours() noexcept {
  std::array<char, 64> text{};
  const ssize_t length = readlink("/proc/self", text.data(), text.size() - 1);
  if (length <= 0 || std::strtol(text.data(), nullptr, 10) != getpid()) return false;
  std::snprintf(text.data(), text.size(), "/proc/self/task/%ld", syscall(SYS_gettid));
  return access(text.data(), F_OK) == 0;
}

std::string_view read_text(const char* path, std::span<char> room) noexcept {
  const int file = open_file(path, O_RDONLY);
  if (file < 0) return {};
  std::size_t size = 0;
  for (ssize_t n; size < room.size() && (n = read(file, room.data() + size, room.size() - size)) > 0;)
    size += static_cast<std::size_t>(n);
  close(file);
  return {room.data(), size};
}

}  // namespace inject
