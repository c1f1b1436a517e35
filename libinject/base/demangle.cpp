// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/demangle.h"

#include <setjmp.h>

// libstdc++'s demangler without memory of its own: it passes the text on piece by piece. abi::__cxa_demangle
// cannot be stopped, and its time and memory grow exponentially with the length of malicious names (2.7 s for
// 250 bytes).
extern "C" int __gcclibcxx_demangle_callback(const char* name,
                                             void (*callback)(const char*, std::size_t, void*),
                                             void* context);

namespace inject {

namespace {

struct Collected {
  std::string text;
  jmp_buf full;
};

// Room for kMaxDemangledLength is reserved beforehand: nothing here throws. No frame between here and
// setjmp() has a destructor, and the demangler's memory is on the stack.
void collect(const char* piece, std::size_t size, void* context) {
  auto& collected = *static_cast<Collected*>(context);
  const std::size_t room = kMaxDemangledLength - collected.text.size();
  collected.text.append(piece, size < room ? size : room);
  if (size >= room) longjmp(collected.full, 1);  // NOLINT(cert-err52-cpp): the only way out of the demangler
}

/// True if `collected` contains the name, possibly truncated.
bool run_demangler(const char* name, Collected& collected) {
  if (setjmp(collected.full) != 0) return true;  // NOLINT(cert-err52-cpp)
  return __gcclibcxx_demangle_callback(name, collect, &collected) == 0;
}

}  // namespace

std::string demangle(std::string_view name) {
  std::string plain(name);
  if (name.substr(0, 2) != "_Z" || name.size() > kMaxDemangledLength) return plain;
  Collected collected;
  collected.text.reserve(kMaxDemangledLength);
  if (!run_demangler(plain.c_str(), collected) || collected.text.empty()) return plain;
  collected.text.shrink_to_fit();
  return std::move(collected.text);
}

}  // namespace inject
