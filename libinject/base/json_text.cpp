// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/json_text.h"

#include "libinject/base/csv.h"

namespace inject {

// Names come from the program unchecked: what is not UTF-8 is replaced.
void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    append_utf8(out, text.substr(plain, i - plain));
    plain = i + 1;
    out += '\\';
    if (byte == '"' || byte == '\\') {
      out += text[i];
    } else if (byte == '\n') {
      out += 'n';
    } else if (byte == '\t') {
      out += 't';
    } else {
      out += "u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  append_utf8(out, text.substr(plain));
  out += '"';
}

JsonText& JsonText::name(std::string_view text) {
  separate();
  append_json_string(out_, text);
  out_ += ": ";
  named_ = true;
  return *this;
}

JsonText& JsonText::text(std::string_view value) {
  separate();
  append_json_string(out_, value);
  return *this;
}

JsonText& JsonText::null() {
  separate();
  out_ += "null";
  return *this;
}

JsonText& JsonText::open(char bracket) {
  separate();
  out_ += bracket;
  ++depth_;
  filled_.at(depth_) = false;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  const bool filled = filled_.at(depth_);
  --depth_;
  if (filled) {
    out_ += '\n';
    out_.append(2 * depth_, ' ');
  }
  out_ += bracket;
  return *this;
}

void JsonText::separate() {
  if (named_ || depth_ == 0) {
    named_ = false;
    return;
  }
  out_ += filled_.at(depth_) ? ",\n" : "\n";
  out_.append(2 * depth_, ' ');
  filled_.at(depth_) = true;
}

}  // namespace inject
