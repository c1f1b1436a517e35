// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/loaded_objects.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/capture/hooks/real_symbol.h"

namespace inject {

namespace {

constexpr std::size_t kMaxPathLength = 4096;
// An address in this library.
const char kInThisLibrary = 0;

struct ImportSearch {
  std::string_view name;
  const void* self;
  bool found = false;
};

// Addresses in a loaded object's dynamic section are relocated by glibc for all objects but the vDSO.
std::uintptr_t address_in(const dl_phdr_info& info, ElfW(Addr) value) {
  return value < info.dlpi_addr ? info.dlpi_addr + value : value;
}

bool contains(const dl_phdr_info& info, const void* address) {
  const auto target = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const std::uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && target >= begin && target < begin + header.p_memsz) return true;
  }
  return false;
}

// Undefined symbols come first in a dynamic symbol table: the GNU hash table covers only what follows them,
// and its second word says where that starts.
int search_imports(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<ImportSearch*>(data);
  if (contains(*info, search.self)) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* sysv_hash = nullptr;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const std::uintptr_t address = address_in(*info, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (dynamic->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(address);
    if (dynamic->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const std::uint32_t*>(address);
    if (dynamic->d_tag == DT_HASH) sysv_hash = reinterpret_cast<const std::uint32_t*>(address);
  }
  if (symbols == nullptr || strings == nullptr) return 0;
  const std::uint32_t count = gnu_hash != nullptr ? gnu_hash[1] : sysv_hash != nullptr ? sysv_hash[1] : 0;
  for (std::uint32_t i = 1; i < count; ++i) {
    if (symbols[i].st_shndx == SHN_UNDEF && search.name == strings + symbols[i].st_name) {
      search.found = true;
      return 1;
    }
  }
  return 0;
}

void list_if_cuda(std::vector<std::pair<std::string, std::string>>& list, std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const std::string_view prefix : {"libcudart.so", "libcublas.so", "libcublasLt.so", "libcudnn.so",
                                        "libnccl.so", "libcupti.so", "libcuda.so"}) {
    if (file.substr(0, prefix.size()) == prefix) list.emplace_back(file, path);
  }
}

// An exception must not leave the callback: the C library's frames around it end the program.
int list_cuda_objects(dl_phdr_info* info, std::size_t, void* data) noexcept {
  try {
    auto& list = *static_cast<std::vector<std::pair<std::string, std::string>>*>(data);
    if (info->dlpi_name != nullptr) list_if_cuda(list, info->dlpi_name);
    return 0;
  } catch (...) {
    return 1;  // out of memory: use what was found so far
  }
}

}  // namespace

bool process_imports(std::string_view name) {
  ImportSearch search{name, &kInThisLibrary};
  const DynamicLoaderGuard guard;
  dl_iterate_phdr(&search_imports, &search);
  return search.found;
}

void at_python_exit(void (*handler)()) noexcept {
  // Not in a program that embeds Python: it may go on after its interpreter.
  std::array<char, kMaxPathLength> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return;
  const char* slash = std::strrchr(path.data(), '/');
  if (slash == nullptr || std::strncmp(slash + 1, "python", 6) != 0) return;
  // Not by dlsym, because the thread that waits for this one may hold its lock.
  using Register = int (*)(void (*)());
  if (auto* add = reinterpret_cast<Register>(next_symbol("Py_AtExit")); add != nullptr) add(handler);
}

std::vector<std::pair<std::string, std::string>> cuda_libraries() {
  std::vector<std::pair<std::string, std::string>> list;
  const DynamicLoaderGuard guard;
  dl_iterate_phdr(&list_cuda_objects, &list);
  return list;
}

}  // namespace inject
