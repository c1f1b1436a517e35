// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/cudnn_plans.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "libinject/base/caller_state.h"
#include "libinject/capture/hooks/cudnn_graph.h"
#include "libinject/capture/hooks/plan_table.h"
#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"

namespace inject {

namespace {

// A plan with kernels compiled for it contains them in its text: 40 to 300 kB.
constexpr std::int64_t kMaxPlanText = std::int64_t{4} << 20;

constinit PlanTable plans;

// The library's own functions: through our hooks, these calls would be recorded.
constinit SameLibraryFunction<decltype(cudnnBackendGetAttribute)> get_attribute("cudnnBackendGetAttribute");
constinit SameLibraryFunction<decltype(cudnnBackendCreateDescriptor)> create_descriptor(
    "cudnnBackendCreateDescriptor");
constinit SameLibraryFunction<decltype(cudnnBackendDestroyDescriptor)> destroy_descriptor(
    "cudnnBackendDestroyDescriptor");

/// Reads attributes of descriptors of one library.
class Reader {
 public:
  explicit Reader(void* real) noexcept
      : get_(get_attribute.get(real)),
        create_(create_descriptor.get(real)),
        destroy_(destroy_descriptor.get(real)) {}
  bool usable() const noexcept { return get_ != nullptr && create_ != nullptr && destroy_ != nullptr; }

  /// The attribute `name` of `descriptor`, a descriptor of another type; to be released by drop(). Null if it
  /// has none.
  cudnnBackendDescriptor_t take(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                cudnnBackendDescriptorType_t type) const noexcept {
    cudnnBackendDescriptor_t taken = nullptr;
    if (create_(type, &taken) != CUDNN_STATUS_SUCCESS) return nullptr;
    std::int64_t count = 0;
    if (get_(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, static_cast<void*>(&taken)) ==
            CUDNN_STATUS_SUCCESS &&
        count == 1) {
      return taken;
    }
    destroy_(taken);
    return nullptr;
  }
  void drop(cudnnBackendDescriptor_t descriptor) const noexcept {
    if (descriptor != nullptr) destroy_(descriptor);
  }

  std::uint32_t notes(cudnnBackendDescriptor_t plan) const noexcept {
    cudnnBackendDescriptor_t config =
        take(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    cudnnBackendDescriptor_t engine =
        config == nullptr ? nullptr
                          : take(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    std::uint32_t notes = 0;
    if (engine != nullptr) {
      std::array<cudnnBackendNumericalNote_t, 32> said{};
      std::int64_t count = 0;
      if (get_(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
               static_cast<std::int64_t>(said.size()), &count, said.data()) == CUDNN_STATUS_SUCCESS) {
        notes = kEngineNotesKnown;
        for (std::int64_t i = 0; i < count && i < static_cast<std::int64_t>(said.size()); ++i) {
          const auto note = static_cast<unsigned>(said[static_cast<std::size_t>(i)]);
          if (note < 31) notes |= 1u << note;
        }
      }
    }
    drop(engine);
    drop(config);
    return notes;
  }

  CallShape shape(cudnnBackendDescriptor_t plan) const noexcept {
    // Its length first: a getter that fails for lack of space changes what cudnnGetLastErrorString returns.
    std::int64_t size = 0;
    if (get_(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &size, nullptr) !=
            CUDNN_STATUS_SUCCESS ||
        size <= 0 || size > kMaxPlanText) {
      return {};
    }
    const auto bytes = static_cast<std::size_t>(size);
    const std::unique_ptr<char, decltype(&std::free)> text(static_cast<char*>(std::malloc(bytes)),
                                                           &std::free);
    if (text == nullptr) return {};
    std::int64_t count = 0;
    if (get_(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, size, &count,
             text.get()) != CUDNN_STATUS_SUCCESS ||
        count <= 0 || count > size) {
      return {};
    }
    return shape_of_plan({text.get(), static_cast<std::size_t>(count)}, notes(plan));
  }

 private:
  decltype(cudnnBackendGetAttribute)* get_;
  decltype(cudnnBackendCreateDescriptor)* create_;
  decltype(cudnnBackendDestroyDescriptor)* destroy_;
};

}  // namespace

void on_descriptor_created(const void* descriptor, cudnnBackendDescriptorType_t type) noexcept {
  if (type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plans_watched.load(std::memory_order_relaxed)) {
    plans.set(descriptor, 0);
  } else {
    plans.remove(descriptor);
  }
}

void on_descriptor_finalized(cudnnBackendDescriptor_t descriptor, void* real) noexcept {
  if (!plans_watched.load(std::memory_order_acquire) || !plans.find(descriptor).has_value()) return;
  Core* core = Core::get_if_any();
  if (core == nullptr) return;
  const CallerState state;
  const Reader reader(real);
  if (!reader.usable()) return;
  const CallShape shape = reader.shape(descriptor);
  if (shape.kind() != ShapeKind::kNone) plans.set(descriptor, core->shapes.intern(shape));
}

void on_descriptor_destroyed(const void* descriptor) noexcept {
  plans.remove(descriptor);
}

std::uint32_t shape_of_plan(const void* plan) noexcept {
  return plans.find(plan).value_or(0);
}

}  // namespace inject
