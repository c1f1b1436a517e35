// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace looks {

/// The readable part of the file: a thread may end while it is read, and an iterator over the file would
/// throw.
inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// How often libinject's own threads have checked what the program did, from here on. A program that waits
/// for them is as slow as they are on a busy machine. A check lies between two waits of a thread, as counted
/// by the kernel; the first of these may end a check that had begun before.
class Looks {
 public:
  Looks() : before_(waits()) {}

  /// Whether one of the threads has checked that often, or there is none. The others wait for something that
  /// does not come.
  bool seen(unsigned long count) const {
    const Waits after = waits();
    return before_.empty() || after.empty() ||
           std::any_of(after.begin(), after.end(), [&](const auto& thread) {
             const auto known = before_.find(thread.first);
             return thread.second > (known == before_.end() ? 0 : known->second) + count;
           });
  }

 private:
  using Waits = std::map<std::string, unsigned long>;  // by thread id

  static Waits waits() {
    constexpr std::string_view kSwitches = "\nvoluntary_ctxt_switches:";
    Waits waits;
    std::error_code gone;  // a thread may end meanwhile
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
      const std::string status = text_of(thread.path() / "status");
      const std::size_t at = status.find(kSwitches);
      if (status.starts_with("Name:\tlibinject\n") && at != std::string::npos)
        waits[thread.path().filename()] = std::strtoul(status.c_str() + at + kSwitches.size(), nullptr, 10);
    }
    return waits;
  }

  Waits before_;
};

}  // namespace looks
