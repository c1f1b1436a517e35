// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/torch/loader_batch.h"

#include <atomic>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include "libinject/capture/python/interpreter.h"
#include "libinject/model/events.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

/// Between `__next__` and PyTorch's end of the fetch are the frames of record_function and of the operator
/// that it calls.
constexpr int kMaxCallers = 8;
constexpr int kMaxBatchDepth = 4;     // of tuples in dictionaries in lists
constexpr int kMaxBatchObjects = 64;  // maximum number examined
constexpr double kUnknownBatch = std::numeric_limits<double>::quiet_NaN();

// Py_TPFLAGS_…_SUBCLASS (Include/object.h), the same in all versions.
constexpr unsigned long kListFlag = 1ul << 25u;
constexpr unsigned long kTupleFlag = 1ul << 26u;
constexpr unsigned long kDictFlag = 1ul << 29u;

/// An owned reference, or none.
class Reference {
 public:
  Reference(const PythonCalls& python, void* object) : python_(python), object_(object) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() {
    if (object_ != nullptr) python_.release(object_);
  }
  void* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  const PythonCalls& python_;
  void* object_;
};

/// Searches for the first tensor of a batch.
class BatchSearch {
 public:
  explicit BatchSearch(const PythonCalls& python) : python_(python) {}

  std::optional<double> first_dimension(void* object, int depth = 0) {
    if (object == nullptr || depth > kMaxBatchDepth || ++objects_ > kMaxBatchObjects) return std::nullopt;
    const Reference type(python_, python_.type_of(object));
    const unsigned long flags = type ? python_.type_flags(type.get()) : 0;
    if ((flags & (kListFlag | kTupleFlag)) != 0) return in_sequence(object, depth);
    if ((flags & kDictFlag) != 0) {
      const Reference values(python_, python_.dict_values(object));
      return values ? in_sequence(values.get(), depth) : nothing();
    }
    // A tensor, or an array of NumPy: one without dimensions is not a batch.
    if (const Reference shape(python_, attribute(object, "shape")); shape) return size_in(shape.get());
    // A dictionary in a wrapper, such as transformers.BatchEncoding (collections.UserDict).
    const Reference data(python_, attribute(object, "data"));
    if (!data) return std::nullopt;
    const Reference wrapped(python_, python_.type_of(data.get()));
    return wrapped && (python_.type_flags(wrapped.get()) & kDictFlag) != 0
               ? first_dimension(data.get(), depth + 1)
               : std::nullopt;
  }

  /// Null, without an error, if there is none.
  void* attribute(void* object, const char* name) {
    void* found = python_.attribute(object, name);
    if (found == nullptr) nothing();
    return found;
  }

 private:
  std::optional<double> in_sequence(void* sequence, int depth) {
    const std::ptrdiff_t size = python_.sequence_size(sequence);
    if (size < 0) return nothing();
    for (std::ptrdiff_t i = 0; i < size && objects_ < kMaxBatchObjects; ++i) {
      const Reference item(python_, python_.sequence_item(sequence, i));
      if (!item) return nothing();
      if (const auto found = first_dimension(item.get(), depth + 1)) return found;
    }
    return std::nullopt;
  }

  std::optional<double> size_in(void* shape) {
    if (python_.sequence_size(shape) < 1) return nothing();
    const Reference first(python_, python_.sequence_item(shape, 0));
    const long long size = first ? python_.as_integer(first.get()) : -1;
    return size >= 0 ? std::optional<double>(static_cast<double>(size)) : nothing();
  }

  /// Clears an error of ours. An exception that a signal handler has raised in the meantime is the program's:
  /// an interrupt is requested again.
  std::nullopt_t nothing() {
    if (python_.error_matches(*python_.keyboard_interrupt) != 0) python_.interrupt();
    python_.clear_error();
    return std::nullopt;
  }

  const PythonCalls& python_;
  int objects_ = 0;
};

bool has_code_named(const PythonCalls& python, BatchSearch& search, void* frame, std::string_view name) {
  const Reference code(python, search.attribute(frame, "f_code"));
  const Reference text(python, code ? search.attribute(code.get(), "co_name") : nullptr);
  std::ptrdiff_t size = 0;
  const char* found = text ? python.utf8(text.get(), &size) : nullptr;
  return found != nullptr && std::string_view(found, static_cast<std::size_t>(size)) == name;
}

/// Empty if the loader has returned nothing; kUnknownBatch if that, or what it returned, is unknown.
std::optional<double> returned_batch(const PythonCalls& python) {
  BatchSearch search(python);
  // Frames live as long as their callees; attributes are separate references.
  void* frame = python.current_frame();
  void* held = nullptr;
  std::optional<double> found = kUnknownBatch;
  for (int depth = 0; frame != nullptr && depth < kMaxCallers; ++depth) {
    if (has_code_named(python, search, frame, "__next__")) {
      const Reference variables(python, search.attribute(frame, "f_locals"));
      const Reference data(python, variables ? python.mapping_item(variables.get(), "data") : nullptr);
      if (variables && !data) found = std::nullopt;
      if (!data) python.clear_error();
      if (data) found = search.first_dimension(data.get()).value_or(kUnknownBatch);
      break;
    }
    void* const back = search.attribute(frame, "f_back");
    if (held != nullptr) python.release(held);
    frame = held = back;
  }
  if (held != nullptr) python.release(held);
  return found;
}

}  // namespace

void say_batch() noexcept {
  const PythonInterpreter* interpreter = found_python();
  // While iterations are not followed, it only matters that something was reported.
  if (iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone || interpreter == nullptr ||
      !interpreter->calls.can_read_batches() || interpreter->is_finalizing() != 0) {
    emit_units(kUnknownBatch, UnitSource::kLoader);
    return;
  }
  const PythonCalls& python = interpreter->calls;
  std::optional<double> samples;
  {
    const UnrecordedScope unrecorded;
    const int state = python.take_gil();
    // With an error pending, Python must not be called.
    samples = kUnknownBatch;
    if (python.error_is_set() == nullptr) {
      samples = returned_batch(python);
      python.clear_error();
    }
    python.return_gil(state);
  }
  if (samples) emit_units(*samples, UnitSource::kLoader);
}

}  // namespace inject
