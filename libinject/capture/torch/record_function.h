// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch's interface for observers (ATen/record_function.h), C++ without a stability guarantee. We use
//
//   - at::addGlobalCallback(RecordFunctionCallback), which takes a struct of 40 bytes by value: two
//     functions, the share of calls that are sampled, a flag for each of ten scopes, three for what is kept
//     for the callback. Since 1.12 (StepCallbacks) it may be called at any time: a mutex guards the list, and
//     each thread takes over a new version of it at its next function.
//   - at::RecordFunction::name(), for the object that a callback is given a reference to.
//   - at::RecordFunction's constructor, before() and destructor, to test that our callbacks are called in the
//     scope that was meant, and in no other. A profiler shows the test as functions named "libinject".
//   - where the object has its sequence number, which the test finds (find_sequence()).
//   - c10::GradMode::is_enabled(), whether the thread's operators get a backward pass.
//
// They are the same in the headers of 1.13, 2.1, 2.6, 2.11, 2.13 and 2.15, and passed the test with the
// libraries of 1.13, 2.1, 2.11 and 2.15. Another version, one that lacks some of these functions, and one
// that fails the test are left alone.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace inject {

/// std::unique_ptr<at::ObserverContext>: returned through a hidden pointer, because it has a destructor.
/// Always null: PyTorch would delete what it points to.
struct NoContext {
  void* context = nullptr;
  NoContext() = default;
  NoContext(const NoContext&) = delete;
  NoContext& operator=(const NoContext&) = delete;
  ~NoContext() {}  // NOLINT(modernize-use-equals-default): not trivial, on purpose
};

/// at::RecordScope.
enum class RecordScope : std::uint8_t { kFunction = 0, kBackwardFunction = 1, kUser = 7, kCount = 10 };

/// at::RecordFunctionCallback, followed by zeros for a version that has more members. A function that is in
/// progress when the callback is removed still calls its end.
struct RecordCallback {
  NoContext (*start)(const void* function) = nullptr;
  void (*end)(const void* function, void* context) = nullptr;
  double sampling_probability = 1;
  std::array<bool, static_cast<std::size_t>(RecordScope::kCount)> scopes{};
  bool needs_inputs = false;
  bool needs_outputs = false;
  bool needs_ids = false;
  std::array<std::byte, 27> more{};
};
static_assert(offsetof(RecordCallback, needs_ids) == 36 && sizeof(RecordCallback) == 64);

/// The functions of libtorch_cpu.so.
struct RecordFunctionApi {
  /// Stands for c10::FunctionSchema, of which none is ever created here.
  struct Schema;
  /// at::RecordFunction::FunctionDescriptor.
  using Descriptor = std::variant<std::string_view, std::reference_wrapper<const Schema>>;

  std::uint64_t (*add_global_callback)(RecordCallback) = nullptr;
  void (*remove_callback)(std::uint64_t) = nullptr;
  const char* (*name)(const void* function) = nullptr;
  void (*construct)(void* function, RecordScope) = nullptr;
  void (*destroy)(void* function) = nullptr;
  void (*before)(void* function, const char* name, std::int64_t sequence) = nullptr;            // 1.x
  void (*before_descriptor)(void* function, Descriptor name, std::int64_t sequence) = nullptr;  // 2.x
  void* step_callbacks = nullptr;         // exists in 1.12 or later
  bool (*gradients_enabled)() = nullptr;  // of libc10.so, on which that library depends; may be missing

  // For the test of how an operator's inputs are read (op_inputs.h); missing in PyTorch 1:
  std::size_t (*num_inputs)(const void* function) = nullptr;
  std::int32_t (*tensor_from_blob)(void* data, std::int64_t dimensions, const std::int64_t* sizes,
                                   const std::int64_t* strides, std::int64_t offset, std::int32_t type,
                                   std::int32_t device_type, std::int32_t device, void** tensor) = nullptr;
  std::int32_t (*delete_tensor)(void* tensor) = nullptr;
  std::int32_t (*copy_tensor)(void* to, void* from, std::int32_t non_blocking) = nullptr;

  bool complete() const {
    return add_global_callback != nullptr && remove_callback != nullptr && name != nullptr &&
           construct != nullptr && destroy != nullptr && step_callbacks != nullptr &&
           (before != nullptr || before_descriptor != nullptr);
  }
  bool has_tensors() const {
    return num_inputs != nullptr && tensor_from_blob != nullptr && delete_tensor != nullptr &&
           copy_tensor != nullptr;
  }
};

/// PyTorch, found among the loaded objects.
struct LoadedTorch {
  RecordFunctionApi api;
  std::string library;
  std::pair<unsigned, unsigned> version;  ///< zeros if unknown
  void* held = nullptr;                   ///< from dlopen(): keeps it loaded until closed

  bool is_known_version() const { return version >= kOldest && version <= kNewest; }
  static constexpr std::pair<unsigned, unsigned> kOldest{1, 12};
  static constexpr std::pair<unsigned, unsigned> kNewest{2, 15};
};

/// Looks for PyTorch among the objects loaded since `adds_seen`, which is updated. Waits for a thread that is
/// loading it. Empty if it is not there, or has been unloaded in the meantime. May throw std::bad_alloc.
std::optional<LoadedTorch> find_torch(unsigned long long& adds_seen);

/// How often a callback was called in a test.
struct CallbackTest {
  std::atomic<unsigned> starts{0};
  std::atomic<unsigned> ends{0};
  /// What callbacks check first: true if the function is the test's, which is then counted in `count`.
  static bool counts(const void* function, std::atomic<unsigned>& count) noexcept {
    if (function != tested.load(std::memory_order_relaxed)) return false;
    count.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  static std::atomic<const void*> tested;
};

/// True if the callback is called this often for a function of this scope. With the loader held off
/// (DynamicLoaderGuard).
bool comes(const RecordFunctionApi& api, CallbackTest& test, RecordScope scope, unsigned times);

/// The offset of the sequence number in a RecordFunction, in bytes; empty if it is unknown.
std::optional<std::size_t> find_sequence(const RecordFunctionApi& api);

}  // namespace inject
