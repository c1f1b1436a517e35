// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <zlib.h>

#include <array>
#include <stdexcept>
#include <string>

namespace inject {

/// Contents of a gzip file with one member; throws if it is anything else, or is truncated.
inline std::string gunzip(const std::string& compressed) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) throw std::runtime_error("no memory");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::string text;
  std::array<char, 4096> part;
  int code = Z_OK;
  while (code == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = part.size();
    code = inflate(&stream, Z_NO_FLUSH);
    text.append(part.data(), part.size() - stream.avail_out);
  }
  const uInt rest = stream.avail_in;
  inflateEnd(&stream);
  if (code != Z_STREAM_END) throw std::runtime_error("the file has no end, or is damaged");
  if (rest != 0) throw std::runtime_error("something follows the end");
  return text;
}

}  // namespace inject
