// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>

namespace inject::recovery {

struct Outcome {
  bool done = false;
  std::string message;  ///< one line: what was done, or why nothing was
  std::string summary;  ///< as at a program's end; empty if nothing was done
};

/// `injectctl recover FOLDER`: makes the tables of a run whose process was killed from FOLDER/records, which
/// is then removed unless `keep` is set, or damage in it made a difference. If the process wrote tables with
/// more than can be recovered, these are kept.
Outcome recover(const std::string& folder, bool keep);

}  // namespace inject::recovery
