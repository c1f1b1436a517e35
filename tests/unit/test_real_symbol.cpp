// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/real_symbol.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "libinject/capture/hooks/elf_object.h"

using inject::ElfObject;
using inject::SymbolName;

namespace {

template <typename Visit>
void for_each_object(Visit visit) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        (*static_cast<Visit*>(data))(ElfObject(*info));
        return 0;
      },
      &visit);
}

// A function of the C library, found by our own reading of its tables.
void* in_libc(const char* name) {
  void* found = nullptr;
  for_each_object([&](const ElfObject& object) {
    if (std::string_view(object.soname()) != "libc.so.6") return;
    if (const ElfW(Sym)* symbol = object.find_function(SymbolName(name))) found = object.address(*symbol);
  });
  return found;
}

// Output of `action` on stderr.
template <typename Action>
std::string stderr_of(Action action) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  action();
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t n; (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  return text;
}

}  // namespace

TEST_CASE("functions are found in an object's own tables as dlsym finds them", "[resolver]") {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(libc != nullptr);
  // getenv is plain, strlen is indirect, memcpy has an older version besides its default one.
  for (const char* name :
       {"getenv", "fopen", "qsort", "strlen", "memcpy", "memset", "pthread_create", "dlclose"}) {
    INFO(name);
    CHECK(in_libc(name) != nullptr);
    CHECK(in_libc(name) == dlsym(libc, name));
  }
  dlclose(libc);
}

TEST_CASE("what is no exported function is not found", "[resolver]") {
  CHECK(in_libc("no_such_function_anywhere") == nullptr);
  CHECK(in_libc("") == nullptr);
  CHECK(in_libc("environ") == nullptr);   // a variable
  CHECK(in_libc("_dl_argv") == nullptr);  // undefined there: it is the loader's
  CHECK(in_libc("__libc_malloc2") == nullptr);
}

TEST_CASE("objects say what they are called, where they lie and what they need", "[resolver]") {
  int containing = 0;
  std::vector<std::string> libc_needs;
  bool vdso = false;
  for_each_object([&](const ElfObject& object) {
    if (object.contains(reinterpret_cast<const void*>(&for_each_object<void (*)(const ElfObject&)>)))
      ++containing;
    CHECK(object.begin() < object.end());
    CHECK(object.soname() != nullptr);
    if (std::strncmp(object.soname(), "linux-vdso", 10) == 0) vdso = true;
    if (std::string_view(object.soname()) == "libc.so.6") {
      object.for_each_needed([&](const char* name) { libc_needs.emplace_back(name); });
    }
  });
  CHECK(containing == 1);
  REQUIRE(libc_needs.size() == 1);
  CHECK(libc_needs[0].rfind("ld-linux", 0) == 0);
#if defined(__x86_64__)
  CHECK(vdso);
#else
  (void)vdso;
#endif
}

TEST_CASE("next_symbol skips our own definition", "[resolver]") {
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(libc != nullptr);
  CHECK(inject::next_symbol("getenv") == dlsym(libc, "getenv"));
  CHECK(inject::next_symbol("no_such_function_anywhere") == nullptr);
  // In load order, our code is in the program, which precedes libc.
  CHECK(inject::symbol_after_ours("getenv") == dlsym(libc, "getenv"));
  CHECK(inject::symbol_after_ours("no_such_function_anywhere") == nullptr);
  dlclose(libc);
}

TEST_CASE("a function that no loaded library has is said once and leaves errno alone", "[resolver]") {
  const void* caller = reinterpret_cast<const void*>(&for_each_object<void (*)(const ElfObject&)>);
  void* found = nullptr;
  const std::string said = stderr_of([&] {
    errno = ENOTTY;
    found = inject::resolve(inject::kFn_cudaGraphDebugDotPrint, caller);
    CHECK(errno == ENOTTY);
    inject::resolve(inject::kFn_cudaGraphDebugDotPrint, caller);
    inject::resolve(inject::kFn_cudaGraphDebugDotPrint, nullptr);
  });
  CHECK(found == nullptr);
  CHECK(said.find("no loaded library provides cudaGraphDebugDotPrint") != std::string::npos);
  CHECK(said.find('\n') == said.size() - 1);
}
