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
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(settings_), "=m"(control_));
    constexpr unsigned kFlags = 0x3f;
    constexpr unsigned kDefault = 0x1f80;
    if ((settings_ & ~kFlags) != kDefault) [[unlikely]] {
      const unsigned set = kDefault | (settings_ & kFlags);
      asm volatile("ldmxcsr %0" : : "m"(set));
    }
    // Of long double. The flags are restored as well: once ours were set, the program's next instruction
    // would trap.
    if (control_ != kControl) [[unlikely]] {
      asm volatile("fnstenv %0\n\tfldcw %1" : "=m"(environment_) : "m"(kControl));
    }
  }
  ~FloatingPointDefaults() {
    if (control_ != kControl) [[unlikely]] {
      asm volatile("fldenv %0" : : "m"(environment_));
    }
    asm volatile("ldmxcsr %0" : : "m"(settings_));
  }

 private:
  static constexpr unsigned short kControl = 0x37f;
  struct Environment {
    unsigned words[7];
  };
  unsigned settings_;
  unsigned short control_;
  Environment environment_;
#elif defined(__aarch64__)
  FloatingPointDefaults() noexcept {
    asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(settings_), "=r"(flags_));
    if (settings_ != 0) [[unlikely]] {
      asm volatile("msr fpcr, %0" : : "r"(0UL));
    }
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
