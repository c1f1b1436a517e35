// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A libtorch_cpu.so with the functions through which PyTorch reports its functions. It behaves like known
// versions or, with TORCH_CALLS, otherwise: with `none` no callback is called, with `all` each in every
// scope, with `twice` each twice; with `no_sequence` functions have no sequence number.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

struct Context {
  void* pointer = nullptr;
  ~Context() {}
};
struct Callback {
  Context (*start)(const void*);
  void (*end)(const void*, void*);
  double probability;
  std::array<bool, 13> flags;
};
std::array<Callback, 8> added{};
std::uint64_t count = 0;
std::string_view calls() {
  const char* value = std::getenv("TORCH_CALLS");
  return value == nullptr ? "as known" : value;
}
bool is_called(const Callback& callback, const void* function) {
  return callback.start != nullptr && calls() != "none" &&
         (calls() == "all" || callback.flags[*static_cast<const unsigned char*>(function)]);
}

}  // namespace

extern "C" {
#define EXPORTED [[gnu::visibility("default")]]
EXPORTED std::uint64_t add(Callback callback) __asm__(
    "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
EXPORTED void remove_callback(std::uint64_t handle) __asm__("_ZN2at14removeCallbackEm");
EXPORTED const char* name(const void* function) __asm__("_ZNK2at14RecordFunction4nameEv");
EXPORTED void construct(void* function,
                        std::uint8_t scope) __asm__("_ZN2at14RecordFunctionC1ENS_11RecordScopeE");
EXPORTED void destroy(void* function) __asm__("_ZN2at14RecordFunctionD1Ev");
EXPORTED void before(void* function, const char* name,
                     std::int64_t sequence) __asm__("_ZN2at14RecordFunction6beforeEPKcl");
#if !TORCH_INCOMPLETE
EXPORTED void steps() __asm__("_ZN2at14RecordFunctionC1EONS_13StepCallbacksE");
void steps() {}
#endif

std::uint64_t add(Callback callback) {
  added[count % added.size()] = callback;
  return ++count;
}
void remove_callback(std::uint64_t handle) {
  added[(handle - 1) % added.size()] = {};
  std::printf("removed %u\n", static_cast<unsigned>(handle));
}
const char* name(const void* function) {
  const char* text = nullptr;
  std::memcpy(&text, static_cast<const char*>(function) + 8, sizeof(text));
  return text;
}
void construct(void* function, std::uint8_t scope) {
  *static_cast<std::uint8_t*>(function) = scope;
}
void before(void* function, const char* text, std::int64_t sequence) {
  std::memcpy(static_cast<char*>(function) + 8, &text, sizeof(text));
  if (calls() != "no_sequence") std::memcpy(static_cast<char*>(function) + 16, &sequence, sizeof(sequence));
  for (const Callback& callback : added) {
    if (!is_called(callback, function)) continue;
    callback.start(function);
    if (calls() == "twice") callback.start(function);
  }
}
void destroy(void* function) {
  for (const Callback& callback : added)
    if (is_called(callback, function)) callback.end(function, nullptr);
}
}
