// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/torch/op_listener.h"

#include <cstring>

#include "libinject/base/caller_state.h"
#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/log.h"
#include "libinject/capture/python/code_context.h"
#include "libinject/capture/torch/op_inputs.h"
#include "libinject/record/core.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

/// Written before `told`, by the thread that has found PyTorch.
RecordFunctionApi known_torch;
std::size_t sequence_offset = 0;
std::atomic<bool> told{false};
std::atomic<bool> listening{false};
/// Incremented each time that listening starts.
std::atomic<std::uint32_t> listening_number{0};
/// Written before `inputs_told`, by our own thread.
InputLayout input_layout;
std::atomic<bool> inputs_told{false};
CallbackTest forward_test;
CallbackTest backward_test;
// Handles of the registered callbacks.
std::uint64_t forward_handle = 0;
std::uint64_t backward_handle = 0;

std::int64_t sequence_of(const void* function) noexcept {
  std::int64_t sequence = 0;
  std::memcpy(&sequence, static_cast<const char*>(function) + sequence_offset, sizeof sequence);
  return sequence;
}

/// Records what the operator computes, if its inputs determine that: `op` then gets a number, or
/// ShapeTable::kOther if these inputs don't.
void note_work(const void* function, OpenOperators& operators, OpenOperator& op, Core& core) noexcept {
  constexpr std::size_t kMaxName = 128;
  const char* name = known_torch.name(function);
  if (name == nullptr) return;
  const OperatorFormula* formula = operator_formula({name, ::strnlen(name, kMaxName)});
  if (formula == nullptr) return;
  op.call = operators.next_call();
  op.shape = ShapeTable::kOther;
  const OperatorInputs inputs = read_inputs(known_torch, input_layout, function);
  if (inputs.count == 0 || inputs.count > formula->most_inputs) return;
  const OperatorShape shape = operator_work(*formula, {inputs.first.data(), inputs.count});
  if (shape.flops != 0) op.shape = core.shapes.intern(shape);
}

/// The innermost node of the backward pass in which the thread is, if that has a forward pass; else null.
const OpenOperator* innermost_backward(OpenOperators& operators) noexcept {
  for (std::uint32_t level = operators.depth(); level-- > 0;) {
    const OpenOperator& op = operators.at(level);
    if (op.is_backward) return op.sequence >= 0 ? &op : nullptr;
  }
  return nullptr;
}

/// The context of its forward pass.
CodeContext forward_of(const OpenOperator& backward, const CodePlaces& places) noexcept {
  CodeContext unknown;
  unknown.module_unknown = true;
  return places.forward(static_cast<std::uint64_t>(backward.sequence)).value_or(unknown);
}

/// In the backward pass, work done without Python belongs to the place of the forward pass: it may have its
/// own backward pass. The same holds for a function that recomputes a part of the forward pass, if it calls
/// no module itself: it belongs to the module in which it was called.
void note_forward(ThreadState& thread, PythonFrame frame, const OpenOperator& op,
                  CodePlaces& places) noexcept {
  CodeContext context = op.context;
  if (const OpenOperator* backward = innermost_backward(thread.operators); backward != nullptr) {
    const CodeContext forward = forward_of(*backward, places);
    if (backward->frame == frame.frame) {
      context = forward;
    } else if (context.module == 0 && !context.module_unknown) {
      context.module = forward.module;
      context.object = forward.object;
      context.module_unknown = forward.module_unknown;
    }
  }
  places.note_forward(static_cast<std::uint64_t>(op.sequence), thread.index, context);
}

// The thread is in a call from Python into C, or not in Python at all: its frames do not change.
void begin(const void* function, bool is_backward) noexcept {
  if (!listening.load(std::memory_order_acquire) || ThreadRegistry::this_thread_is_ignored()) return;
  const CallerState caller;
  ThreadState* thread = ThreadRegistry::current();
  Core* core = Core::get_if_any();
  if (thread == nullptr || core == nullptr) return;
  OpenOperator op;
  op.function = function;
  op.sequence = sequence_of(function);
  op.is_backward = is_backward;
  if (known_torch.gradients_enabled != nullptr) op.has_gradients = known_torch.gradients_enabled();
  const PythonFrame frame = stack_frame();
  op.frame = frame.frame;
  if (!is_backward && op.sequence >= 0) {
    op.context = thread_context(*thread, frame, core->places);
    op.has_context = true;
    note_forward(*thread, frame, op, core->places);
  }
  if (!is_backward && inputs_told.load(std::memory_order_acquire))
    note_work(function, thread->operators, op, *core);
  thread->operators.begin(op, listening_number.load(std::memory_order_relaxed));
}

void end(const void* function) noexcept {
  if (ThreadState* thread = ThreadRegistry::current_if_any(); thread != nullptr)
    thread->operators.end(function);
}

NoContext on_forward_start(const void* function) noexcept {
  if (!CallbackTest::counts(function, forward_test.starts)) begin(function, false);
  return {};
}
void on_forward_end(const void* function, void* /*context*/) noexcept {
  if (!CallbackTest::counts(function, forward_test.ends)) end(function);
}
NoContext on_backward_start(const void* function) noexcept {
  if (!CallbackTest::counts(function, backward_test.starts)) begin(function, true);
  return {};
}
void on_backward_end(const void* function, void* /*context*/) noexcept {
  if (!CallbackTest::counts(function, backward_test.ends)) end(function);
}

void add_callbacks() {
  RecordCallback forward;
  forward.start = &on_forward_start;
  forward.end = &on_forward_end;
  forward.scopes[static_cast<std::size_t>(RecordScope::kFunction)] = true;
  forward.needs_inputs = inputs_told.load(std::memory_order_acquire);
  forward_handle = known_torch.add_global_callback(forward);
  RecordCallback backward;
  backward.start = &on_backward_start;
  backward.end = &on_backward_end;
  backward.scopes[static_cast<std::size_t>(RecordScope::kBackwardFunction)] = true;
  backward_handle = known_torch.add_global_callback(backward);
}

void remove_callbacks() {
  known_torch.remove_callback(forward_handle);
  known_torch.remove_callback(backward_handle);
}

/// True if each callback is called in its scope, and in no other.
bool come() {
  return comes(known_torch, forward_test, RecordScope::kFunction, 1) &&
         comes(known_torch, forward_test, RecordScope::kBackwardFunction, 0) &&
         comes(known_torch, backward_test, RecordScope::kBackwardFunction, 1) &&
         comes(known_torch, backward_test, RecordScope::kFunction, 0) &&
         comes(known_torch, backward_test, RecordScope::kUser, 0) &&
         comes(known_torch, forward_test, RecordScope::kUser, 0);
}

}  // namespace

void prepare_operators(const RecordFunctionApi& torch) noexcept {
  known_torch = torch;
  bool as_expected = false;
  std::optional<std::size_t> sequence;
  try {
    add_callbacks();
    as_expected = come();
    sequence = find_sequence(known_torch);
    remove_callbacks();
  } catch (...) {
    Log::error_without_allocation("PyTorch's operators are not recorded: out of memory");
    return;
  }
  if (!as_expected || !sequence) {
    Log::debug(as_expected ? "PyTorch's operators are not recorded: their sequence numbers are not found"
                           : "PyTorch's operators are not recorded: its callbacks are not as expected");
    return;
  }
  sequence_offset = *sequence;
  told.store(true, std::memory_order_release);
}

void prepare_operator_inputs() noexcept {
  static bool tried = false;  // used only by our own thread
  if (tried || !operators_told() || !ThreadRegistry::this_thread_is_ignored()) return;
  tried = true;
  const std::optional<InputLayout> layout = find_inputs(known_torch, sequence_offset);
  if (layout) {
    input_layout = *layout;
    inputs_told.store(true, std::memory_order_release);
  }
  Log::debug(layout ? "PyTorch reports its operators' inputs"
                    : "PyTorch's operators are not asked for their inputs: how these are read is not known");
}

bool operators_told() noexcept {
  return told.load(std::memory_order_acquire);
}

bool listens_to_operators() noexcept {
  return listening.load(std::memory_order_acquire);
}

void listen_to_operators(bool listen) noexcept {
  if (!operators_told() || listening.load(std::memory_order_relaxed) == listen) return;
  // As in listen_to_steps(): a fork waits.
  const DynamicLoaderGuard guard;
  if (listen) listening_number.fetch_add(1, std::memory_order_relaxed);
  listening.store(listen, std::memory_order_release);
  try {
    if (listen) {
      add_callbacks();
    } else {
      remove_callbacks();
    }
  } catch (...) {
    // Out of memory: launches have no operators.
  }
}

bool operators_heard(const ThreadState& thread) noexcept {
  return !listens_to_operators() ||
         thread.operators.any_begun(listening_number.load(std::memory_order_relaxed));
}

CodeContext thread_context(ThreadState& thread, PythonFrame frame, CodePlaces& places) noexcept {
  OpenOperators& operators = thread.operators;
  OpenOperator* innermost = operators.innermost();
  // Python does not advance during an operator that it has called.
  const bool of_operator = innermost != nullptr && innermost->frame == frame.frame;
  if (of_operator && innermost->has_context) return innermost->context;
  CodeContext context;
  const OpenOperator* backward = innermost_backward(operators);
  if (backward != nullptr && backward->frame != frame.frame) {
    context = code_context(frame, places, {backward->frame, forward_of(*backward, places)});
  } else {
    context = code_context(frame, places);
  }
  if (of_operator) {
    innermost->context = context;
    innermost->has_context = true;
  }
  return context;
}

void ignore_operators() noexcept {
  listening.store(false, std::memory_order_release);
}

const char* operator_name(const void* function) noexcept {
  return known_torch.name(function);
}

}  // namespace inject
