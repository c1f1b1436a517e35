// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/real_symbol.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/host_io.h"
#include "libinject/capture/hooks/elf_object.h"

namespace inject {

constinit BindingTable binding_table{};

namespace {

// Counts unloads. A binding made in an earlier epoch may name code that is no longer there.
constinit std::atomic<std::uint32_t> unload_epoch{0};
constinit std::atomic<std::uint64_t> unloads_seen{0};
constinit std::atomic<std::uint32_t> bindings_used{1};  // binding 0 is the empty one
constinit std::array<std::atomic<bool>, kFunctionEnd> reported_missing{};
constinit thread_local std::uint8_t searches = 0;

// The stem of the library to which a group's names belong: libcudnn.so.9 rather than libcudnn_ops.so.9, which
// has the same names; libcudart-9335f6a2.so.12 is the form in repaired wheels.
const char* library_stem(FunctionGroup group) noexcept {
  switch (group) {
    case FunctionGroup::kCudart:
      return "libcudart";
    case FunctionGroup::kCublas:
      return "libcublas";
    case FunctionGroup::kCublasLt:
      return "libcublasLt";
    case FunctionGroup::kCudnn:
      return "libcudnn";
    case FunctionGroup::kNccl:
      return "libnccl";
    case FunctionGroup::kCupti:
      return "libcupti";
    case FunctionGroup::kDriver:
      return "libcuda";
  }
  return "";
}

bool is_library(const char* soname, const char* stem) noexcept {
  const std::size_t length = std::strlen(stem);
  return std::strncmp(soname, stem, length) == 0 && (soname[length] == '.' || soname[length] == '-');
}

// One search over the loaded objects. Everything happens inside one dl_iterate_phdr callback, so that nothing
// is unloaded meanwhile; the passes over the objects are nested calls, which the lock's owner may make.
class Search {
 public:
  Search(const char* name, const char* stem, const void* caller) noexcept
      : name_(name), stem_(stem), caller_(caller) {}

  void prefer_behind_us() noexcept { behind_us_ = true; }

  void run() noexcept {
    const DynamicLoaderGuard guard;
    dl_iterate_phdr(
        [](dl_phdr_info*, std::size_t, void* self) {
          static_cast<Search*>(self)->run_locked();
          return 1;
        },
        this);
  }

  void* result() const noexcept { return result_; }
  std::uintptr_t caller_begin() const noexcept { return caller_begin_; }
  std::uintptr_t caller_end() const noexcept { return caller_end_; }

 private:
  static constexpr unsigned kMaxProviders = 32;
  static constexpr unsigned kNone = UINT_MAX;

  struct Provider {
    unsigned index;  // in load order
    ElfObject object;
    const ElfW(Sym) * symbol;
    bool preferred;
  };

  // State of the breadth-first walks for an object.
  struct Node {
    ElfObject object;
    unsigned queued;  // the n-th object reached
    unsigned walk;    // number of the latest walk that reached this object
  };

  void run_locked() noexcept {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* self) {
          static_cast<Search*>(self)->visit(*info);
          return 0;
        },
        this);
    if (provider_count_ == 0) return;
    unsigned chosen = 0;
    if (behind_us_) {
      chosen = first_behind_us();
    } else if (provider_count_ > 1 || providers_[0].index < our_index_) {
      const bool has_nodes = snapshot();
      chosen = choose();
      if (has_nodes) munmap(nodes_, object_count_ * sizeof(Node));
    }
    if (chosen != kNone) result_ = providers_[chosen].object.address(*providers_[chosen].symbol);
  }

  // In load order, which is the order in which the dynamic linker searches preloaded or linked libraries.
  unsigned first_behind_us() const noexcept {
    for (unsigned i = 0; i < provider_count_; ++i) {
      if (providers_[i].index > our_index_) return i;
    }
    return 0;
  }

  void visit(const dl_phdr_info& info) noexcept {
    const unsigned index = object_count_++;
    const ElfObject object(info);
    const bool ours = object.contains(&binding_table);
    if (ours) our_index_ = index;
    if (object.contains(caller_)) {
      caller_index_ = index;
      caller_begin_ = object.begin();
      caller_end_ = object.end();
    } else if (caller_index_ == kNone && caller_ != nullptr) {
      narrow_gap(object);
    }
    if (ours || provider_count_ == kMaxProviders) return;
    const ElfW(Sym)* symbol = object.find_function(name_);
    // Another copy of this library would call us.
    if (symbol != nullptr && object.find_function(SymbolName("inject_is_open")) == nullptr) {
      providers_[provider_count_++] = {index, object, symbol, is_library(object.soname(), stem_)};
    }
  }

  // Code outside any object (from a just-in-time compiler) is treated as one module up to 64 KiB around the
  // call, or up to the next object.
  void narrow_gap(const ElfObject& object) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(caller_);
    if (caller_end_ == 0) {
      caller_begin_ = address & ~std::uintptr_t{0xFFFF};
      caller_end_ = caller_begin_ + 0x10000;
    }
    if (object.end() <= address && object.end() > caller_begin_) caller_begin_ = object.end();
    if (object.begin() > address && object.begin() < caller_end_) caller_end_ = object.begin();
  }

  // Chooses as the dynamic linker would without us: a preloaded library, as far as it is behind us; else, by
  // the version that the caller requests, the caller itself, then what it depends on, then what the libraries
  // that need the caller depend on. kNone: nobody but those who have passed the call on to us has the name.
  unsigned choose() noexcept {
    last_of_program_ = last_needed_by_program();
    if (caller_ != nullptr) leave_out_those_in_front();
    if (provider_count_ == 0) return kNone;
    for (unsigned i = 0; i < provider_count_; ++i) {
      if (providers_[i].index > our_index_ && is_preloaded(providers_[i])) return i;
    }
    for (unsigned i = 0; i < provider_count_; ++i) {
      if (providers_[i].index == caller_index_) return i;
    }
    unsigned chosen = kNone;
    if (caller_index_ < node_count_) {
      bool reached_caller = false;
      chosen = walk(caller_index_, reached_caller);
      for (unsigned root = 0; root < node_count_ && chosen == kNone; ++root) {
        reached_caller = false;
        const unsigned found = walk(root, reached_caller);
        if (reached_caller) chosen = found;
      }
    }
    if (chosen != kNone) return chosen;
    for (unsigned i = 0; i < provider_count_; ++i) {
      if (providers_[i].preferred) return i;
    }
    return 0;
  }

  // Where we are preloaded, every call finds a library in front of us that has the name as well. What reaches
  // us was passed on by it (RTLD_NEXT), with its own return address or, by a jump, its caller's.
  void leave_out_those_in_front() noexcept {
    if (our_index_ > last_of_program_) return;
    unsigned kept = 0;
    for (unsigned i = 0; i < provider_count_; ++i) {
      if (providers_[i].index > our_index_) providers_[kept++] = providers_[i];
    }
    provider_count_ = kept;
  }

  // The last object that was loaded because the program needs it: all before it were loaded at its start.
  // Without nodes, none is known.
  unsigned last_needed_by_program() const noexcept {
    unsigned last = 0;
    if (node_count_ == 0) return last;
    nodes_[0].object.for_each_needed([&](const char* needed) {
      if (const unsigned index = find_object(needed); index != kNone && index > last) last = index;
    });
    return last;
  }

  // Loaded at the program's start although nothing before it needs it. References to any version find it, if
  // it has no versions itself.
  bool is_preloaded(const Provider& provider) const noexcept {
    if (provider.index > last_of_program_ || provider.object.is_versioned(*provider.symbol)) return false;
    bool is_needed = false;
    for (unsigned i = 0; i < provider.index; ++i) {
      nodes_[i].object.for_each_needed([&](const char* needed) {
        is_needed = is_needed || std::strcmp(file_name(needed), provider.object.soname()) == 0;
      });
    }
    return !is_needed;
  }

  static const char* file_name(const char* path) noexcept {
    const char* slash = std::strrchr(path, '/');
    return slash != nullptr ? slash + 1 : path;
  }

  bool snapshot() noexcept {
    void* memory = mmap(nullptr, object_count_ * sizeof(Node), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    nodes_ = static_cast<Node*>(memory);
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* self) {
          auto* search = static_cast<Search*>(self);
          if (search->node_count_ < search->object_count_)
            search->nodes_[search->node_count_++].object = ElfObject(*info);
          return 0;
        },
        this);
    return true;
  }

  // Breadth-first walk from `root` over its dependencies. Returns the first library to which the name
  // belongs, else the first provider.
  unsigned walk(unsigned root, bool& reached_caller) noexcept {
    ++walks_;
    unsigned queued = 0;
    const auto enqueue = [&](unsigned index) {
      if (nodes_[index].walk == walks_) return;
      nodes_[index].walk = walks_;
      nodes_[queued++].queued = index;
    };
    enqueue(root);
    unsigned first = kNone;
    unsigned first_preferred = kNone;
    for (unsigned at = 0; at < queued; ++at) {
      const unsigned index = nodes_[at].queued;
      if (index == caller_index_) reached_caller = true;
      for (unsigned i = 0; i < provider_count_; ++i) {
        if (providers_[i].index != index) continue;
        if (first == kNone) first = i;
        if (first_preferred == kNone && providers_[i].preferred) first_preferred = i;
      }
      // The caller's own walk can end here; a root's must still learn whether it reaches the caller.
      if (first_preferred != kNone && reached_caller) break;
      nodes_[index].object.for_each_needed([&](const char* needed) {
        if (const unsigned next = find_object(needed); next != kNone) enqueue(next);
      });
    }
    return first_preferred != kNone ? first_preferred : first;
  }

  unsigned find_object(const char* needed) const noexcept {
    const SymbolName name(file_name(needed));
    for (unsigned i = 0; i < node_count_; ++i) {
      const ElfObject& object = nodes_[i].object;
      if (object.soname_hash() == name.hash && std::strcmp(object.soname(), name.text) == 0) return i;
    }
    return kNone;
  }

  SymbolName name_;
  const char* stem_;
  const void* caller_;
  bool behind_us_ = false;
  void* result_ = nullptr;

  unsigned object_count_ = 0;
  unsigned our_index_ = kNone;
  unsigned caller_index_ = kNone;
  unsigned last_of_program_ = 0;
  std::uintptr_t caller_begin_ = 0;
  std::uintptr_t caller_end_ = 0;
  unsigned provider_count_ = 0;
  Provider providers_[kMaxProviders];

  Node* nodes_ = nullptr;
  unsigned node_count_ = 0;
  unsigned walks_ = 0;
};

void report_missing(FunctionId function) noexcept {
  if (reported_missing[function].exchange(true, std::memory_order_relaxed)) return;
  char line[256];
  const std::string_view name = function_name(function);
  const int length = std::snprintf(line, sizeof(line),
                                   "libinject[%ld] error: no loaded library provides %.*s; the call fails\n",
                                   static_cast<long>(getpid()), static_cast<int>(name.size()), name.data());
  if (length > 0) write_quietly(STDERR_FILENO, {line, static_cast<std::size_t>(length)});
}

// Makes `index` the binding that calls of `function` try first, unless something was unloaded since `epoch`:
// then note_unload() may have cleared the entry already.
void use(FunctionId function, std::uint32_t index, std::uint32_t epoch) noexcept {
  if (unload_epoch.load(std::memory_order_seq_cst) != epoch) return;
  binding_table.current[function].store(index, std::memory_order_seq_cst);
  if (unload_epoch.load(std::memory_order_seq_cst) != epoch) {
    binding_table.current[function].store(0, std::memory_order_seq_cst);
  }
}

void* walk_and_bind(FunctionId function, const void* caller, std::uint32_t epoch) noexcept {
  Search search(function_name(function).data(), library_stem(function_group(function)), caller);
  search.run();
  void* real = search.result();
  if (real == nullptr) {
    report_missing(function);
    return nullptr;
  }
  const std::uintptr_t begin = search.caller_begin();
  const std::uintptr_t span = search.caller_end() - begin;

  // A library that was unloaded and loaded again often gets the same address.
  std::atomic<std::uint32_t>& first = binding_table.first[function];
  for (std::uint32_t i = first.load(std::memory_order_acquire); i != 0; i = binding_table.bindings[i].next) {
    Binding& binding = binding_table.bindings[i];
    if (binding.begin == begin && binding.span == span && binding.real == real) {
      binding.epoch.store(epoch, std::memory_order_release);
      use(function, i, epoch);
      return real;
    }
  }
  // Full: this module's calls are right, but need a walk each time.
  if (bindings_used.load(std::memory_order_relaxed) >= kMaxBindings) return real;
  const std::uint32_t index = bindings_used.fetch_add(1, std::memory_order_relaxed);
  if (index >= kMaxBindings) return real;
  Binding& binding = binding_table.bindings[index];
  binding.begin = begin;
  binding.span = span;
  binding.real = real;
  binding.epoch.store(epoch, std::memory_order_relaxed);
  binding.next = first.load(std::memory_order_relaxed);
  while (!first.compare_exchange_weak(binding.next, index, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
  use(function, index, epoch);
  return real;
}

}  // namespace

void* resolve(FunctionId function, const void* caller) noexcept {
  const std::uint32_t epoch = unload_epoch.load(std::memory_order_seq_cst);
  for (std::uint32_t i = binding_table.first[function].load(std::memory_order_acquire); i != 0;
       i = binding_table.bindings[i].next) {
    const Binding& binding = binding_table.bindings[i];
    if (!binding.covers(caller) || binding.epoch.load(std::memory_order_acquire) != epoch) continue;
    // Rarely, because the store costs more than this search, and modules that call alternately would do it
    // each time.
    if (binding_table.current[function].load(std::memory_order_relaxed) == 0 || ++searches % 64 == 0) {
      use(function, i, epoch);
    }
    return binding.real;
  }
  const int saved_errno = errno;
  void* real = walk_and_bind(function, caller, epoch);
  errno = saved_errno;
  return real;
}

void note_unload() noexcept {
  // No binding, nothing to forget: the case of all processes without CUDA.
  if (bindings_used.load(std::memory_order_relaxed) == 1) return;
  std::uint64_t unloads = 0;
  {
    const DynamicLoaderGuard guard;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* count) {
          *static_cast<std::uint64_t*>(count) = info->dlpi_subs;
          return 1;
        },
        &unloads);
  }
  // Most calls of dlclose only decrement a count. The unload count is stored last: a thread that sees it also
  // sees the advanced epoch.
  if (unloads_seen.load(std::memory_order_acquire) == unloads) return;
  unload_epoch.fetch_add(1, std::memory_order_seq_cst);
  for (std::atomic<std::uint32_t>& current : binding_table.current)
    current.store(0, std::memory_order_seq_cst);
  unloads_seen.store(unloads, std::memory_order_release);
}

std::uint32_t unloads_so_far() noexcept {
  return unload_epoch.load(std::memory_order_seq_cst);
}

void* symbol_of_same_library(const void* function, const char* name) noexcept {
  struct Wanted {
    const void* function;
    SymbolName name;
    void* found;
  } wanted{function, SymbolName(name), nullptr};
  const int saved_errno = errno;
  {
    const DynamicLoaderGuard guard;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* self) {
          auto* search = static_cast<Wanted*>(self);
          const ElfObject object(*info);
          if (!object.contains(search->function)) return 0;
          const ElfW(Sym)* symbol = object.find_function(search->name);
          if (symbol != nullptr) search->found = object.address(*symbol);
          return 1;
        },
        &wanted);
  }
  errno = saved_errno;
  return wanted.found;
}

void* next_symbol(const char* name) noexcept {
  Search search(name, "", nullptr);
  search.run();
  return search.result();
}

void* symbol_after_ours(const char* name) noexcept {
  Search search(name, "", nullptr);
  search.prefer_behind_us();
  search.run();
  return search.result();
}

}  // namespace inject
