// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Parameter and argument lists of a function by its arity, typed from the vendor's declaration.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace inject::sim {

template <class>
struct Signature;
template <class Result, class... Params>
struct Signature<Result(Params...)> {
  using Return = Result;
  using Arguments = std::tuple<Params...>;
  static constexpr std::size_t kArity = sizeof...(Params);
};

template <class Function, std::size_t Index>
using Argument = std::tuple_element_t<Index, typename Signature<Function>::Arguments>;
/// The same function, told first whether the default stream is the calling thread's own.
template <class>
struct PerThreadOrNot;
template <class R, class... Params>
struct PerThreadOrNot<R(Params...)> {
  using Type = R(bool, Params...);
};
template <class Function>
using WithDefaultStream = typename PerThreadOrNot<Function>::Type;

template <class Function>
using Result = typename Signature<Function>::Return;

/// A status from a number; whatever is no status is empty.
template <class R>
R status_result(int code) {
  if constexpr (std::is_enum_v<R>)
    return static_cast<R>(code);
  else
    return R{};
}

}  // namespace inject::sim

// SIM_PARAMETERS_n(F): `type a0, ...` of function type F; SIM_ARGUMENTS_n: `a0, ...`.
#define SIM_PARAMETERS_0(F)
#define SIM_PARAMETERS_1(F) ::inject::sim::Argument<F, 0> a0
#define SIM_PARAMETERS_2(F) SIM_PARAMETERS_1(F), ::inject::sim::Argument<F, 1> a1
#define SIM_PARAMETERS_3(F) SIM_PARAMETERS_2(F), ::inject::sim::Argument<F, 2> a2
#define SIM_PARAMETERS_4(F) SIM_PARAMETERS_3(F), ::inject::sim::Argument<F, 3> a3
#define SIM_PARAMETERS_5(F) SIM_PARAMETERS_4(F), ::inject::sim::Argument<F, 4> a4
#define SIM_PARAMETERS_6(F) SIM_PARAMETERS_5(F), ::inject::sim::Argument<F, 5> a5
#define SIM_PARAMETERS_7(F) SIM_PARAMETERS_6(F), ::inject::sim::Argument<F, 6> a6
#define SIM_PARAMETERS_8(F) SIM_PARAMETERS_7(F), ::inject::sim::Argument<F, 7> a7
#define SIM_PARAMETERS_9(F) SIM_PARAMETERS_8(F), ::inject::sim::Argument<F, 8> a8
#define SIM_PARAMETERS_10(F) SIM_PARAMETERS_9(F), ::inject::sim::Argument<F, 9> a9
#define SIM_PARAMETERS_11(F) SIM_PARAMETERS_10(F), ::inject::sim::Argument<F, 10> a10
#define SIM_PARAMETERS_12(F) SIM_PARAMETERS_11(F), ::inject::sim::Argument<F, 11> a11
#define SIM_PARAMETERS_13(F) SIM_PARAMETERS_12(F), ::inject::sim::Argument<F, 12> a12
#define SIM_PARAMETERS_14(F) SIM_PARAMETERS_13(F), ::inject::sim::Argument<F, 13> a13
#define SIM_PARAMETERS_15(F) SIM_PARAMETERS_14(F), ::inject::sim::Argument<F, 14> a14
#define SIM_PARAMETERS_16(F) SIM_PARAMETERS_15(F), ::inject::sim::Argument<F, 15> a15
#define SIM_PARAMETERS_17(F) SIM_PARAMETERS_16(F), ::inject::sim::Argument<F, 16> a16
#define SIM_PARAMETERS_18(F) SIM_PARAMETERS_17(F), ::inject::sim::Argument<F, 17> a17
#define SIM_PARAMETERS_19(F) SIM_PARAMETERS_18(F), ::inject::sim::Argument<F, 18> a18
#define SIM_PARAMETERS_20(F) SIM_PARAMETERS_19(F), ::inject::sim::Argument<F, 19> a19
#define SIM_PARAMETERS_21(F) SIM_PARAMETERS_20(F), ::inject::sim::Argument<F, 20> a20
#define SIM_PARAMETERS_22(F) SIM_PARAMETERS_21(F), ::inject::sim::Argument<F, 21> a21
#define SIM_PARAMETERS_23(F) SIM_PARAMETERS_22(F), ::inject::sim::Argument<F, 22> a22
#define SIM_PARAMETERS_24(F) SIM_PARAMETERS_23(F), ::inject::sim::Argument<F, 23> a23
#define SIM_PARAMETERS_25(F) SIM_PARAMETERS_24(F), ::inject::sim::Argument<F, 24> a24
#define SIM_PARAMETERS_26(F) SIM_PARAMETERS_25(F), ::inject::sim::Argument<F, 25> a25
#define SIM_PARAMETERS_27(F) SIM_PARAMETERS_26(F), ::inject::sim::Argument<F, 26> a26
#define SIM_PARAMETERS_28(F) SIM_PARAMETERS_27(F), ::inject::sim::Argument<F, 27> a27
#define SIM_PARAMETERS_29(F) SIM_PARAMETERS_28(F), ::inject::sim::Argument<F, 28> a28
#define SIM_PARAMETERS_30(F) SIM_PARAMETERS_29(F), ::inject::sim::Argument<F, 29> a29
#define SIM_PARAMETERS_31(F) SIM_PARAMETERS_30(F), ::inject::sim::Argument<F, 30> a30
#define SIM_PARAMETERS_32(F) SIM_PARAMETERS_31(F), ::inject::sim::Argument<F, 31> a31
#define SIM_PARAMETERS_33(F) SIM_PARAMETERS_32(F), ::inject::sim::Argument<F, 32> a32
#define SIM_ARGUMENTS_0
#define SIM_ARGUMENTS_1 a0
#define SIM_ARGUMENTS_2 SIM_ARGUMENTS_1, a1
#define SIM_ARGUMENTS_3 SIM_ARGUMENTS_2, a2
#define SIM_ARGUMENTS_4 SIM_ARGUMENTS_3, a3
#define SIM_ARGUMENTS_5 SIM_ARGUMENTS_4, a4
#define SIM_ARGUMENTS_6 SIM_ARGUMENTS_5, a5
#define SIM_ARGUMENTS_7 SIM_ARGUMENTS_6, a6
#define SIM_ARGUMENTS_8 SIM_ARGUMENTS_7, a7
#define SIM_ARGUMENTS_9 SIM_ARGUMENTS_8, a8
#define SIM_ARGUMENTS_10 SIM_ARGUMENTS_9, a9
#define SIM_ARGUMENTS_11 SIM_ARGUMENTS_10, a10
#define SIM_ARGUMENTS_12 SIM_ARGUMENTS_11, a11
#define SIM_ARGUMENTS_13 SIM_ARGUMENTS_12, a12
#define SIM_ARGUMENTS_14 SIM_ARGUMENTS_13, a13
#define SIM_ARGUMENTS_15 SIM_ARGUMENTS_14, a14
#define SIM_ARGUMENTS_16 SIM_ARGUMENTS_15, a15
#define SIM_ARGUMENTS_17 SIM_ARGUMENTS_16, a16
#define SIM_ARGUMENTS_18 SIM_ARGUMENTS_17, a17
#define SIM_ARGUMENTS_19 SIM_ARGUMENTS_18, a18
#define SIM_ARGUMENTS_20 SIM_ARGUMENTS_19, a19
#define SIM_ARGUMENTS_21 SIM_ARGUMENTS_20, a20
#define SIM_ARGUMENTS_22 SIM_ARGUMENTS_21, a21
#define SIM_ARGUMENTS_23 SIM_ARGUMENTS_22, a22
#define SIM_ARGUMENTS_24 SIM_ARGUMENTS_23, a23
#define SIM_ARGUMENTS_25 SIM_ARGUMENTS_24, a24
#define SIM_ARGUMENTS_26 SIM_ARGUMENTS_25, a25
#define SIM_ARGUMENTS_27 SIM_ARGUMENTS_26, a26
#define SIM_ARGUMENTS_28 SIM_ARGUMENTS_27, a27
#define SIM_ARGUMENTS_29 SIM_ARGUMENTS_28, a28
#define SIM_ARGUMENTS_30 SIM_ARGUMENTS_29, a29
#define SIM_ARGUMENTS_31 SIM_ARGUMENTS_30, a30
#define SIM_ARGUMENTS_32 SIM_ARGUMENTS_31, a31
#define SIM_ARGUMENTS_33 SIM_ARGUMENTS_32, a32
