// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

namespace inject {

/// While one exists, arithmetic rounds to nearest and raises no signal, whatever the program has set
/// (feenableexcept(), fesetround()): a program that traps exceptions would die of ours. Restores the
/// program's settings and flags. Without fenv.h's functions, which are in libm.
class FloatingPointDefaults {
 public:
#if defined(__x86_64__)
  FloatingPointDefaults() noexcept {
    asm volatile("stmxcsr %0" : "=m"(settings_));
    constexpr unsigned kFlags = 0x3f;
    constexpr unsigned kDefault = 0x1f80;
    if ((settings_ & ~kFlags) == kDefault) [[likely]]
      return;
    const unsigned set = kDefault | (settings_ & kFlags);
    asm volatile("ldmxcsr %0" : : "m"(set));
  }
  ~FloatingPointDefaults() {
    asm volatile("ldmxcsr %0" : : "m"(settings_));
  }

 private:
  unsigned settings_;
#elif defined(__aarch64__)
  FloatingPointDefaults() noexcept {
    asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(settings_), "=r"(flags_));
    if (settings_ != 0) [[unlikely]]
      asm volatile("msr fpcr, %0" : : "r"(0UL));
  }
  ~FloatingPointDefaults() {
    asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(settings_), "r"(flags_));
  }

 private:
  unsigned long settings_;
  unsigned long flags_;
#else
  FloatingPointDefaults() noexcept {}
  ~FloatingPointDefaults() {}
#endif

 public:
  FloatingPointDefaults(const FloatingPointDefaults&) = delete;
  FloatingPointDefaults& operator=(const FloatingPointDefaults&) = delete;
};

}  // namespace inject
