// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A libtorch_cpu.so that has the functions by which PyTorch tells of its optimizers' steps, but behaves
// otherwise than is known: with TORCH_CALLS=none no callback is called, with all those of every scope are,
// with twice twice.
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
Callback added{};
std::string_view calls() {
  const char* value = std::getenv("TORCH_CALLS");
  return value == nullptr ? "as known" : value;
}
bool is_user(void* function) {
  return *static_cast<unsigned char*>(function) == 7;
}
bool is_called(void* function) {
  return added.start != nullptr && calls() != "none" && (calls() == "all" || is_user(function));
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
                     std::int64_t) __asm__("_ZN2at14RecordFunction6beforeEPKcl");
#if !TORCH_INCOMPLETE
EXPORTED void steps() __asm__("_ZN2at14RecordFunctionC1EONS_13StepCallbacksE");
void steps() {}
#endif

std::uint64_t add(Callback callback) {
  added = callback;
  return 1;
}
void remove_callback(std::uint64_t) {
  added = {};
  std::puts("removed");
}
const char* name(const void* function) {
  const char* text = nullptr;
  std::memcpy(&text, static_cast<const char*>(function) + 8, sizeof(text));
  return text;
}
void construct(void* function, std::uint8_t scope) {
  *static_cast<std::uint8_t*>(function) = scope;
}
void before(void* function, const char* text, std::int64_t) {
  std::memcpy(static_cast<char*>(function) + 8, &text, sizeof(text));
  if (!is_called(function)) return;
  added.start(function);
  if (calls() == "twice") added.start(function);
}
void destroy(void* function) {
  if (is_called(function)) added.end(function, nullptr);
}
}
