// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/open_calls.h"

#include <signal.h>

namespace inject {

namespace {

bool on_alternate_stack() noexcept {
  stack_t alternate{};
  return sigaltstack(nullptr, &alternate) == 0 && (alternate.ss_flags & SS_ONSTACK) != 0;
}

}  // namespace

// The stack grows downwards: a call that began at `stack` or further in has been left, if this is the same
// stack. A signal handler may run on its own stack, where it is inside no call; the calls that it has
// interrupted go on.
OpenCall* OpenCalls::look_further(std::uintptr_t stack) noexcept {
  if (on_alternate_stack()) return nullptr;
  std::uint32_t left = depth_;
  while (left != 0 && calls_[left - 1].stack <= stack) --left;
  forget(left);
  return left == 0 ? nullptr : &calls_[left - 1];
}

// As in look_further(): the call ended without having been recorded.
void OpenCalls::forget_short_call(std::uintptr_t stack) noexcept {
  if (in_short_call(stack) || on_alternate_stack()) return;
  short_call_ = 0;
  queue_->count_drop(RecordKind::kShortCalls);
}

void OpenCalls::forget(std::uint32_t first) noexcept {
  for (std::uint32_t place = first; place < depth_; ++place) {
    const OpenCall& call = calls_[place];
    if (call.call != 0 && call.window != 0 && call.has_record()) queue_->count_drop(RecordKind::kCall);
  }
  depth_ = first;
}

}  // namespace inject
