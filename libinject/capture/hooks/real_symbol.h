// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Finds the function that a hooked call is to reach. dlsym(RTLD_NEXT) cannot do it: frameworks load their
// CUDA libraries RTLD_LOCAL, two CUDA majors may be loaded side by side, and dlsym takes a lock that the
// loader holds while it runs constructors. So the loaded objects' own hash tables are read, and what was
// found is remembered for each module that calls.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/model/functions.h"
#include "libinject/model/records.h"

namespace inject {

/// The target of the calls of one function that come from one module. Written once, before it is published;
/// only `epoch` changes later. `begin` and `span` cover the calling module's code.
struct alignas(32) Binding {
  std::uintptr_t begin = 0;
  std::uintptr_t span = 0;
  void* real = nullptr;
  std::atomic<std::uint32_t> epoch = 0;  ///< the unload epoch in which it was last verified
  std::uint32_t next = 0;                ///< index of the function's next binding, 0: none

  bool covers(const void* caller) const noexcept {
    return reinterpret_cast<std::uintptr_t>(caller) - begin < span;
  }
};

inline constexpr std::size_t kMaxBindings = 16384;

/// How hooks load the index of a binding that they then read: without a barrier, because the read is ordered
/// by its address, which depends on the index (true on x86-64 and aarch64). The language cannot express that
/// without GCC making it an acquire, and ThreadSanitizer does not know of it: there it is an acquire.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::memory_order kOrderedByAddress = std::memory_order_acquire;
#else
inline constexpr std::memory_order kOrderedByAddress = std::memory_order_relaxed;
#endif

// Read by hooks. Zero-initialised (hooks run before any initialiser) and hidden (no detour through the GOT).
// Binding 0 covers nothing, so a function that has not been called yet needs no test of its own.
struct BindingTable {
  std::array<std::atomic<std::uint32_t>, kFunctionEnd> current{};  ///< the binding used last
  std::array<std::atomic<std::uint32_t>, kFunctionEnd>
      first{};  ///< all bindings of a function, linked by `next`
  std::array<Binding, kMaxBindings> bindings{};
};
extern BindingTable binding_table __attribute__((visibility("hidden")));

/// The real `function` for a call that returns to `caller`, from the table or, the first time, by a walk over
/// the loaded objects. nullptr if no loaded library has it (reported once on stderr). Preserves errno.
/// Lock-free except for the walk, which takes only the lock of dl_iterate_phdr.
void* resolve(FunctionId function, const void* caller) noexcept;

/// The same; first tries the binding used last, if it is the caller's.
inline void* bound(FunctionId function, const void* caller) noexcept {
  const Binding& binding = binding_table.bindings[binding_table.current[function].load(kOrderedByAddress)];
  return binding.covers(caller) ? binding.real : resolve(function, caller);
}

/// Must be called after a library may have been unloaded: no earlier binding is used unchecked again.
void note_unload() noexcept;

/// The function `name` of the library that contains `function`; nullptr if it has none.
void* symbol_of_same_library(const void* function, const char* name) noexcept;

/// Number of times that libraries may have been unloaded.
std::uint32_t unloads_so_far() noexcept;

/// A function of the library that a hooked call goes to, cached for 64 real functions called; for others it
/// is looked up each time. Renewed after a library may have been unloaded. F: its type.
template <typename F>
class SameLibraryFunction {
 public:
  constexpr explicit SameLibraryFunction(const char* name) noexcept : name_(name) {}
  /// nullptr if the library has none.
  F* get(const void* real) noexcept {
    const std::uint32_t unloads = unloads_so_far();
    for (Entry& entry : entries_) {
      const void* beside = entry.beside.load(std::memory_order_acquire);
      if (beside == nullptr && entry.beside.compare_exchange_strong(beside, real, std::memory_order_acq_rel))
        beside = real;
      if (beside != real) continue;
      const std::uint64_t place = entry.place.load(std::memory_order_relaxed);
      if (place >> 32 == unloads && distance(place) != kNotLooked) return found_at(real, distance(place));
      F* found = look(real);
      entry.place.store(std::uint64_t{unloads} << 32 | distance(real, found), std::memory_order_relaxed);
      return found;
    }
    return look(real);
  }

 private:
  // No function lies this far from another of its library.
  static constexpr std::uint32_t kNotLooked = 0;
  static constexpr std::uint32_t kMissing = std::uint32_t{1} << 31;

  // The result is stored in one word with the unload count at which it was found, so that a thread that was
  // searching while a library was unloaded can't leave one without the other. The functions of one library
  // lie within 2 GiB of each other.
  struct Entry {
    std::atomic<const void*> beside{nullptr};
    std::atomic<std::uint64_t> place{kNotLooked};  // unloads, and the distance from `beside`
  };
  static std::uint32_t distance(std::uint64_t place) noexcept { return static_cast<std::uint32_t>(place); }
  static std::uint32_t distance(const void* real, F* found) noexcept {
    if (found == nullptr) return kMissing;
    const auto far = reinterpret_cast<std::intptr_t>(found) - reinterpret_cast<std::intptr_t>(real);
    const auto near = static_cast<std::int32_t>(far);
    return near == far ? static_cast<std::uint32_t>(near) : kNotLooked;
  }
  static F* found_at(const void* real, std::uint32_t distance) noexcept {
    if (distance == kMissing) return nullptr;
    return reinterpret_cast<F*>(reinterpret_cast<std::intptr_t>(real) + static_cast<std::int32_t>(distance));
  }
  F* look(const void* real) const noexcept {
    return reinterpret_cast<F*>(symbol_of_same_library(real, name_));
  }

  const char* name_;
  std::array<Entry, 64> entries_{};
};

/// The first definition of `name` in load order that is not ours; nullptr if there is none.
void* next_symbol(const char* name) noexcept;

/// The same, but only among the definitions after ours if there are any, as dlsym(RTLD_NEXT) would: a library
/// that is preloaded before us and has the name as well passes its calls on to us.
void* symbol_after_ours(const char* name) noexcept;

}  // namespace inject
