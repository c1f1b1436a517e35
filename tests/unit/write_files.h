// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <future>
#include <memory>

#include "libinject/session/run_writer.h"

namespace inject {

/// Returns once the files are in the folder.
inline void put_files(RunWriter& writer, RunWriter::Prepared& files) {
  const auto done = std::make_shared<std::promise<void>>();
  writer.put_behind(files, [done] { done->set_value(); });
  done->get_future().wait();
}

/// All three steps of writing, one after the other.
inline void write_files(RunWriter& writer, const char* state) {
  RunWriter::Prepared files = writer.prepare(state);
  put_files(writer, files);
  writer.finish(files);
}

}  // namespace inject
