// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/torch/op_inputs.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "libinject/capture/python/untrusted_memory.h"

namespace inject {

namespace {

/// c10::IValue: its value, or a pointer to it, and a tag.
constexpr std::size_t kValueSize = 16;
constexpr std::size_t kValueTag = 8;
constexpr std::uint32_t kNoneTag = 0;
/// Offset of the memory in a c10::StorageImpl, which begins with a vtable and a reference count.
constexpr std::size_t kStorageData = 16;
/// The size of a tensor's sizes, in words of 8 bytes: their number, room for five, and for as many strides.
constexpr std::size_t kSizesWords = 11;

template <typename T>
T torch_value(const void* object, std::size_t offset) noexcept {
  T value{};
  std::memcpy(static_cast<void*>(&value), static_cast<const char*>(object) + offset, sizeof value);
  return value;
}
const void* torch_pointer(const void* object, std::size_t offset) noexcept {
  return torch_value<const void*>(object, offset);
}

/// The only offset between `begin` and `end` at which all tensors have what is searched for.
template <typename Has>
std::optional<std::size_t> only_offset(std::size_t begin, std::size_t end, std::size_t step,
                                       Has has) noexcept {
  std::optional<std::size_t> found;
  for (std::size_t offset = begin; offset <= end; offset += step) {
    if (!has(offset)) continue;
    if (found) return {};
    found = offset;
  }
  return found;
}

/// A host tensor used in the test.
class TestTensor {
 public:
  static constexpr std::size_t kMost = 5;
  static constexpr std::int32_t kHost = 0;

  TestTensor(const RecordFunctionApi& torch, std::initializer_list<std::int64_t> sizes, std::uint16_t type,
             void* data) noexcept
      : torch_(torch), type_(type), data_(data) {
    std::array<std::int64_t, kMost> strides{};
    for (const std::int64_t size : sizes) sizes_[dimensions_++] = size;
    for (std::size_t i = dimensions_; i-- > 0; elements_ *= sizes_[i]) strides[i] = elements_;
    if (torch_.tensor_from_blob(data, static_cast<std::int64_t>(dimensions_), sizes_.data(), strides.data(),
                                0, type, kHost, 0, &handle_) != 0)
      handle_ = nullptr;
    constexpr std::size_t kLookedAt = 320;
    const void* object = handle_ == nullptr ? nullptr : torch_pointer(handle_, 0);
    if (UntrustedMemory().holds(object, kLookedAt)) object_ = object;
  }
  ~TestTensor() {
    if (handle_ != nullptr) torch_.delete_tensor(handle_);
  }
  TestTensor(const TestTensor&) = delete;
  TestTensor& operator=(const TestTensor&) = delete;

  void* handle() const noexcept { return handle_; }
  /// The TensorImpl; null if there is none that can be read.
  const void* object() const noexcept { return object_; }
  bool has_sizes(std::size_t offset) const noexcept {
    if (torch_value<std::uint64_t>(object_, offset) != dimensions_) return false;
    for (std::size_t i = 0; i < dimensions_; ++i)
      if (torch_value<std::int64_t>(object_, offset + 8 * (i + 1)) != sizes_[i]) return false;
    return true;
  }
  bool has_elements(std::size_t offset) const noexcept {
    return torch_value<std::int64_t>(object_, offset) == elements_;
  }
  bool has_type(std::size_t offset) const noexcept {
    return torch_value<std::uint16_t>(object_, offset) == type_;
  }
  bool has_storage(std::size_t offset) const noexcept {
    const void* storage = torch_pointer(object_, offset);
    return UntrustedMemory().holds(storage, kStorageData + sizeof data_) &&
           reinterpret_cast<std::uintptr_t>(storage) % 8 == 0 &&
           torch_pointer(storage, kStorageData) == data_;
  }

 private:
  const RecordFunctionApi& torch_;
  std::array<std::int64_t, kMost> sizes_{};
  std::size_t dimensions_ = 0;
  std::int64_t elements_ = 1;
  std::uint16_t type_;
  void* data_;
  void* handle_ = nullptr;
  const void* object_ = nullptr;
};

/// Finds the layout of a TensorImpl. The tensors differ in everything searched for.
bool find_tensor_layout(std::span<const TestTensor* const> tensors, InputLayout& layout) noexcept {
  const auto all = [&](auto has) {
    return [&tensors, has](std::size_t offset) {
      return std::all_of(tensors.begin(), tensors.end(),
                         [&](const TestTensor* tensor) { return (tensor->*has)(offset); });
    };
  };
  const bool made = std::all_of(tensors.begin(), tensors.end(),
                                [](const TestTensor* tensor) { return tensor->object() != nullptr; });
  if (!made) return false;
  const auto sizes = only_offset(16, 160, 8, all(&TestTensor::has_sizes));
  if (!sizes) return false;
  const auto storage = only_offset(8, *sizes - 8, 8, all(&TestTensor::has_storage));
  const std::size_t behind = *sizes + kSizesWords * 8;
  const auto elements = only_offset(behind, behind + 24, 8, all(&TestTensor::has_elements));
  if (!storage || !elements) return false;
  const auto type = only_offset(*elements + 8, *elements + 32, 2, all(&TestTensor::has_type));
  if (!type) return false;
  layout.storage = *storage;
  layout.sizes = *sizes;
  layout.elements = *elements;
  layout.type = *type;
  return true;
}

/// The operator used in the test, as seen by our callback.
struct InputTest {
  const RecordFunctionApi* torch = nullptr;
  std::size_t sequence = 0;
  std::array<const void*, 2> tensors{};  ///< its inputs
  unsigned calls = 0;
  std::optional<std::size_t> inputs;
  std::uint32_t tag = 0;
};
InputTest input_test;
/// The thread that runs the test, 0 for none: the callback is called for other threads' operators as well.
std::atomic<pthread_t> testing_thread{0};

/// copy_(Tensor self, Tensor src, bool non_blocking)
NoContext on_tested_operator(const void* function) noexcept {
  constexpr std::size_t kCopyInputs = 3;
  if (testing_thread.load(std::memory_order_relaxed) != pthread_self()) return {};
  InputTest* const test = &input_test;
  const char* name = test->torch->name(function);
  if (name == nullptr || std::strcmp(name, "aten::copy_") != 0) return {};
  ++test->calls;
  if (test->torch->num_inputs(function) != kCopyInputs) return {};
  test->inputs = only_offset(test->sequence + 8, test->sequence + 64, 8, [&](std::size_t offset) {
    const void* values = torch_pointer(function, offset);
    if (torch_value<std::size_t>(function, offset + 8) != kCopyInputs ||
        reinterpret_cast<std::uintptr_t>(values) % 8 != 0 ||
        !UntrustedMemory().holds(values, kCopyInputs * kValueSize))
      return false;
    const auto tag = [&](std::size_t i) {
      return torch_value<std::uint32_t>(values, i * kValueSize + kValueTag);
    };
    test->tag = tag(0);
    return torch_pointer(values, 0) == test->tensors[0] &&
           torch_pointer(values, kValueSize) == test->tensors[1] && tag(0) == tag(1) && tag(0) != tag(2) &&
           tag(0) != kNoneTag;
  });
  return {};
}
void on_tested_end(const void* /*function*/, void* /*context*/) noexcept {}

/// Finds the layout from an operator that takes both tensors.
bool find_input_layout(const RecordFunctionApi& torch, std::size_t sequence, const TestTensor& to,
                       const TestTensor& from, InputLayout& layout) {
  input_test = {};
  input_test.torch = &torch;
  input_test.sequence = sequence;
  input_test.tensors = {to.object(), from.object()};
  testing_thread.store(pthread_self(), std::memory_order_relaxed);
  const bool copied = torch.copy_tensor(to.handle(), from.handle(), 0) == 0;
  testing_thread.store(0, std::memory_order_relaxed);
  if (!copied || input_test.calls != 1 || !input_test.inputs) return false;
  layout.inputs = *input_test.inputs;
  layout.tensor_tag = input_test.tag;
  return true;
}

/// Runs the test with the callback registered.
std::optional<InputLayout> test_inputs(const RecordFunctionApi& torch, std::size_t sequence) {
  // c10::ScalarType
  constexpr std::uint16_t kInt64 = 4;
  constexpr std::uint16_t kHalf = 5;
  constexpr std::uint16_t kFloat = 6;
  constexpr std::uint16_t kDouble = 7;
  constexpr std::uint16_t kBfloat16 = 15;
  constexpr std::size_t kMostBytes = 2048;
  alignas(64) static std::array<std::array<std::byte, kMostBytes>, 5> data{};
  const TestTensor matrix(torch, {3, 5}, kFloat, data[0].data());
  const TestTensor transposed(torch, {3, 5}, kHalf, data[1].data());
  const TestTensor four(torch, {2, 7, 3, 5}, kDouble, data[2].data());
  const TestTensor five(torch, {2, 3, 1, 4, 5}, kBfloat16, data[3].data());
  const TestTensor line(torch, {19}, kInt64, data[4].data());
  const std::array<const TestTensor*, 5> tensors{&matrix, &transposed, &four, &five, &line};
  InputLayout layout;
  if (!find_tensor_layout(tensors, layout)) return {};
  if (!find_input_layout(torch, sequence, matrix, transposed, layout)) return {};
  InputLayout again;
  if (!find_input_layout(torch, sequence, transposed, matrix, again)) return {};
  if (again.inputs != layout.inputs || again.tensor_tag != layout.tensor_tag) return {};
  return layout;
}

OperatorInput torch_input(const InputLayout& layout, const void* value) noexcept {
  constexpr std::int64_t kMostSize = 0xFFFF'FFFF;
  OperatorInput input;
  const auto tag = torch_value<std::uint32_t>(value, kValueTag);
  if (tag == kNoneTag) input.kind = OperatorInput::Kind::kNone;
  if (tag != layout.tensor_tag) return input;
  const void* tensor = torch_pointer(value, 0);
  if (tensor == nullptr) return input;
  // A tensor without memory, such as sparse, undefined and meta tensors and wrappers of others, has other
  // sizes than these, or is not what is computed with.
  const void* storage = torch_pointer(tensor, layout.storage);
  if (storage == nullptr || torch_pointer(storage, kStorageData) == nullptr) return input;
  const auto dimensions = torch_value<std::uint64_t>(tensor, layout.sizes);
  if (dimensions == 0 || dimensions > OperatorInput::kMostDimensions) return input;
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const auto size = torch_value<std::int64_t>(tensor, layout.sizes + 8 * (i + 1));
    if (size <= 0 || size > kMostSize || __builtin_mul_overflow(elements, size, &elements)) return input;
    input.sizes[i] = static_cast<std::uint32_t>(size);
  }
  // Differs if sizes are symbols, or lists.
  if (torch_value<std::int64_t>(tensor, layout.elements) != elements) return input;
  input.kind = OperatorInput::Kind::kTensor;
  input.type = data_type_of_torch(torch_value<std::uint16_t>(tensor, layout.type));
  input.dimensions = static_cast<std::uint8_t>(dimensions);
  return input;
}

}  // namespace

std::optional<InputLayout> find_inputs(const RecordFunctionApi& torch, std::size_t sequence) noexcept {
  if (!torch.has_tensors() || !UntrustedMemory().works()) return {};
  RecordCallback callback;
  callback.start = &on_tested_operator;
  callback.end = &on_tested_end;
  callback.scopes[static_cast<std::size_t>(RecordScope::kFunction)] = true;
  callback.needs_inputs = true;
  try {
    const std::uint64_t handle = torch.add_global_callback(callback);
    const std::optional<InputLayout> layout = test_inputs(torch, sequence);
    torch.remove_callback(handle);
    return layout;
  } catch (...) {
    return {};  // out of memory
  }
}

OperatorInputs read_inputs(const RecordFunctionApi& torch, const InputLayout& layout,
                           const void* function) noexcept {
  OperatorInputs found;
  const void* values = torch_pointer(function, layout.inputs);
  const auto given = torch_value<std::size_t>(function, layout.inputs + 8);
  // Its inputs may be preceded by what an interpreter has put on its stack for other operators.
  const std::size_t count = torch.num_inputs(function);
  if (values == nullptr || count == 0 || count > given) return found;
  found.count = count;
  const char* first = static_cast<const char*>(values) + (given - count) * kValueSize;
  for (std::size_t i = 0; i < std::min(count, found.first.size()); ++i)
    found.first[i] = torch_input(layout, first + i * kValueSize);
  return found;
}

}  // namespace inject
