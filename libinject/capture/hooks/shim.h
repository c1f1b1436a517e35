// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Every hook, written once: read control_word, find the real function, call it, and on the slow path do so
// inside a CallFrame. Including a .def table after this header defines that table's exported functions. Not
// noexcept, and no catch: pthread_cancel unwinds through the real calls, and either would end the program.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "libinject/capture/graph_capture.h"
#include "libinject/capture/hooks/arity.h"
#include "libinject/capture/hooks/frame.h"
#include "libinject/capture/hooks/observers.h"
#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/capture/hooks/signs.h"
#include "libinject/model/functions.h"
#include "libinject/record/control.h"

namespace inject {

/// What a hook returns if no loaded library has the real function. Specialised for each API's status type.
template <typename R>
struct Missing {
  static R value() noexcept { return R{}; }
};

// The shims end in tail calls: the real function then finds the stack as the caller left it, and the slow
// path finds the caller's return address, by which the real function is chosen. GCC makes tail calls when it
// optimises (the build ensures that), Clang on request.
#if defined(__clang__)
#define INJECT_TAIL_CALL [[clang::musttail]] return
#else
#define INJECT_TAIL_CALL return
#endif

/// The status that a call returned, as stored in a record: 0 is success.
template <typename R>
struct StatusCode {
  static int of(R result) noexcept { return static_cast<int>(result); }
};

/// The meaning of a call's arguments: specialisations have `static void tell(CallFrame&, void* real,
/// arguments...)`, which gives the frame a shape. Called before the real function, with the program's
/// arguments, valid or not. `static void told(int status)`, if it exists, is called after it.
template <FunctionId function>
struct CallArguments {};

/// The stream, or executable graph, among a call's arguments; nothing if it has none.
template <typename Wanted, typename... A>
[[gnu::always_inline]] inline std::optional<Wanted> argument_of_type(A... args) noexcept {
  std::optional<Wanted> found;
  [[maybe_unused]] const auto look = [&](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), Wanted>) found = argument;
    if constexpr (std::is_same_v<Wanted, cudaStream_t> &&
                  std::is_same_v<decltype(argument), const cudaLaunchConfig_t*>)
      found = argument != nullptr ? argument->stream : nullptr;
  };
  (look(args), ...);
  return found;
}

template <FunctionId function, typename F>
struct Shim;

template <FunctionId function, typename R, typename... A>
struct Shim<function, R(A...)> {
  using Real = R (*)(A...);

  static constexpr bool kObservedBefore = requires { Observer<function>::before(); };
  static constexpr bool kObservedAfter = requires { Observer<function>::after(0); };
  // With the call's arguments.
  static constexpr bool kSeenBefore = sizeof...(A) != 0 && requires {
    Observer<function>::before(std::declval<A>()...);
  };
  static constexpr bool kSeenAfter = requires {
    Observer<function>::after(nullptr, 0, std::declval<A>()...);
  };
  static constexpr bool kCallerSeen = requires { Observer<function>::called_from(nullptr); };
  static constexpr bool kObserved =
      kObservedBefore || kObservedAfter || kSeenBefore || kSeenAfter || kCallerSeen;
  static constexpr bool kUnrecorded = requires { Observer<function>::kUnrecorded; };

  /// Such calls submit no work and run none of the program's code; frameworks make ten of them per launch.
  static constexpr bool kMayBeShort =
      std::is_enum_v<R> && kBookkeeping<function> &&
      (kCategory<function> == Category::kQuery || kCategory<function> == Category::kEvent ||
       kCategory<function> == Category::kDevice || kCategory<function> == Category::kStream ||
       function == kFn_cudaStreamIsCapturing || function == kFn_cudaStreamIsCapturing_ptsz);

  /// True if its work may become part of a graph that is being captured.
  static constexpr bool kMayBeCaptured =
      std::is_enum_v<R> && ((is_sign(kCategory<function>) && kCategory<function> != Category::kSync) ||
                            kCategory<function> == Category::kGroup);

  /// Called thousands of times in a step. By the next call, the program's code has evicted ours from the
  /// caches, so all code that such a call runs is placed in one section (.text.hot) and takes few pages.
  static constexpr bool kHot = kMayBeShort || kCategory<function> == Category::kLaunch;

  /// The target of a call: the real function, or slow(). No branch and no ordering stronger than relaxed
  /// here: across either, GCC copies every argument on the stack back and forth (5 ns for the 23 of a batched
  /// GEMM, measured; now none). The jump is predicted, so the choice delays nothing (for the ordering of the
  /// binding, see kOrderedByAddress).
  [[gnu::always_inline]] static inline Real target(const void* caller) noexcept {
    if constexpr (kObserved) {
      return kSlow;
    } else {
      const std::uint32_t index = binding_table.current[function].load(kOrderedByAddress);
      const Binding& binding = binding_table.bindings[index];
      const auto idle = static_cast<std::uintptr_t>(control_word.load(std::memory_order_relaxed) == 0);
      const auto covered = static_cast<std::uintptr_t>(binding.covers(caller));
      const std::uintptr_t mask = std::uintptr_t{0} - (idle & covered);
      return reinterpret_cast<Real>((reinterpret_cast<std::uintptr_t>(binding.real) & mask) |
                                    (reinterpret_cast<std::uintptr_t>(kSlow) & ~mask));
    }
  }

  [[gnu::noinline]] static R slow(A... args) { INJECT_TAIL_CALL forward(args...); }
  [[gnu::noinline, gnu::hot]] static R slow_hot(A... args) { INJECT_TAIL_CALL forward(args...); }
  static constexpr Real kSlow = kHot ? &slow_hot : &slow;

  [[gnu::always_inline]] static inline R forward(A... args) {
    if constexpr (kObservedBefore) Observer<function>::before();
    if constexpr (kSeenBefore) Observer<function>::before(args...);
    const auto real = reinterpret_cast<Real>(bound(function, __builtin_return_address(0)));
    if (real == nullptr) [[unlikely]]
      return Missing<R>::value();
    // Only if the call will be made, and so will end.
    if constexpr (kCallerSeen) Observer<function>::called_from(__builtin_return_address(0));
    if constexpr (kSeenAfter) {
      R result{};
      if constexpr (kUnrecorded) {
        result = real(args...);
      } else {
        result = framed(real, args...);
      }
      Observer<function>::after(reinterpret_cast<void*>(real), static_cast<int>(result), args...);
      return result;
    } else if constexpr (kUnrecorded) {
      INJECT_TAIL_CALL real(args...);
    } else if constexpr (kObservedAfter) {
      static_assert(!std::is_void_v<R>);
      const R result = framed(real, args...);
      Observer<function>::after(static_cast<int>(result));
      return result;
    } else {
      constexpr std::uint32_t kFramed = kControlRecord | kControlGate;
      const std::uint32_t control = control_word.load(std::memory_order_relaxed);
      if constexpr (is_sign(kCategory<function>)) {
        if ((control & kControlSearch) != 0) {
          [[maybe_unused]] const SeenLaunch seen = tell_sign<function>(args...);
          if constexpr (kCategory<function> == Category::kLaunch) {
            if (seen.kernel != nullptr && function_is_new(seen.function)) {
              const R result = capturable(real, control, args...);
              if (static_cast<int>(result) != 0 ||
                  !tell_kernel_name(seen, reinterpret_cast<const void*>(real)))
                function_stays_new(seen.function);
              return result;
            }
          }
        }
      }
      if constexpr (kMayBeCaptured) {
        if ((control & kControlCapture) != 0) return capturable(real, control, args...);
      }
      // The observer may have opened or closed a window.
      if ((control_word.load(std::memory_order_relaxed) & kFramed) == 0) INJECT_TAIL_CALL real(args...);
      return framed(real, args...);
    }
  }

  /// What is captured into a graph has no stack or name later.
  [[gnu::always_inline]] static inline R capturable(Real real, std::uint32_t control, A... args) {
    if ((control & kControlCapture) == 0) return framed(real, args...);
    std::optional<cudaStream_t> stream = argument_of_type<cudaStream_t>(args...);
    if (kOnPerThreadStream<function> && stream && *stream == nullptr) stream = cudaStreamPerThread;
    CapturableCall call(stream, argument_of_type<cudaGraphExec_t>(args...).value_or(nullptr));
    const R result = framed(real, args...);
    call.made();
    return result;
  }

  [[gnu::always_inline]] static inline R framed(Real real, A... args) {
    if constexpr (kMayBeShort) {
      if (ShortCallFrame frame(function); frame.begun()) {
        const R result = real(args...);
        frame.status(StatusCode<R>::of(result));
        return result;
      }
      return recorded_apart(real, args...);
    } else {
      return recorded(real, args...);
    }
  }

  /// The full record of a call that may be short: rare, and therefore not in the hot section.
  [[gnu::noinline]] static R recorded_apart(Real real, A... args) { return recorded(real, args...); }

  [[gnu::always_inline]] static inline R recorded(Real real, A... args) {
    CallFrame frame(function);
    [[maybe_unused]] bool told = false;
    if constexpr (requires { CallArguments<function>::tell(frame, nullptr, std::declval<A>()...); }) {
      told = frame.wants_shape();
      if (told) CallArguments<function>::tell(frame, reinterpret_cast<void*>(real), args...);
    } else {
      static_assert(kCategory<function> != Category::kGemm, "a product whose arguments fit no pattern");
    }
    if constexpr (std::is_enum_v<R>) {
      const R result = real(args...);
      const int status = StatusCode<R>::of(result);
      frame.status(status);
      if constexpr (requires { CallArguments<function>::told(status); }) {
        if (told) CallArguments<function>::told(status);
      }
      return result;
    } else {
      return real(args...);
    }
  }
};

}  // namespace inject

#define INJECT_EXPORT __attribute__((visibility("default")))

// A row's name as written must be its name as expanded: with a vendor's renaming macro, we would hook another
// function. Must be used where the row's arguments are not expanded yet.
#define INJECT_CHECK_SPELLING(spelling, name)                        \
  static_assert(inject::same_text(spelling, INJECT_STRINGISE(name)), \
                spelling " is a macro of the vendor's: spell the exported name");

// Defines `name` with the type of the header's function `like`, which for the per-thread default stream twins
// has another name. A name that is defined can't stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define INJECT_SHIM(name, like, arity)                                                      \
  using InjectType_##name = decltype(inject::prototype<inject::kFn_##like>(like))::Type;    \
  static_assert(inject::Signature<InjectType_##name>::kArity == arity,                      \
                #name " has another number of parameters");                                 \
  extern "C" INJECT_EXPORT inject::Result<InjectType_##name> name(                          \
      INJECT_PARAMETERS_##arity(InjectType_##name)) {                                       \
    using Shim = inject::Shim<inject::kFn_##name, InjectType_##name>;                       \
    /* A result that is returned in memory rules a tail call out. */                        \
    if constexpr (std::is_class_v<inject::Result<InjectType_##name>>) {                     \
      return Shim::forward(INJECT_ARGUMENTS_##arity);                                       \
    } else {                                                                                \
      INJECT_TAIL_CALL Shim::target(__builtin_return_address(0))(INJECT_ARGUMENTS_##arity); \
    }                                                                                       \
  }
// NOLINTEND(bugprone-macro-parentheses)

#define INJECT_HOOK(name, arity, category) \
  INJECT_CHECK_SPELLING(#name, name)       \
  INJECT_SHIM(name, name, arity)
