// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Parameter and argument lists for arities 0 … 33 (cudnnNormalizationBackward): C++ has no way to define a
// function from its type alone, so the types come from the header's declaration and only their number is
// given.
#pragma once

#include <cstddef>
#include <tuple>

#include "libinject/model/records.h"

namespace inject {

template <typename Function>
struct Signature;

template <typename R, typename... A>
struct Signature<R(A...)> {
  using Result = R;
  static constexpr std::size_t kArity = sizeof...(A);
  template <std::size_t index>
  using Parameter = std::tuple_element_t<index, std::tuple<A...>>;
};

template <typename Function>
using Result = typename Signature<Function>::Result;

template <typename Function, std::size_t index>
using Parameter = typename Signature<Function>::template Parameter<index>;

/// Selects an overload if a header overloads an exported name inline: specialise it with a member `type`.
template <FunctionId function>
struct Overload {};

template <typename Function>
struct Prototype {
  using Type = Function;
};

/// Never defined: decltype(prototype<id>(name))::Type is the type of the header's function `name`.
template <FunctionId function, typename Function>
Prototype<Function> prototype(Function*);
template <FunctionId function>
Prototype<typename Overload<function>::Type> prototype(typename Overload<function>::Type*);

/// True if a name reached us as written, not as expanded by a vendor's renaming macro.
constexpr bool same_text(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}

}  // namespace inject

#define INJECT_TEXT(text) #text
#define INJECT_STRINGISE(text) INJECT_TEXT(text)

// clang-format off
#define INJECT_PARAMETERS_0(F)
#define INJECT_PARAMETERS_1(F) inject::Parameter<F, 0> a0
#define INJECT_PARAMETERS_2(F) INJECT_PARAMETERS_1(F), inject::Parameter<F, 1> a1
#define INJECT_PARAMETERS_3(F) INJECT_PARAMETERS_2(F), inject::Parameter<F, 2> a2
#define INJECT_PARAMETERS_4(F) INJECT_PARAMETERS_3(F), inject::Parameter<F, 3> a3
#define INJECT_PARAMETERS_5(F) INJECT_PARAMETERS_4(F), inject::Parameter<F, 4> a4
#define INJECT_PARAMETERS_6(F) INJECT_PARAMETERS_5(F), inject::Parameter<F, 5> a5
#define INJECT_PARAMETERS_7(F) INJECT_PARAMETERS_6(F), inject::Parameter<F, 6> a6
#define INJECT_PARAMETERS_8(F) INJECT_PARAMETERS_7(F), inject::Parameter<F, 7> a7
#define INJECT_PARAMETERS_9(F) INJECT_PARAMETERS_8(F), inject::Parameter<F, 8> a8
#define INJECT_PARAMETERS_10(F) INJECT_PARAMETERS_9(F), inject::Parameter<F, 9> a9
#define INJECT_PARAMETERS_11(F) INJECT_PARAMETERS_10(F), inject::Parameter<F, 10> a10
#define INJECT_PARAMETERS_12(F) INJECT_PARAMETERS_11(F), inject::Parameter<F, 11> a11
#define INJECT_PARAMETERS_13(F) INJECT_PARAMETERS_12(F), inject::Parameter<F, 12> a12
#define INJECT_PARAMETERS_14(F) INJECT_PARAMETERS_13(F), inject::Parameter<F, 13> a13
#define INJECT_PARAMETERS_15(F) INJECT_PARAMETERS_14(F), inject::Parameter<F, 14> a14
#define INJECT_PARAMETERS_16(F) INJECT_PARAMETERS_15(F), inject::Parameter<F, 15> a15
#define INJECT_PARAMETERS_17(F) INJECT_PARAMETERS_16(F), inject::Parameter<F, 16> a16
#define INJECT_PARAMETERS_18(F) INJECT_PARAMETERS_17(F), inject::Parameter<F, 17> a17
#define INJECT_PARAMETERS_19(F) INJECT_PARAMETERS_18(F), inject::Parameter<F, 18> a18
#define INJECT_PARAMETERS_20(F) INJECT_PARAMETERS_19(F), inject::Parameter<F, 19> a19
#define INJECT_PARAMETERS_21(F) INJECT_PARAMETERS_20(F), inject::Parameter<F, 20> a20
#define INJECT_PARAMETERS_22(F) INJECT_PARAMETERS_21(F), inject::Parameter<F, 21> a21
#define INJECT_PARAMETERS_23(F) INJECT_PARAMETERS_22(F), inject::Parameter<F, 22> a22
#define INJECT_PARAMETERS_24(F) INJECT_PARAMETERS_23(F), inject::Parameter<F, 23> a23
#define INJECT_PARAMETERS_25(F) INJECT_PARAMETERS_24(F), inject::Parameter<F, 24> a24
#define INJECT_PARAMETERS_26(F) INJECT_PARAMETERS_25(F), inject::Parameter<F, 25> a25
#define INJECT_PARAMETERS_27(F) INJECT_PARAMETERS_26(F), inject::Parameter<F, 26> a26
#define INJECT_PARAMETERS_28(F) INJECT_PARAMETERS_27(F), inject::Parameter<F, 27> a27
#define INJECT_PARAMETERS_29(F) INJECT_PARAMETERS_28(F), inject::Parameter<F, 28> a28
#define INJECT_PARAMETERS_30(F) INJECT_PARAMETERS_29(F), inject::Parameter<F, 29> a29
#define INJECT_PARAMETERS_31(F) INJECT_PARAMETERS_30(F), inject::Parameter<F, 30> a30
#define INJECT_PARAMETERS_32(F) INJECT_PARAMETERS_31(F), inject::Parameter<F, 31> a31
#define INJECT_PARAMETERS_33(F) INJECT_PARAMETERS_32(F), inject::Parameter<F, 32> a32

#define INJECT_ARGUMENTS_0
#define INJECT_ARGUMENTS_1 a0
#define INJECT_ARGUMENTS_2 INJECT_ARGUMENTS_1, a1
#define INJECT_ARGUMENTS_3 INJECT_ARGUMENTS_2, a2
#define INJECT_ARGUMENTS_4 INJECT_ARGUMENTS_3, a3
#define INJECT_ARGUMENTS_5 INJECT_ARGUMENTS_4, a4
#define INJECT_ARGUMENTS_6 INJECT_ARGUMENTS_5, a5
#define INJECT_ARGUMENTS_7 INJECT_ARGUMENTS_6, a6
#define INJECT_ARGUMENTS_8 INJECT_ARGUMENTS_7, a7
#define INJECT_ARGUMENTS_9 INJECT_ARGUMENTS_8, a8
#define INJECT_ARGUMENTS_10 INJECT_ARGUMENTS_9, a9
#define INJECT_ARGUMENTS_11 INJECT_ARGUMENTS_10, a10
#define INJECT_ARGUMENTS_12 INJECT_ARGUMENTS_11, a11
#define INJECT_ARGUMENTS_13 INJECT_ARGUMENTS_12, a12
#define INJECT_ARGUMENTS_14 INJECT_ARGUMENTS_13, a13
#define INJECT_ARGUMENTS_15 INJECT_ARGUMENTS_14, a14
#define INJECT_ARGUMENTS_16 INJECT_ARGUMENTS_15, a15
#define INJECT_ARGUMENTS_17 INJECT_ARGUMENTS_16, a16
#define INJECT_ARGUMENTS_18 INJECT_ARGUMENTS_17, a17
#define INJECT_ARGUMENTS_19 INJECT_ARGUMENTS_18, a18
#define INJECT_ARGUMENTS_20 INJECT_ARGUMENTS_19, a19
#define INJECT_ARGUMENTS_21 INJECT_ARGUMENTS_20, a20
#define INJECT_ARGUMENTS_22 INJECT_ARGUMENTS_21, a21
#define INJECT_ARGUMENTS_23 INJECT_ARGUMENTS_22, a22
#define INJECT_ARGUMENTS_24 INJECT_ARGUMENTS_23, a23
#define INJECT_ARGUMENTS_25 INJECT_ARGUMENTS_24, a24
#define INJECT_ARGUMENTS_26 INJECT_ARGUMENTS_25, a25
#define INJECT_ARGUMENTS_27 INJECT_ARGUMENTS_26, a26
#define INJECT_ARGUMENTS_28 INJECT_ARGUMENTS_27, a27
#define INJECT_ARGUMENTS_29 INJECT_ARGUMENTS_28, a28
#define INJECT_ARGUMENTS_30 INJECT_ARGUMENTS_29, a29
#define INJECT_ARGUMENTS_31 INJECT_ARGUMENTS_30, a30
#define INJECT_ARGUMENTS_32 INJECT_ARGUMENTS_31, a31
#define INJECT_ARGUMENTS_33 INJECT_ARGUMENTS_32, a32
// clang-format on
