// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/module_path.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "libinject/base/caller_state.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/python_text.h"
#include "libinject/capture/python/untrusted_memory.h"

namespace inject {

namespace {

constexpr std::size_t kMaxFile = 512;
constexpr std::string_view kModuleFile = "torch/nn/modules/module.py";
constexpr std::string_view kModuleCall = "_call_impl";
constexpr std::string_view kChildren = "_modules";
constexpr int kMaxLevels = 4;
constexpr int kMaxModules = 4096;
constexpr std::uint64_t kMaxEntries = std::uint64_t{1} << 16u;
constexpr std::int64_t kMaxObject = std::int64_t{1} << 16u;

/// Where an object's attributes are if it has no dictionary for them.
enum class BareValues : unsigned char {
  kNone,    // 3.10: there always is one
  kBefore,  // _PyObject_ValuesPointer(), pycore_object.h in 3.11
  kTagged,  // PyDictOrValues, pycore_object.h in 3.12: in the dictionary's place, if the lowest bit is
            // set
  kInline,  // _PyObject_InlineValues(), pycore_object.h: in the object itself
};

/// PyDictKeysObject (pycore_dict.h; Objects/dict-common.h in 3.10) and what belongs to it. The offsets are
/// offsetof() in the headers of 3.10.13, 3.11.7, 3.12.1 and 3.13.0; those of 3.14 have been taken from the
/// source, not tested.
struct DictLayout {
  unsigned minor;
  PythonOffset count;        // dk_nentries
  PythonOffset indices;      // dk_indices
  PythonOffset values;       // PyDictValues.values (pycore_dict.h)
  PythonOffset cached_keys;  // PyHeapTypeObject.ht_cached_keys (cpython/object.h)
  BareValues bare;

  /// 3.10 has dk_size; the others have its logarithm, that of the size of dk_indices, and dk_kind.
  bool has_logarithms() const noexcept { return minor > 10; }
};
constexpr PythonOffset kKeysSize = 8;           // dk_size
constexpr PythonOffset kKeysLogSize = 8;        // dk_log2_size
constexpr PythonOffset kKeysLogIndexBytes = 9;  // dk_log2_index_bytes
constexpr PythonOffset kKeysKind = 10;          // dk_kind
constexpr std::uint8_t kGeneralKeys = 0;        // DICT_KEYS_GENERAL: their hashes are kept
constexpr std::uint8_t kSplitKeys = 2;          // DICT_KEYS_SPLIT: their values are apart
// PyDictValues, pycore_dict.h from 3.13 on.
constexpr PythonOffset kValuesCapacity = 0;
constexpr PythonOffset kValuesValid = 3;

constexpr std::array<DictLayout, 5> kDictLayouts = {{
    {.minor = 10, .count = 32, .indices = 40, .values = 0, .cached_keys = 872, .bare = BareValues::kNone},
    {.minor = 11, .count = 24, .indices = 32, .values = 0, .cached_keys = 872, .bare = BareValues::kBefore},
    {.minor = 12, .count = 24, .indices = 32, .values = 0, .cached_keys = 880, .bare = BareValues::kTagged},
    {.minor = 13, .count = 24, .indices = 32, .values = 8, .cached_keys = 880, .bare = BareValues::kInline},
    {.minor = 14, .count = 24, .indices = 32, .values = 8, .cached_keys = 880, .bare = BareValues::kInline},
}};

const DictLayout* dict_layout(unsigned minor) noexcept {
  const auto* found = std::find_if(kDictLayouts.begin(), kDictLayouts.end(),
                                   [&](const DictLayout& layout) { return layout.minor == minor; });
  return found == kDictLayouts.end() ? nullptr : found;
}

/// A dictionary's entries, in insertion order; empty if its form is not known.
class Entries {
 public:
  Entries() = default;

  static Entries of_dict(const DictLayout& layout, const UntrustedMemory& memory, const void* dict) noexcept {
    std::array<const void*, 6> words;
    static_assert(python_object::kDictValues < sizeof words);
    if (!is_plausible(dict) || !memory.copy(dict, words, sizeof words)) return {};
    const void* type = words[python_object::kType / sizeof(void*)];
    if ((memory.read<std::uint64_t>(type, python_object::kTypeFlags) & python_object::kIsDict) == 0)
      return {};
    return {layout, memory, words[python_object::kDictKeys / sizeof(void*)],
            words[python_object::kDictValues / sizeof(void*)]};
  }

  /// `values`: a PyDictValues (an array of pointers in 3.10), null if they are with the keys.
  Entries(const DictLayout& layout, const UntrustedMemory& memory, const void* keys,
          const void* values) noexcept {
    std::array<char, 40> head;
    if (!is_plausible(keys) || !memory.copy(keys, head, sizeof head)) return;
    std::uint64_t size = 0;
    std::uint64_t index_bytes = 0;
    bool is_split = values != nullptr;
    if (layout.has_logarithms()) {
      const auto log_size = read_at<std::uint8_t>(head.data(), kKeysLogSize);
      const auto log_bytes = read_at<std::uint8_t>(head.data(), kKeysLogIndexBytes);
      const auto kind = read_at<std::uint8_t>(head.data(), kKeysKind);
      if (log_size >= 32 || log_bytes < log_size || log_bytes > log_size + 3 || kind > kSplitKeys) return;
      size = std::uint64_t{1} << log_size;
      index_bytes = std::uint64_t{1} << log_bytes;
      is_split = kind == kSplitKeys;
      words_ = kind == kGeneralKeys ? 3 : 2;
    } else {
      size = read_at<std::uint64_t>(head.data(), kKeysSize);
      index_bytes = size * (size <= 0xFF ? 1 : size <= 0xFFFF ? 2 : 4);
      words_ = 3;
    }
    const auto count = read_at<std::uint64_t>(head.data(), layout.count);
    // A third of the table is always empty: USABLE_FRACTION() in Objects/dictobject.c.
    if (size > 2 * kMaxEntries || count > kMaxEntries || count > 2 * size / 3) return;
    if (is_split != (values != nullptr)) return;
    if (is_split) {
      if (!is_plausible(values)) return;
      if (layout.values != 0 && memory.read<std::uint8_t>(values, kValuesCapacity) < count) return;
      values_ = static_cast<const char*>(values) + layout.values;
    }
    entries_ = static_cast<const char*>(keys) + layout.indices + index_bytes;
    count_ = static_cast<std::size_t>(count);
  }

  /// Calls `visit(key, value)` for each, until it returns true. Returns whether it has.
  template <typename Visit>
  bool any_of(const UntrustedMemory& memory, Visit visit) const noexcept {
    constexpr std::size_t kAtOnce = 16;
    std::array<const void*, 3 * kAtOnce> entries;
    std::array<const void*, kAtOnce> values;
    for (std::size_t first = 0; first < count_; first += kAtOnce) {
      const std::size_t count = std::min(kAtOnce, count_ - first);
      const std::size_t bytes = words_ * sizeof(void*);
      if (!memory.copy(entries_ + first * bytes, entries, count * bytes)) return false;
      if (values_ != nullptr && !memory.copy(values_ + first * sizeof(void*), values, count * sizeof(void*)))
        return false;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t end = (i + 1) * words_;
        const void* value = values_ != nullptr ? values[i] : entries[end - 1];
        // Null if the entry has been deleted.
        if (is_plausible(value) && visit(entries[end - 2], value)) return true;
      }
    }
    return false;
  }

 private:
  const char* entries_ = nullptr;
  const char* values_ = nullptr;
  std::size_t words_ = 0;  // per entry: the last one is the value, the one before it the key
  std::size_t count_ = 0;
};

class ModuleSearch {
 public:
  ModuleSearch(const PythonInterpreter& python, const DictLayout& layout) noexcept
      : python_(python), layout_(layout) {}

  bool works() const noexcept { return memory_.works(); }

  /// Searches level by level, each from the top: this needs no memory for the modules in between, and finds
  /// the nearest one first.
  std::size_t find(const void* parent, const void* child, char* text, std::size_t size) noexcept {
    for (int level = 0; level < kMaxLevels && left_ > 0; ++level) {
      const int left = left_;
      if (is_below(parent, child, 0, level)) return copy_path(level, text, size);
      if (left_ == left) break;  // no module is that deep
    }
    return 0;
  }

 private:
  /// True if `child` is among the modules that are `last` levels below the children of `module`; notes their
  /// names.
  bool is_below(const void* module, const void* child, int level, int last) noexcept {
    // Those on higher levels were counted when theirs was the last.
    if (level == last && left_-- <= 0) return false;
    return children_of(module).any_of(memory_, [&](const void* name, const void* other) {
      if (level == last ? other != child : left_ <= 0 || !is_below(other, child, level + 1, last))
        return false;
      names_[static_cast<std::size_t>(level)] = name;
      return true;
    });
  }

  Entries attributes_of(const void* object) const noexcept {
    constexpr std::uint64_t kManagedDict = 1u << 4;   // Py_TPFLAGS_MANAGED_DICT
    constexpr std::uint64_t kInlineValues = 1u << 2;  // Py_TPFLAGS_INLINE_VALUES
    const void* type = memory_.pointer(object, python_object::kType);
    const auto flags = memory_.read<std::uint64_t>(type, python_object::kTypeFlags);
    const auto* bytes = static_cast<const char*>(object);
    if (layout_.bare == BareValues::kNone || (flags & kManagedDict) == 0) {
      const auto offset = memory_.read<std::int64_t>(type, python_object::kTypeDictOffset);
      if (offset <= 0 || offset > kMaxObject || offset % 8 != 0) return {};
      return Entries::of_dict(layout_, memory_, memory_.pointer(bytes + offset, 0));
    }
    // _PyObject_ManagedDictPointer(), pycore_object.h.
    const void* dict = memory_.pointer(bytes - 3 * sizeof(void*), 0);
    if (is_plausible(dict)) return Entries::of_dict(layout_, memory_, dict);
    const void* values = nullptr;
    switch (layout_.bare) {
      case BareValues::kNone:
        break;
      case BareValues::kBefore:
        if (dict == nullptr) values = memory_.pointer(bytes - 4 * sizeof(void*), 0);
        break;
      case BareValues::kTagged:
        values = static_cast<const char*>(dict) + 1;
        break;
      case BareValues::kInline: {
        const auto size = memory_.read<std::int64_t>(type, python_object::kTypeBasicSize);
        if (dict != nullptr || (flags & kInlineValues) == 0 || size <= 0 || size > kMaxObject) break;
        if (memory_.read<std::uint8_t>(bytes + size, kValuesValid) == 1) values = bytes + size;
        break;
      }
    }
    // Their names are in the type.
    if (!is_plausible(values) || (flags & python_object::kOnHeap) == 0) return {};
    return {layout_, memory_, memory_.pointer(type, layout_.cached_keys), values};
  }

  bool is_key_of_children(const void* key) const noexcept {
    const auto text = UntrustedText::of(python_, memory_, key);
    std::array<char, kChildren.size()> copy;
    return text.data != nullptr && text.length == copy.size() && text.state.is_ascii &&
           memory_.copy(text.data, copy, copy.size()) &&
           std::string_view(copy.data(), copy.size()) == kChildren;
  }

  /// The dictionary `_modules`. Its name is usually the same object in all modules.
  Entries children_of(const void* module) noexcept {
    const Entries attributes = attributes_of(module);
    const void* children = nullptr;
    if (key_ != nullptr && attributes.any_of(memory_, [&](const void* key, const void* value) {
          children = value;
          return key == key_;
        }))
      return Entries::of_dict(layout_, memory_, children);
    if (!attributes.any_of(memory_, [&](const void* key, const void* value) {
          children = value;
          if (!is_key_of_children(key)) return false;
          key_ = key;
          return true;
        }))
      return {};
    return Entries::of_dict(layout_, memory_, children);
  }

  std::size_t copy_path(int last, char* text, std::size_t size) const noexcept {
    BoundedText out(text, size);
    for (int level = 0; level <= last; ++level) {
      if (level != 0) out.add('.');
      const auto name = UntrustedText::of(python_, memory_, names_[static_cast<std::size_t>(level)]);
      if (!name.add_to(out, memory_)) return 0;
    }
    return out.end(size);
  }

  const PythonInterpreter& python_;
  const DictLayout& layout_;
  UntrustedMemory memory_;
  int left_ = kMaxModules;  // number of modules that may still be searched
  const void* key_ = nullptr;
  std::array<const void*, kMaxLevels> names_{};
};

}  // namespace

const void* type_of(const void* object) noexcept {
  return is_plausible(object) ? pointer_at(object, python_object::kType) : nullptr;
}

const void* called_module(PythonFrame frame) noexcept {
  std::array<char, kMaxFile> text;
  if (std::string_view(text.data(), copy_name(frame, text.data(), text.size())) != kModuleCall)
    return nullptr;
  const std::string_view file(text.data(), copy_file(frame, text.data(), text.size()));
  return file.ends_with(kModuleFile) ? first_argument(frame) : nullptr;
}

std::size_t copy_module_path(const void* parent, const void* child, char* text, std::size_t size) noexcept {
  const CallerState caller;
  if (size != 0) text[0] = '\0';
  const PythonInterpreter* python = readable_python();
  if (python == nullptr || !is_plausible(parent) || !is_plausible(child)) return 0;
  const DictLayout* layout = dict_layout(python->layout->minor);
  if (layout == nullptr) return 0;
  ModuleSearch search(*python, *layout);
  const std::size_t length = search.works() ? search.find(parent, child, text, size) : 0;
  if (length == 0 && size != 0) text[0] = '\0';
  return length;
}

}  // namespace inject
