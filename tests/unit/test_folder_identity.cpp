// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/folder_identity.h"

#include <filesystem>

#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

TEST_CASE("A folder is the one that was noted, whatever has its name by then", "[base]") {
  const TemporaryFolder temporary;
  const std::string path = temporary.path() + "/out";
  const std::string elsewhere = temporary.path() + "/elsewhere";
  FolderIdentity folder;
  CHECK(folder.is_in_place());
  std::filesystem::create_directory(path);
  folder.note(path);
  CHECK(folder.is_in_place());
  std::filesystem::rename(path, elsewhere);
  CHECK_FALSE(folder.is_in_place());
  std::filesystem::create_directory(path);
  CHECK_FALSE(folder.is_in_place());
  std::filesystem::remove(path);
  std::filesystem::create_directory_symlink(elsewhere, path);
  CHECK(folder.is_in_place());
  std::filesystem::remove(path);
  std::filesystem::rename(elsewhere, path);
  CHECK(folder.is_in_place());
}
