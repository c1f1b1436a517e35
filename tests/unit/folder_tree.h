// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/temporary_folder.h"

namespace inject {

/// A folder of nested files, like /proc and /sys.
class FolderTree {
 public:
  void file(const std::string& path, const std::string& text) const {
    const std::filesystem::path whole = folder_.path() + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(folder_.path() + "/" + path); }
  std::string path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace inject
