// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/nvtx/injection.h"

// The tables that a client passes to an injection library are declared only in the implementation part of the
// header.
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <type_traits>

#include "libinject/base/clock.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

namespace {

// Start/end ranges open at once, process-wide. The id that the program gets is serial << 12 | slot.
constexpr std::uint32_t kSlotBits = 12;
constexpr std::uint32_t kMaxOpen = 1u << kSlotBits;

constexpr std::uint32_t kEnding = ~std::uint32_t{0};

struct OpenRange {
  // 0: free. The thread that ends the range sets kEnding; only one can.
  std::atomic<std::uint32_t> serial{0};
  // Ended by a thread that does not own its path. False in a free slot, so that a thread that reads true also
  // reads the rest of that range, and not of the one that reuses the slot. Who sets it to false frees the
  // slot.
  std::atomic<bool> ended{false};
  std::atomic<bool> watched{false};  // the trigger knows that it was opened, and not that it ended
  bool on_path = false;              // of its thread: it fitted there
  std::uint32_t name = 0;
  std::uint32_t domain = 0;
  std::atomic<std::uint32_t> thread{0};
  ThreadState* state = nullptr;
};
constinit std::array<OpenRange, kMaxOpen> open_ranges;

/// Which of open_ranges are in use: if a program never ends its ranges, a start must not have to search all
/// of them.
class Places {
 public:
  static constexpr std::uint32_t kNone = kMaxOpen;

  /// Takes a free slot, preferably the next after `first`.
  std::uint32_t take(std::uint32_t first) noexcept {
    for (std::uint32_t i = 0; i <= kWords; ++i) {
      const std::uint32_t word = (first / kBits + i) % kWords;
      std::uint64_t free = ~taken_[word].load(std::memory_order_relaxed);
      if (i == 0) free &= ~std::uint64_t{0} << first % kBits;
      for (; free != 0; free &= free - 1) {
        const std::uint64_t bit = free & (~free + 1);
        if ((taken_[word].fetch_or(bit, std::memory_order_acquire) & bit) == 0)
          return word * kBits + static_cast<std::uint32_t>(std::countr_zero(bit));
      }
    }
    return kNone;
  }
  void give_back(std::uint32_t place) noexcept {
    taken_[place / kBits].fetch_and(~(std::uint64_t{1} << place % kBits), std::memory_order_release);
  }

 private:
  static constexpr std::uint32_t kBits = 64;
  static constexpr std::uint32_t kWords = kMaxOpen / kBits;

  std::array<std::atomic<std::uint64_t>, kWords> taken_{};
};
constinit Places range_places;

void free_place(OpenRange& open) noexcept {
  open.serial.store(0, std::memory_order_release);
  range_places.give_back(static_cast<std::uint32_t>(&open - open_ranges.data()));
}

// Slots of ended ranges whose owners have not freed them yet, and may have exited without doing so.
constinit std::atomic<std::uint32_t> ended_by_others{0};

bool take_ended(OpenRange& open) noexcept {
  if (!open.ended.exchange(false, std::memory_order_acq_rel)) return false;
  ended_by_others.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

/// Frees the slots of ended ranges that belonged to threads that have exited.
void free_places_of_exited_threads() noexcept {
  for (OpenRange& open : open_ranges) {
    // The rest of the slot can be read only while nobody else can free it.
    if (!open.ended.load(std::memory_order_relaxed) || !open.ended.exchange(false, std::memory_order_acq_rel))
      continue;
    if (open.state->belongs_to_live(open.thread.load(std::memory_order_relaxed))) {
      open.ended.store(true, std::memory_order_release);
      continue;
    }
    ended_by_others.fetch_sub(1, std::memory_order_relaxed);
    free_place(open);
  }
}

// Number of threads that had exited when these slots were last looked for.
constinit std::atomic<std::uint64_t> exited_then{0};

/// Takes a slot for a range to open; Places::kNone if there is none.
std::uint32_t take_place(std::uint32_t first) noexcept {
  const std::uint32_t place = range_places.take(first);
  if (place != Places::kNone || ended_by_others.load(std::memory_order_relaxed) == 0) return place;
  const std::uint64_t exited = ThreadRegistry::exited();
  if (exited_then.exchange(exited, std::memory_order_relaxed) == exited) return place;
  free_places_of_exited_threads();
  return range_places.take(first);
}

constinit std::atomic<std::uint32_t> next_serial{1};
constinit std::atomic<std::uint32_t> next_slot{0};
constinit std::atomic<std::uint64_t> lost_ranges{0};

/// A message or a domain: its name's id, and whether the window trigger watches for it, or it is the one of
/// Core::unit_ranges. That is derived from the text: a name that does not fit in the table is still watched.
struct Name {
  std::uint32_t id = NameTable::kEmpty;
  bool watched = false;
  bool has_units = false;
};

// The program never dereferences handles: ours are names stored in pointers.
constexpr unsigned kWatchedBit = 32;
constexpr unsigned kUnitsBit = 33;
static_assert(sizeof(void*) == 8);

Name name_of(const void* handle) noexcept {
  const auto bits = reinterpret_cast<std::uintptr_t>(handle);
  return {static_cast<std::uint32_t>(bits), (bits >> kWatchedBit & 1) != 0, (bits >> kUnitsBit & 1) != 0};
}
template <typename Handle>
Handle handle_of(Name name) noexcept {
  return reinterpret_cast<Handle>(std::uintptr_t{name.id} | std::uintptr_t{name.watched} << kWatchedBit |
                                  std::uintptr_t{name.has_units} << kUnitsBit);
}

constexpr std::size_t kMaxMessageLength = 1024;

// Messages are truncated to 1 KiB: they are names, and a huge one must not cost the program time.
std::string_view cut(const char* text) noexcept {
  return text == nullptr ? std::string_view() : std::string_view(text, strnlen(text, kMaxMessageLength));
}

/// Converts a wide text to UTF-8, truncated in the same way.
class Narrow {
 public:
  explicit Narrow(const wchar_t* text) noexcept {
    for (; text != nullptr && *text != 0 && size_ + 4 <= sizeof utf8_; ++text) {
      const auto c = static_cast<std::uint32_t>(static_cast<std::make_unsigned_t<wchar_t>>(*text));
      if (c < 0x80) {
        put(c);
      } else if (c < 0x800) {
        put(0xC0 | c >> 6);
        put(0x80 | (c & 0x3F));
      } else if (c < 0x10000) {
        put(0xE0 | c >> 12);
        put(0x80 | (c >> 6 & 0x3F));
        put(0x80 | (c & 0x3F));
      } else {
        put(0xF0 | (c >> 18 & 0x07));
        put(0x80 | (c >> 12 & 0x3F));
        put(0x80 | (c >> 6 & 0x3F));
        put(0x80 | (c & 0x3F));
      }
    }
  }
  std::string_view text() const noexcept { return {utf8_, size_}; }

 private:
  void put(std::uint32_t byte) noexcept { utf8_[size_++] = static_cast<char>(byte); }

  char utf8_[kMaxMessageLength];
  std::size_t size_ = 0;
};

Name message(Core* core, std::string_view text) noexcept {
  if (core == nullptr) return {};
  return {core->names.intern(text, NameTable::Room::kMost), core->nvtx_trigger.watches_name(text),
          core->unit_ranges.armed() && core->unit_ranges.watches_name(text)};
}
Name message(Core* core, const char* text) noexcept {
  return message(core, cut(text));
}
Name message(Core* core, const wchar_t* text) noexcept {
  return message(core, Narrow(text).text());
}

Name message(Core* core, const nvtxEventAttributes_t* attributes) noexcept {
  if (attributes == nullptr || attributes->size < NVTX_EVENT_ATTRIB_STRUCT_SIZE)
    return message(core, std::string_view());
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      return message(core, attributes->message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE:
      return message(core, attributes->message.unicode);
    case NVTX_MESSAGE_TYPE_REGISTERED:
      return name_of(attributes->message.registered);
    default:
      return message(core, std::string_view());
  }
}

Name new_domain(Core* core, std::string_view text) noexcept {
  if (core == nullptr) return {};
  return {core->names.intern(text, NameTable::Room::kMost), core->nvtx_trigger.watches_domain(text),
          core->unit_ranges.armed() && core->unit_ranges.watches_domain(text)};
}

Name default_domain(const Core* core) noexcept {
  return {NameTable::kEmpty, core != nullptr && core->nvtx_trigger.watches_default_domain(),
          core != nullptr && core->unit_ranges.watches_default_domain()};
}

// A null handle is the default domain.
Name domain_of(const Core* core, nvtxDomainHandle_t domain) noexcept {
  return domain == nullptr ? default_domain(core) : name_of(domain);
}

/// Emits the units of work given by a range or mark of this name. Without a payload it gives none.
void say_payload(const nvtxEventAttributes_t* attributes, Name message, Name domain) noexcept {
  if (!message.has_units || !domain.has_units) [[likely]]
    return;
  if (attributes == nullptr || attributes->size < NVTX_EVENT_ATTRIB_STRUCT_SIZE) return;
  const auto say = [](double units) { emit_units(units, UnitSource::kPayload); };
  switch (attributes->payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      return say(static_cast<double>(attributes->payload.ullValue));
    case NVTX_PAYLOAD_TYPE_INT64:
      return say(static_cast<double>(attributes->payload.llValue));
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      return say(attributes->payload.dValue);
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      return say(attributes->payload.uiValue);
    case NVTX_PAYLOAD_TYPE_INT32:
      return say(attributes->payload.iValue);
    case NVTX_PAYLOAD_TYPE_FLOAT:
      return say(static_cast<double>(attributes->payload.fValue));
    default:
      return;
  }
}

void publish(ThreadState& thread, RangeEdge edge, std::uint32_t node, std::uint32_t serial = 0,
             std::uint32_t owner = 0) noexcept {
  const std::uint32_t window = current_window.load(std::memory_order_acquire);
  if (window == 0) return;
  RangeRecord record;
  record.edge = edge;
  record.node = node;
  record.time = now();
  record.window = window;
  record.serial = serial;
  record.owner = owner;
  ThreadRegistry::push(thread, record);
}

/// The record of a start/end range's edge names the range by itself: it may end on another thread's path.
void publish_alone(Core& core, ThreadState& thread, RangeEdge edge, std::uint32_t name, std::uint32_t domain,
                   std::uint32_t serial, std::uint32_t owner) noexcept {
  const std::uint32_t node = core.ranges.child(0, name, domain, RangeStyle::kStartEnd);
  if (node != 0) publish(thread, edge, node, serial, owner);
}

// The name of a range in the tables: "domain:message", as Nsight Systems writes it; ":message" in the default
// domain.
std::uint32_t range_name(Core& core, std::uint32_t message, std::uint32_t domain) noexcept {
  const std::string_view first = core.names.name(domain);
  const std::string_view second = core.names.name(message);
  char text[2 * kMaxMessageLength + 1];
  char* end = std::copy(first.begin(), first.end(), text);
  *end++ = ':';
  end = std::copy(second.begin(), second.end(), end);
  return core.names.intern({text, static_cast<std::size_t>(end - text)}, NameTable::Room::kMost);
}

bool is_watched(Core& core, Name message, Name domain) noexcept {
  if (message.watched && domain.watched) return true;
  core.nvtx_trigger.passed_over(message.id, domain.id);
  return false;
}

/// The level as NVTX counts it: from 0; negative if none is open.
int level_of(const Core& core, const ThreadState& thread, std::uint32_t node, std::uint32_t domain) noexcept {
  return static_cast<int>(core.ranges.level(node, domain) + thread.unplaced.count(domain)) - 1;
}

// The window opens before the range's edge is recorded and closes after it, so that the range lies in its
// window.
int push(Core* core, Name message, Name domain) noexcept {
  ThreadState* thread = ThreadRegistry::current();
  if (core == nullptr || thread == nullptr) return NVTX_NO_PUSH_POP_TRACKING;
  if (core->nvtx_trigger.armed() && thread->watched.push(domain.id, is_watched(*core, message, domain)))
    core->nvtx_trigger.opened();
  if (iteration_watch.recording.load(std::memory_order_relaxed)) emit_mark(message.id);
  const std::uint32_t name = range_name(*core, message.id, domain.id);
  const std::uint32_t outer = nvtx_current(*thread);
  const bool inside_unplaced = thread->unplaced.count(domain.id) != 0;
  const std::uint32_t pushed =
      inside_unplaced ? outer : core->ranges.child(outer, name, domain.id, RangeStyle::kPushPop);
  if (pushed == outer) {
    thread->unplaced.add(domain.id);
  } else {
    thread->range = pushed;
    publish(*thread, RangeEdge::kPush, pushed);
  }
  return level_of(*core, *thread, pushed, domain.id);
}

int pop_range(Core* core, ThreadState* thread, std::uint32_t domain) noexcept {
  const std::uint32_t node = nvtx_current(*thread);
  const int level = level_of(*core, *thread, node, domain);
  if (level < 0 || thread->unplaced.take(domain)) return level;
  std::uint32_t name = 0;
  const std::uint32_t rest = core->ranges.without(node, name, domain, RangeStyle::kPushPop, true);
  // The record names the range that ends: usually the innermost one, else its name under the rest of the
  // path.
  const RangeTree::Node innermost = core->ranges.node(node);
  const bool is_innermost = innermost.domain == domain && innermost.style == RangeStyle::kPushPop;
  publish(*thread, RangeEdge::kPop,
          is_innermost ? node : core->ranges.child(0, name, domain, RangeStyle::kPushPop));
  thread->range = rest;
  return level;
}

int pop(std::uint32_t domain) noexcept {
  Core* core = Core::get_if_any();
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (core == nullptr || thread == nullptr) return NVTX_NO_PUSH_POP_TRACKING;
  const int level = pop_range(core, thread, domain);
  if (core->nvtx_trigger.armed() && thread->watched.pop(domain)) core->nvtx_trigger.closed();
  return level;
}

nvtxRangeId_t start(Core* core, Name message, Name domain) noexcept {
  ThreadState* thread = ThreadRegistry::current();
  if (core == nullptr || thread == nullptr) return 0;
  const std::uint32_t name = range_name(*core, message.id, domain.id);
  const std::uint32_t outer = nvtx_current(*thread);
  std::uint32_t serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  while (serial == 0 || serial == kEnding) serial = next_serial.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t slot = take_place(next_slot.fetch_add(1, std::memory_order_relaxed) % kMaxOpen);
  if (slot == Places::kNone) {
    lost_ranges.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  OpenRange& open = open_ranges[slot];
  const bool watched = core->nvtx_trigger.armed() && is_watched(*core, message, domain);
  open.watched.store(watched, std::memory_order_relaxed);
  open.name = name;
  open.domain = domain.id;
  const std::uint32_t started = core->ranges.child(outer, name, domain.id, RangeStyle::kStartEnd);
  open.on_path = started != outer;
  open.thread.store(thread->index, std::memory_order_relaxed);
  open.state = thread;
  open.serial.store(serial, std::memory_order_release);
  if (watched) core->nvtx_trigger.opened();
  thread->range = started;
  publish_alone(*core, *thread, RangeEdge::kStart, name, domain.id, serial, thread->index);
  return static_cast<nvtxRangeId_t>(serial) << kSlotBits | slot;
}

void end_range(Core* core, ThreadState* thread, OpenRange& open, std::uint32_t serial) noexcept {
  const std::uint32_t owner_index = open.thread.load(std::memory_order_relaxed);
  publish_alone(*core, *thread, RangeEdge::kEnd, open.name, open.domain, serial, owner_index);
  if (!open.on_path) {
    free_place(open);
    return;
  }
  if (owner_index == thread->index) {
    std::uint32_t name = open.name;
    thread->range =
        core->ranges.without(nvtx_current(*thread), name, open.domain, RangeStyle::kStartEnd, false);
    free_place(open);
    return;
  }
  // It lies on another thread's path, which only that thread may change. If that thread has exited, nobody
  // needs the path any more. If it exits just now, the slot is freed when the slots run out.
  if (!open.state->belongs_to_live(owner_index)) {
    free_place(open);
    return;
  }
  // Counted first, because the owner may find it as soon as it is marked.
  open.state->ended_ranges.fetch_add(1, std::memory_order_relaxed);
  ended_by_others.fetch_add(1, std::memory_order_relaxed);
  open.ended.store(true, std::memory_order_release);
}

void end(nvtxRangeId_t id) noexcept {
  Core* core = Core::get_if_any();
  ThreadState* thread = ThreadRegistry::current();
  if (id == 0 || core == nullptr || thread == nullptr) return;
  OpenRange& open = open_ranges[id % kMaxOpen];
  const auto serial = static_cast<std::uint32_t>(id >> kSlotBits);
  // A program may end a range twice.
  std::uint32_t current = serial;
  if (serial == 0 || serial == kEnding ||
      !open.serial.compare_exchange_strong(current, kEnding, std::memory_order_acq_rel))
    return;
  // Read before the slot is free for another range.
  const bool watched = open.watched.exchange(false, std::memory_order_acq_rel);
  end_range(core, thread, open, serial);
  if (watched) core->nvtx_trigger.closed();
}

// After the push, so that they belong to the window that the range may open.
int push_told(Core* core, const nvtxEventAttributes_t* attributes, Name domain) noexcept {
  const Name name = message(core, attributes);
  const int level = push(core, name, domain);
  say_payload(attributes, name, domain);
  return level;
}
nvtxRangeId_t start_told(Core* core, const nvtxEventAttributes_t* attributes, Name domain) noexcept {
  const Name name = message(core, attributes);
  const nvtxRangeId_t id = start(core, name, domain);
  say_payload(attributes, name, domain);
  return id;
}

// The functions that the client's table points to.
template <typename Message>
int push_in_default(Message text) noexcept {
  Core* core = Core::get();
  return push(core, message(core, text), default_domain(core));
}
int NVTX_API push_ex(const nvtxEventAttributes_t* attributes) {
  Core* core = Core::get();
  return push_told(core, attributes, default_domain(core));
}
int NVTX_API push_a(const char* text) {
  return push_in_default(text);
}
int NVTX_API push_w(const wchar_t* text) {
  return push_in_default(text);
}
int NVTX_API pop_default() {
  return pop(0);
}
template <typename Message>
nvtxRangeId_t start_in_default(Message text) noexcept {
  Core* core = Core::get();
  return start(core, message(core, text), default_domain(core));
}
nvtxRangeId_t NVTX_API start_ex(const nvtxEventAttributes_t* attributes) {
  Core* core = Core::get();
  return start_told(core, attributes, default_domain(core));
}
nvtxRangeId_t NVTX_API start_a(const char* text) {
  return start_in_default(text);
}
nvtxRangeId_t NVTX_API start_w(const wchar_t* text) {
  return start_in_default(text);
}
void NVTX_API end_default(nvtxRangeId_t id) {
  end(id);
}

int NVTX_API domain_push_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  Core* core = Core::get();
  return push_told(core, attributes, domain_of(core, domain));
}
int NVTX_API domain_pop(nvtxDomainHandle_t domain) {
  return pop(name_of(domain).id);
}
nvtxRangeId_t NVTX_API domain_start_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  Core* core = Core::get();
  return start_told(core, attributes, domain_of(core, domain));
}
void NVTX_API domain_end(nvtxDomainHandle_t, nvtxRangeId_t id) {
  end(id);
}
void NVTX_API domain_mark_ex(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  Core* core = Core::get();
  say_payload(attributes, message(core, attributes), domain_of(core, domain));
}
void NVTX_API mark_ex(const nvtxEventAttributes_t* attributes) {
  domain_mark_ex(nullptr, attributes);
}
nvtxDomainHandle_t NVTX_API domain_create_a(const char* name) {
  return handle_of<nvtxDomainHandle_t>(new_domain(Core::get(), cut(name)));
}
nvtxDomainHandle_t NVTX_API domain_create_w(const wchar_t* name) {
  return handle_of<nvtxDomainHandle_t>(new_domain(Core::get(), Narrow(name).text()));
}
nvtxStringHandle_t NVTX_API register_a(nvtxDomainHandle_t, const char* text) {
  return handle_of<nvtxStringHandle_t>(message(Core::get(), text));
}
nvtxStringHandle_t NVTX_API register_w(nvtxDomainHandle_t, const wchar_t* text) {
  return handle_of<nvtxStringHandle_t>(message(Core::get(), text));
}

struct TableEntry {
  std::uint32_t id;
  NvtxFunctionPointer function;
};

template <typename Function>
NvtxFunctionPointer pointer(Function* function) noexcept {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

// Writes our functions into one of the client's tables; ids beyond its size are functions that it doesn't
// have.
template <std::size_t N>
bool fill(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module,
          const TableEntry (&entries)[N]) {
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks.GetModuleFunctionTable(module, &table, &size) == 0 || table == nullptr) return false;
  for (const TableEntry& entry : entries) {
    // Atomically: the client's other threads may call through the table at the same time (its header takes no
    // lock).
    if (entry.id < size && table[entry.id] != nullptr)
      __atomic_store_n(table[entry.id], entry.function, __ATOMIC_RELEASE);
  }
  return true;
}

}  // namespace

int nvtx_attach(const void* (*get_export_table)(std::uint32_t)) noexcept {
  if (get_export_table == nullptr) return 0;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof *callbacks ||
      callbacks->GetModuleFunctionTable == nullptr) {
    return 0;
  }
  // The client requests the functions once. Without a Core no mark would be seen, and no string registered in
  // the meantime would be known.
  const Core* made = Core::get_or_wait();
  const TableEntry core[] = {
      {NVTX_CBID_CORE_RangePushEx, pointer(&push_ex)},   {NVTX_CBID_CORE_RangePushA, pointer(&push_a)},
      {NVTX_CBID_CORE_RangePushW, pointer(&push_w)},     {NVTX_CBID_CORE_RangePop, pointer(&pop_default)},
      {NVTX_CBID_CORE_RangeStartEx, pointer(&start_ex)}, {NVTX_CBID_CORE_RangeStartA, pointer(&start_a)},
      {NVTX_CBID_CORE_RangeStartW, pointer(&start_w)},   {NVTX_CBID_CORE_RangeEnd, pointer(&end_default)},
  };
  const TableEntry core2[] = {
      {NVTX_CBID_CORE2_DomainRangePushEx, pointer(&domain_push_ex)},
      {NVTX_CBID_CORE2_DomainRangePop, pointer(&domain_pop)},
      {NVTX_CBID_CORE2_DomainRangeStartEx, pointer(&domain_start_ex)},
      {NVTX_CBID_CORE2_DomainRangeEnd, pointer(&domain_end)},
      {NVTX_CBID_CORE2_DomainCreateA, pointer(&domain_create_a)},
      {NVTX_CBID_CORE2_DomainCreateW, pointer(&domain_create_w)},
      {NVTX_CBID_CORE2_DomainRegisterStringA, pointer(&register_a)},
      {NVTX_CBID_CORE2_DomainRegisterStringW, pointer(&register_w)},
  };
  const bool filled = fill(*callbacks, NVTX_CB_MODULE_CORE, core);
  // Clients older than NVTX 2.1 have no domains.
  fill(*callbacks, NVTX_CB_MODULE_CORE2, core2);
  // Only the payloads of marks matter: if none are wanted, marks stay as cheap as they are.
  if (made != nullptr && made->unit_ranges.armed()) {
    const TableEntry mark[] = {{NVTX_CBID_CORE_MarkEx, pointer(&mark_ex)}};
    const TableEntry mark2[] = {{NVTX_CBID_CORE2_DomainMarkEx, pointer(&domain_mark_ex)}};
    fill(*callbacks, NVTX_CB_MODULE_CORE, mark);
    fill(*callbacks, NVTX_CB_MODULE_CORE2, mark2);
  }
  return filled ? 1 : 0;
}

void nvtx_forget_ended(ThreadState& thread) noexcept {
  Core* core = Core::get_if_any();
  if (core == nullptr) return;
  for (OpenRange& open : open_ranges) {
    if (!open.ended.load(std::memory_order_acquire) ||
        open.thread.load(std::memory_order_relaxed) != thread.index)
      continue;
    if (!take_ended(open)) continue;  // another thread looks at it: the next call finds it again
    std::uint32_t name = open.name;
    thread.range = core->ranges.without(thread.range, name, open.domain, RangeStyle::kStartEnd, false);
    free_place(open);
    thread.ended_ranges.fetch_sub(1, std::memory_order_relaxed);
  }
}

std::uint64_t nvtx_ranges_lost() noexcept {
  return lost_ranges.load(std::memory_order_relaxed);
}

}  // namespace inject
