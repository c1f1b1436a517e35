// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <link.h>

#include <cstdint>

namespace inject {

/// A name and its GNU hash, so that one hash serves all objects.
struct SymbolName {
  explicit SymbolName(const char* name) noexcept;
  const char* text;
  std::uint32_t hash;
};

/// A loaded object, read in place in memory: its extent, its name, what it needs and what it defines. Valid
/// while the loader's lock is held (inside a dl_iterate_phdr callback). Calls nothing that could lock or
/// allocate.
class ElfObject {
 public:
  ElfObject() = default;
  explicit ElfObject(const dl_phdr_info& info) noexcept;

  bool contains(const void* address) const noexcept {
    return reinterpret_cast<std::uintptr_t>(address) - begin_ < end_ - begin_;
  }
  std::uintptr_t begin() const noexcept { return begin_; }
  std::uintptr_t end() const noexcept { return end_; }

  /// DT_SONAME; without one, the file's name. Never null.
  const char* soname() const noexcept { return soname_; }
  std::uint32_t soname_hash() const noexcept { return soname_hash_; }

  /// The function that the object defines and exports under `name` in its default version; nullptr if it has
  /// none.
  const ElfW(Sym) * find_function(const SymbolName& name) const noexcept;

  /// Whether the object has that function in a named version, which not every reference means.
  bool is_versioned(const ElfW(Sym) & function) const noexcept {
    return versions_ != nullptr && (versions_[&function - symbols_] & 0x7FFFu) > 1;  // 1: VER_NDX_GLOBAL
  }

  /// Where a function of this object begins. For an indirect function, calls its resolver and returns its
  /// choice.
  void* address(const ElfW(Sym) & function) const noexcept;

  /// Calls `visit` with each DT_NEEDED name, in order.
  template <typename Visit>
  void for_each_needed(Visit visit) const {
    if (dynamic_ == nullptr || strings_ == nullptr) return;
    for (const ElfW(Dyn)* entry = dynamic_; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_NEEDED) visit(strings_ + entry->d_un.d_val);
    }
  }

 private:
  template <typename T>
  const T* table(std::uintptr_t pointer) const noexcept;
  const ElfW(Sym) * find_by_gnu_hash(const SymbolName& name) const noexcept;
  const ElfW(Sym) * find_by_sysv_hash(const SymbolName& name) const noexcept;
  bool is_match(std::uint32_t index, const SymbolName& name) const noexcept;

  std::uintptr_t base_ = 0;
  std::uintptr_t begin_ = 0;
  std::uintptr_t end_ = 0;
  const ElfW(Dyn) * dynamic_ = nullptr;
  const char* strings_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* sysv_hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
  const char* soname_ = "";
  std::uint32_t soname_hash_ = 0;
};

}  // namespace inject
