// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/elf_object.h"

#include <elf.h>
#include <sys/auxv.h>

#include <cstring>

namespace inject {

namespace {

std::uint32_t gnu_hash(const char* text) noexcept {
  std::uint32_t hash = 5381;
  for (; *text != '\0'; ++text) hash = hash * 33 + static_cast<unsigned char>(*text);
  return hash;
}

std::uint32_t sysv_hash(const char* text) noexcept {
  std::uint32_t hash = 0;
  for (; *text != '\0'; ++text) {
    hash = (hash << 4u) + static_cast<unsigned char>(*text);
    const std::uint32_t high = hash & 0xF000'0000u;
    hash = (hash ^ (high >> 24u)) & ~high;
  }
  return hash;
}

// Calls an indirect function's resolver as the loader does.
void* call_resolver(std::uintptr_t resolver) noexcept {
#if defined(__aarch64__)
  struct {
    unsigned long size;
    unsigned long hwcap;
    unsigned long hwcap2;
  } const argument{sizeof(argument), getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
  constexpr std::uint64_t kHasArgument = 1ull << 62u;
  return reinterpret_cast<void* (*)(std::uint64_t, const void*)>(resolver)(argument.hwcap | kHasArgument,
                                                                           &argument);
#else
  return reinterpret_cast<void* (*)()>(resolver)();
#endif
}

}  // namespace

SymbolName::SymbolName(const char* name) noexcept : text(name), hash(gnu_hash(name)) {}

// The loader turns most of these values into addresses when it maps an object, but not those of the vDSO. A
// value that does not point into the object is treated as absent.
template <typename T>
const T* ElfObject::table(std::uintptr_t pointer) const noexcept {
  if (pointer < begin_) pointer += base_;
  return pointer >= begin_ && pointer < end_ ? reinterpret_cast<const T*>(pointer) : nullptr;
}

ElfObject::ElfObject(const dl_phdr_info& info) noexcept : base_(info.dlpi_addr), begin_(UINTPTR_MAX) {
  const char* file = info.dlpi_name != nullptr ? info.dlpi_name : "";
  if (const char* slash = std::strrchr(file, '/'); slash != nullptr) file = slash + 1;
  soname_ = file;

  std::uintptr_t dynamic = 0;
  for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    const std::uintptr_t from = base_ + segment.p_vaddr;
    if (segment.p_type == PT_LOAD) {
      if (from < begin_) begin_ = from;
      if (from + segment.p_memsz > end_) end_ = from + segment.p_memsz;
    } else if (segment.p_type == PT_DYNAMIC) {
      dynamic = from;
    }
  }
  if (begin_ > end_) begin_ = end_ = 0;
  if (dynamic == 0) return;

  dynamic_ = reinterpret_cast<const ElfW(Dyn)*>(dynamic);
  std::uintptr_t soname = UINTPTR_MAX;
  for (const ElfW(Dyn)* entry = dynamic_; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_STRTAB:
        strings_ = table<char>(entry->d_un.d_ptr);
        break;
      case DT_SYMTAB:
        symbols_ = table<ElfW(Sym)>(entry->d_un.d_ptr);
        break;
      case DT_GNU_HASH:
        gnu_hash_ = table<std::uint32_t>(entry->d_un.d_ptr);
        break;
      case DT_HASH:
        sysv_hash_ = table<std::uint32_t>(entry->d_un.d_ptr);
        break;
      case DT_VERSYM:
        versions_ = table<std::uint16_t>(entry->d_un.d_ptr);
        break;
      case DT_SONAME:
        soname = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  if (strings_ != nullptr && soname != UINTPTR_MAX) soname_ = strings_ + soname;
  soname_hash_ = gnu_hash(soname_);
}

bool ElfObject::is_match(std::uint32_t index, const SymbolName& name) const noexcept {
  const ElfW(Sym)& symbol = symbols_[index];
  if (std::strcmp(strings_ + symbol.st_name, name.text) != 0) return false;
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) return false;
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (type != STT_FUNC && type != STT_GNU_IFUNC) return false;
  const unsigned binding = ELF64_ST_BIND(symbol.st_info);
  if (binding != STB_GLOBAL && binding != STB_WEAK && binding != STB_GNU_UNIQUE) return false;
  const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  if (visibility != STV_DEFAULT && visibility != STV_PROTECTED) return false;
  // Version 0 is local to the object; the top bit marks versions that only a reference by version reaches.
  return versions_ == nullptr || (versions_[index] != VER_NDX_LOCAL && (versions_[index] & 0x8000u) == 0);
}

const ElfW(Sym) * ElfObject::find_by_gnu_hash(const SymbolName& name) const noexcept {
  const std::uint32_t buckets = gnu_hash_[0];
  const std::uint32_t first_symbol = gnu_hash_[1];
  const std::uint32_t bloom_words = gnu_hash_[2];
  const std::uint32_t bloom_shift = gnu_hash_[3];
  if (buckets == 0 || bloom_words == 0) return nullptr;
  constexpr std::uint32_t kWordBits = 8 * sizeof(ElfW(Addr));
  const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(gnu_hash_ + 4);
  const ElfW(Addr) word = bloom[(name.hash / kWordBits) % bloom_words];
  const ElfW(Addr) mask =
      ElfW(Addr){1} << (name.hash % kWordBits) | ElfW(Addr){1} << ((name.hash >> bloom_shift) % kWordBits);
  if ((word & mask) != mask) return nullptr;

  const auto* bucket = reinterpret_cast<const std::uint32_t*>(bloom + bloom_words);
  const std::uint32_t* chain = bucket + buckets;
  std::uint32_t index = bucket[name.hash % buckets];
  if (index < first_symbol) return nullptr;
  for (;; ++index) {
    const std::uint32_t hash = chain[index - first_symbol];
    if ((hash | 1u) == (name.hash | 1u) && is_match(index, name)) return &symbols_[index];
    if ((hash & 1u) != 0) return nullptr;
  }
}

const ElfW(Sym) * ElfObject::find_by_sysv_hash(const SymbolName& name) const noexcept {
  const std::uint32_t buckets = sysv_hash_[0];
  const std::uint32_t chains = sysv_hash_[1];
  if (buckets == 0) return nullptr;
  const std::uint32_t* bucket = sysv_hash_ + 2;
  const std::uint32_t* chain = bucket + buckets;
  for (std::uint32_t index = bucket[sysv_hash(name.text) % buckets]; index != 0 && index < chains;
       index = chain[index]) {
    if (is_match(index, name)) return &symbols_[index];
  }
  return nullptr;
}

const ElfW(Sym) * ElfObject::find_function(const SymbolName& name) const noexcept {
  if (strings_ == nullptr || symbols_ == nullptr) return nullptr;
  if (gnu_hash_ != nullptr) return find_by_gnu_hash(name);
  if (sysv_hash_ != nullptr) return find_by_sysv_hash(name);
  return nullptr;
}

void* ElfObject::address(const ElfW(Sym) & function) const noexcept {
  const std::uintptr_t address = base_ + function.st_value;
  if (ELF64_ST_TYPE(function.st_info) == STT_GNU_IFUNC) return call_resolver(address);
  return reinterpret_cast<void*>(address);
}

}  // namespace inject
