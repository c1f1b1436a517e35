// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where in the program work was launched: the Python stack, the module, the operators. They are collected
// while the iterations that follow a window are named (docs/code.md): those launches carry the number of
// their place instead of that of a range.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/model/code_place.h"
#include "libinject/record/intern_table.h"
#include "libinject/record/name_table.h"

namespace inject {

/// Interned places and what they are made of. Any thread, without a lock; bounded.
class CodePlaces {
 public:
  explicit CodePlaces(NameTable& names) noexcept : names_(names) {}

  NameTable& names() noexcept { return names_; }
  const NameTable& names() const noexcept { return names_; }

  // Each returns 0 if there is no room (counted in overflows()).
  std::uint32_t node(const CodeNode& node) noexcept;
  std::uint32_t place(const CodePlace& place) noexcept;

  /// The place of work that was captured into a graph at one place, and is run by a launch of the graph at
  /// another (docs/code.md). Either may be 0, not known.
  std::uint32_t replayed(std::uint32_t captured, std::uint32_t launch) noexcept;

  /// True if an incomplete place (kIncompletePlace) may be the same as a complete one: its operators are the
  /// innermost ones of the other's, and stack and module are equal if it has them, unless it does not know
  /// that it is in the backward pass. If it does not know the forward pass, its stack may lack the outer part
  /// of the other's. If no complete one is known (0): whether it can be relied on that no operator was open.
  bool may_be_same(std::uint32_t incomplete, std::uint32_t complete) const noexcept;

  /// The place of a kernel that TorchInductor generated: inside the operator around it, which is that of the
  /// whole compiled function, an operator with the kernel's name, which lists the operators fused in it. Any
  /// other kernel's place is returned unchanged.
  std::uint32_t fused(std::uint32_t place, std::string_view kernel) noexcept;

  CodeNode node(std::uint32_t id) const noexcept { return nodes_.item(id); }
  CodePlace place(std::uint32_t id) const noexcept { return places_.item(id); }

  /// The object for which a module's node was made last, which may be another one of the same class at the
  /// same path: an address to compare, and to dereference only with checks that it still exists.
  void set_object(std::uint32_t node, const void* object) noexcept {
    if (objects_.items != nullptr && node != 0) objects_.items[node].store(object, std::memory_order_relaxed);
  }
  const void* object(std::uint32_t node) const noexcept {
    return objects_.items == nullptr || node == 0 ? nullptr
                                                  : objects_.items[node].load(std::memory_order_relaxed);
  }

  /// A call of one module by another, identified by the objects' addresses: they live as long as the call.
  struct ModuleCall {
    const void* caller = nullptr;  ///< null: none
    const void* module = nullptr;
    const void* type = nullptr;  ///< of the module: the address may be reused for another object
    std::uint32_t name = 0;      ///< its path below the caller, in names()
    std::uint32_t type_name = 0;
  };
  /// Adds its names, which `name(ModuleCall&)` fills in the first time. Without names if there is no room.
  template <typename Name>
  ModuleCall module_call(const ModuleCall& call, Name name) noexcept {
    const auto address = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
    const std::uint64_t hash =
        hash_mix((address(call.caller) * kHashSeed ^ address(call.module)) * kHashSeed ^ address(call.type));
    return module_calls_.item(module_calls_.intern(
        hash,
        [&](const ModuleCall& seen) {
          return seen.caller == call.caller && seen.module == call.module && seen.type == call.type;
        },
        [&] {
          ModuleCall named = call;
          name(named);
          return named;
        }));
  }

  /// What the forward pass was doing when it began the operator with this sequence number, which autograd
  /// also gives to the node that it makes for the operator: numbers ascend on each thread, and of several
  /// operators with one number the last makes the node, unless a node is made without an operator
  /// (TorchScript). Remembers the latest kForwardOps.
  void note_forward(std::uint64_t sequence, std::uint32_t thread, CodeContext context) noexcept;
  /// Nothing if it is not known, or if two threads have used this number.
  std::optional<CodeContext> forward(std::uint64_t sequence) const noexcept;

  std::uint64_t overflows() const noexcept {
    return nodes_.overflows() + places_.overflows() + module_calls_.overflows();
  }

 private:
  bool is_below(std::uint32_t node, std::uint32_t ancestor) const noexcept;
  bool ends_in(std::uint32_t chain, std::uint32_t end) const noexcept;
  std::uint32_t joined(std::uint32_t outer, std::uint32_t inner) noexcept;

  static constexpr std::uint32_t kMaxNodes = 1u << 17;
  static constexpr std::uint32_t kMaxPlaces = 1u << 16;
  static constexpr std::uint32_t kMaxModuleCalls = 1u << 14;
  static constexpr std::uint32_t kForwardOps = 1u << 17;
  static constexpr std::uint32_t kSeveralThreads = ~std::uint32_t{0};

  struct ForwardOp {
    std::atomic<std::uint64_t> sequence;  // plus one; 0: none
    std::atomic<std::uint32_t> thread;
    std::atomic<std::uint32_t> stack;
    std::atomic<std::uint32_t> module;
    std::atomic<const void*> object;
    std::atomic<bool> module_unknown;
  };
  /// Zeroed; null if there is no memory.
  template <typename Item, std::size_t count>
  struct Reserved {
    Reserved() noexcept : items(static_cast<Item*>(map_memory(count * sizeof(Item)))) {}
    ~Reserved() { unmap_memory(items, count * sizeof(Item)); }
    Reserved(const Reserved&) = delete;
    Reserved& operator=(const Reserved&) = delete;
    Item* const items;
  };

  NameTable& names_;
  InternTable<CodeNode> nodes_{kMaxNodes};
  InternTable<CodePlace> places_{kMaxPlaces};
  InternTable<ModuleCall> module_calls_{kMaxModuleCalls};
  Reserved<ForwardOp, kForwardOps> forward_;
  Reserved<std::atomic<const void*>, kMaxNodes> objects_;
};

}  // namespace inject
