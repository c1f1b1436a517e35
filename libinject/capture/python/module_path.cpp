// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/module_path.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/base/caller_state.h"
#include "libinject/capture/python/doubtful_memory.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/python_text.h"

namespace inject {

namespace {

constexpr std::size_t kMaxFile = 512;
constexpr std::string_view kModuleFile = "torch/nn/modules/module.py";
constexpr std::string_view kModuleCall = "_call_impl";
constexpr int kMaxLevels = 4;
constexpr std::size_t kMaxModules = 1024;
constexpr std::int64_t kMaxEntries = 1 << 16;

/// PyDictKeysObject (pycore_dict.h; Objects/dict-common.h in 3.10).
struct KeysLayout {
  PythonOffset count;      // dk_nentries
  PythonOffset indices;    // dk_indices
  PythonOffset kind;       // dk_kind; none in 3.10
  PythonOffset log_bytes;  // dk_log2_index_bytes; 3.10 has dk_size instead
};
constexpr KeysLayout kKeys{24, 32, 10, 9};
constexpr KeysLayout kKeys310{32, 40, kNoMember, 8};

/// A dictionary's entries, in the order in which they were made.
class Entries {
 public:
  Entries(const PythonInterpreter& python, const DoubtfulMemory& memory, const void* dict) noexcept {
    const void* type = memory.pointer(dict, python_object::kType);
    if ((memory.read<std::uint64_t>(type, python_object::kTypeFlags) & python_object::kIsDict) == 0) return;
    const bool has_frame_objects = python.layout->has_frame_objects();
    const KeysLayout& layout = has_frame_objects ? kKeys310 : kKeys;
    const void* keys = memory.pointer(dict, python_object::kDictKeys);
    const auto count = memory.read<std::int64_t>(keys, layout.count);
    if (count <= 0 || count > kMaxEntries) return;
    std::uint64_t index_bytes = 0;
    if (has_frame_objects) {
      const auto size = memory.read<std::uint64_t>(keys, layout.log_bytes);
      const std::uint64_t each = size <= 0xFF ? 1 : size <= 0xFFFF ? 2 : 4;
      index_bytes = size * each;
    } else {
      const auto bits = memory.read<std::uint8_t>(keys, layout.log_bytes);
      index_bytes = bits < 32 ? std::uint64_t{1} << bits : 0;
      // DICT_KEYS_GENERAL: entries have the key's hash before it.
      hash_ = memory.read<std::uint8_t>(keys, layout.kind) == 0;
    }
    if (index_bytes == 0 || index_bytes > kMaxEntries * 4) return;
    entries_ = static_cast<const char*>(keys) + layout.indices + index_bytes;
    if (has_frame_objects) hash_ = true;
    // A split table: the values are apart. From 3.13 on their number and the like come before them.
    values_ = memory.pointer(dict, python_object::kDictValues);
    if (values_ != nullptr && python.layout->minor >= 13)
      values_ = static_cast<const char*>(values_) + sizeof(void*);
    const auto all = static_cast<std::size_t>(count);
    if (!memory.holds(entries_, all * entry_size()) ||
        (values_ != nullptr && (!is_plausible(values_) || !memory.holds(values_, all * sizeof(void*)))))
      return;
    count_ = all;
  }

  std::size_t count() const noexcept { return count_; }
  const void* key(std::size_t index) const noexcept {
    return pointer_at(entries_, index * entry_size() + (hash_ ? sizeof(void*) : 0));
  }
  /// Null where the entry has been deleted.
  const void* value(std::size_t index) const noexcept {
    if (values_ != nullptr) return pointer_at(values_, index * sizeof(void*));
    return pointer_at(entries_, index * entry_size() + (hash_ ? 2 : 1) * sizeof(void*));
  }

 private:
  std::size_t entry_size() const noexcept { return (hash_ ? 3 : 2) * sizeof(void*); }

  const void* entries_ = nullptr;
  const void* values_ = nullptr;
  bool hash_ = false;
  std::size_t count_ = 0;
};

class ModuleSearch {
 public:
  explicit ModuleSearch(const PythonInterpreter& python) noexcept : python_(python) {}

  bool works() const noexcept { return memory_.works(); }

  std::size_t find(const void* parent, const void* child, char* text, std::size_t size) noexcept {
    modules_[0] = {parent, 0, nullptr, 0};
    count_ = 1;
    for (std::size_t at = 0; at < count_; ++at) {
      if (modules_[at].level == kMaxLevels) break;
      if (const void* name = look_below(at, child); name != nullptr) return copy_path(at, name, text, size);
    }
    return 0;
  }

 private:
  struct Found {
    const void* module;
    std::size_t parent;  // in modules_
    const void* name;
    int level;
  };

  const void* instance_dict(const void* object) const noexcept {
    constexpr std::uint64_t kManagedDict = 1u << 4;  // Py_TPFLAGS_MANAGED_DICT
    const void* type = memory_.pointer(object, python_object::kType);
    const auto flags = memory_.read<std::uint64_t>(type, python_object::kTypeFlags);
    const auto* bytes = static_cast<const char*>(object);
    const void* dict = nullptr;
    if (python_.layout->minor >= 11 && (flags & kManagedDict) != 0) {
      // pycore_object.h. In 3.12 a value with the lowest bit set is that of an object without a dictionary.
      dict = memory_.pointer(bytes - 3 * sizeof(void*), 0);
    } else {
      const auto offset = memory_.read<std::int64_t>(type, python_object::kTypeDictOffset);
      if (offset > 0 && offset < kMaxEntries && offset % 8 == 0) dict = memory_.pointer(bytes + offset, 0);
    }
    return is_plausible(dict) ? dict : nullptr;
  }

  bool is_text(const void* object, std::string_view text) const noexcept {
    constexpr unsigned kCompactAscii = 0x60;  // state.compact and state.ascii
    if (!memory_.has_type(object, python_.text_type)) return false;
    const auto length = memory_.read<std::int64_t>(object, python_object::kTextLength);
    const auto state = memory_.read<std::uint32_t>(object, python_object::kTextState);
    if (length != static_cast<std::int64_t>(text.size()) || (state & kCompactAscii) != kCompactAscii)
      return false;
    const char* data = static_cast<const char*>(object) + python_.layout->ascii_size;
    return memory_.holds(data, text.size()) && std::string_view(data, text.size()) == text;
  }

  std::optional<Entries> children_of(const void* module) const noexcept {
    const void* dict = instance_dict(module);
    if (dict == nullptr) return {};
    const Entries attributes(python_, memory_, dict);
    for (std::size_t i = 0; i < attributes.count(); ++i) {
      if (!is_text(attributes.key(i), "_modules")) continue;
      const void* modules = attributes.value(i);
      if (is_plausible(modules)) return Entries(python_, memory_, modules);
    }
    return {};
  }

  /// The name of `child` among the children of a module; null if it is none. These are looked at later then.
  const void* look_below(std::size_t at, const void* child) noexcept {
    const std::optional<Entries> children = children_of(modules_[at].module);
    if (!children) return nullptr;
    for (std::size_t i = 0; i < children->count(); ++i) {
      if (children->value(i) == child) return children->key(i);
    }
    const int level = modules_[at].level + 1;
    for (std::size_t i = 0; i < children->count() && count_ < kMaxModules; ++i) {
      const void* module = children->value(i);
      // A child may be None, which has no dictionary.
      if (is_plausible(module)) modules_[count_++] = {module, at, children->key(i), level};
    }
    return nullptr;
  }

  std::size_t copy_path(std::size_t at, const void* last, char* text, std::size_t size) const noexcept {
    std::array<const void*, kMaxLevels> names{};
    std::size_t count = 0;
    names[count++] = last;
    for (; at != 0; at = modules_[at].parent) names[count++] = modules_[at].name;
    BoundedText out(text, size);
    for (std::size_t i = count; i-- > 0;) {
      const void* name = names[i];
      if (!memory_.has_type(name, python_.text_type)) return 0;
      add_text(python_, out, name);
      if (i != 0 && !out.add('.')) break;
    }
    return out.end(size);
  }

  const PythonInterpreter& python_;
  DoubtfulMemory memory_;
  std::size_t count_ = 0;
  std::array<Found, kMaxModules> modules_;
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
  const PythonInterpreter* python = readable_python();
  if (python == nullptr || !is_plausible(parent) || !is_plausible(child)) return 0;
  ModuleSearch search(*python);
  return search.works() ? search.find(parent, child, text, size) : 0;
}

}  // namespace inject
