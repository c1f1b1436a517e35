// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/launch_place.h"

#include <atomic>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/base/mutex.h"
#include "libinject/capture/python/code_context.h"
#include "libinject/capture/python/thread_stack.h"
#include "libinject/capture/torch/op_listener.h"
#include "libinject/record/core.h"

namespace inject {

namespace {

constexpr std::size_t kMaxOperatorName = 256;
/// Prefix of what autograd's engine calls around each node of the backward pass, and around the sums between
/// them.
constexpr std::string_view kEnginePrefix = "autograd::engine::";

constinit SampledThread sampled_thread;

/// Naming the iterations after a window and naming captures request the same thing independently.
constinit Mutex asking_mutex;
constinit LaunchNames asked_for_iterations INJECT_GUARDED_BY(asking_mutex);
constinit bool capturing INJECT_GUARDED_BY(asking_mutex) = false;
constinit std::atomic<bool> captures_by_operators{false};
constinit std::atomic<bool> captures_by_stacks{false};

void ask() INJECT_REQUIRES(asking_mutex) {
  read_stacks(asked_for_iterations.stacks || (capturing && captures_by_stacks));
  listen_to_operators(asked_for_iterations.operators || (capturing && captures_by_operators));
}

/// The thread's operators around the launch.
struct Operators {
  std::uint32_t node = 0;
  const OpenOperator* backward = nullptr;  ///< the innermost node of the backward pass, or of the engine
  std::uint32_t backward_level = 0;        ///< number of operators around it
  bool differentiates = false;             ///< in that node, operators have a backward pass of their own
  bool step_has_gradients = false;         ///< in a step: an operator that may have a backward pass
  bool all_known = true;                   ///< there was room for the whole chain
};

Operators operators_of(ThreadState& thread, CodePlaces& places) noexcept {
  Operators found;
  for (std::uint32_t level = 0; level < thread.operators.depth(); ++level) {
    const OpenOperator& op = thread.operators.at(level);
    const char* text = operator_name(op.function);
    if (text == nullptr) continue;
    const std::string_view name(text, ::strnlen(text, kMaxOperatorName));
    if (op.is_backward || (found.backward == nullptr && name.starts_with(kEnginePrefix))) {
      found.backward = &op;
      found.backward_level = level;
      found.differentiates = false;
    } else if (found.backward != nullptr && op.sequence >= 0 && op.has_gradients) {
      // The backward pass may itself be differentiated; then this tells something only of what Python calls.
      if (!found.backward->has_gradients || op.frame != found.backward->frame) found.differentiates = true;
    }
    if (!op.is_backward && op.sequence >= 0 && level >= thread.step_level) found.step_has_gradients = true;
    found.node =
        places.node({CodeNodeKind::kOperator, found.node, places.names().intern(name), NameTable::kEmpty, 0});
    if (found.node == 0) {
      found.all_known = false;
      break;
    }
  }
  return found;
}

/// Whether compiled autograd is running the backward pass: a function in Python, without nodes.
bool in_compiled_autograd(std::uint32_t stack, const CodePlaces& places) noexcept {
  constexpr std::string_view kFile = "/torch/_dynamo/compiled_autograd.py";
  while (stack != 0) {
    const CodeNode frame = places.node(stack);
    if (places.names().name(frame.detail).ends_with(kFile)) return true;
    stack = frame.parent;
  }
  return false;
}

}  // namespace

bool launches_can_be_named(LaunchNames names) noexcept {
  return (names.operators && operators_told()) || (names.stacks && has_python());
}

void name_launches(LaunchNames names) noexcept {
  sampled_thread.clear();
  const MutexLock lock(asking_mutex);
  asked_for_iterations = names;
  ask();
}

void name_captures(LaunchNames names) noexcept {
  captures_by_operators = names.operators;
  captures_by_stacks = names.stacks;
}

bool captures_are_named() noexcept {
  return captures_by_operators.load(std::memory_order_relaxed) ||
         captures_by_stacks.load(std::memory_order_relaxed);
}

void set_capturing(bool capture) noexcept {
  const MutexLock lock(asking_mutex);
  if (!captures_are_named()) return;
  capturing = capture;
  ask();
}

void forget_launch_names() noexcept {
  sampled_thread.clear();
  name_captures({});
  read_stacks(false);
  ignore_operators();
}

std::uint32_t launch_place(ThreadState& thread) noexcept {
  Core* core = Core::get_if_any();
  if (core == nullptr) return 0;
  const CallerState caller;
  CodePlaces& places = core->places;
  const Operators operators = operators_of(thread, places);
  if (!operators.all_known || thread.operators.some_left_out()) return 0;
  const PythonFrame frame = stack_frame();
  if (frame) sampled_thread.offer(thread.index);
  const CodeContext own = thread_context(thread, frame, places);
  CodePlace place;
  place.op = operators.node;
  place.stack = own.stack;
  place.module = own.module;
  place.module_unknown = own.module_unknown;
  bool is_complete = true;
  // An optimizer may step in a gradient's hook, and its step may call a closure that runs both passes. An
  // optimizer's own operators usually run without gradients: those with gradients belong to a closure once
  // one of them has run in a module.
  bool in_step = thread.step != nullptr &&
                 (operators.backward == nullptr || thread.step_level > operators.backward_level);
  if (in_step && operators.step_has_gradients) {
    if (own.module != 0) thread.step_calls_model = true;
    in_step = !thread.step_calls_model;
  }
  if (in_step) {
    place.phase = CodePhase::kOptimizer;
  } else if (const OpenOperator* backward = operators.backward; backward != nullptr) {
    place.phase = CodePhase::kBackward;
    // Frames that have begun inside it: a hook, a function with a backward pass in Python, or a recomputed
    // forward pass.
    const bool python_inside = frame && frame.frame != backward->frame;
    std::optional<CodeContext> forward = CodeContext{};
    if (backward->sequence >= 0) forward = places.forward(static_cast<std::uint64_t>(backward->sequence));
    if (!forward) {
      is_complete = false;
      forward.emplace().module_unknown = true;
    }
    if (python_inside && backward->sequence >= 0 && (own.module != 0 || own.module_unknown)) {
      place.phase = CodePhase::kRecompute;
    } else {
      // Gradients are off in a node, unless the backward pass is to be differentiated. Where they were
      // enabled inside it, the forward pass is run again; where they were on, it can't be told.
      const bool again = operators.differentiates && !backward->has_gradients && backward->sequence >= 0;
      if (again) place.phase = CodePhase::kRecompute;
      place.may_recompute = operators.differentiates && !again;
      place.module = forward->module;
      place.module_unknown = forward->module_unknown;
      if (!python_inside) place.stack = forward->stack;
    }
  } else if (in_compiled_autograd(own.stack, places)) {
    place.phase = CodePhase::kBackward;
    place.module_unknown = place.module_unknown || place.module == 0;
  } else if (place.op != 0 || place.module != 0) {
    place.phase = CodePhase::kForward;
  }
  if (place == CodePlace{}) return 0;
  place.before_operators = !operators_heard(thread);
  const std::uint32_t number = places.place(place);
  return number == 0 || is_complete ? number : number | kIncompletePlace;
}

std::uint64_t launch_operator_call(const ThreadState& thread) noexcept {
  const OperatorCall call = thread.operators.call();
  return (call.level == 0 && !operators_heard(thread) ? OperatorCall::unknown() : call).packed();
}

std::optional<StackSample> sample_stack() noexcept {
  static ThreadStacks* const stacks =
      new (std::nothrow) ThreadStacks;  // never destroyed: its thread may outlive it
  const SampledThread::Chosen chosen = sampled_thread.chosen();
  Core* core = Core::get_if_any();
  if (chosen.state == nullptr || core == nullptr || stacks == nullptr) return std::nullopt;
  StackSample sample{now(), chosen.index, 0};
  sample.stack = stacks->read(chosen.state, core->places);
  if (sample.stack == 0) return std::nullopt;
  return sample;
}

}  // namespace inject
