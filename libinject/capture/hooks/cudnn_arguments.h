// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the arguments of cuDNN's older functions mean: their descriptors, read by the library's own getters. A
// null descriptor is not passed to a getter, because a failure changes what cudnnGetLastErrorString returns.
#pragma once

#include <cudnn.h>

#include <tuple>
#include <type_traits>

#include "libinject/capture/hooks/frame.h"
#include "libinject/capture/hooks/shim.h"
#include "libinject/model/functions.h"

// Deprecated functions are covered as well: programs still call them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace inject {

struct ConvolutionCall {
  std::uint8_t direction = 0;  ///< 1 forward, 2 data gradient, 3 filter gradient
  cudnnTensorDescriptor_t x = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnTensorDescriptor_t y = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  int algorithm = 0;
  bool fused = false;  ///< with bias and activation
  cudnnTensorDescriptor_t bias = nullptr;
  cudnnTensorDescriptor_t z = nullptr;  ///< another operand, added …
  const void* sum = nullptr;            ///< … if this factor is not 0: a double if y has doubles
  cudnnActivationDescriptor_t activation = nullptr;
};
void set_convolution_shape(CallFrame& frame, void* real, const ConvolutionCall& call) noexcept;

/// `direction`: 1 training, 2 backward, 3 inference; `fused`: 1 with an activation, 2 also with a sum.
void set_normalization_shape(CallFrame& frame, void* real, std::uint8_t direction, cudnnTensorDescriptor_t x,
                             int fused) noexcept;

void set_rnn_shape(CallFrame& frame, void* real, std::uint8_t direction, cudnnRNNDescriptor_t rnn,
                   cudnnRNNDataDescriptor_t x) noexcept;

void set_attention_shape(CallFrame& frame, void* real, std::uint8_t direction,
                         cudnnAttnDescriptor_t attention, cudnnSeqDataDescriptor_t queries,
                         cudnnSeqDataDescriptor_t keys) noexcept;

template <>
struct CallArguments<kFn_cudnnConvolutionForward> {
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, const void*, cudnnTensorDescriptor_t x,
                   const void*, cudnnFilterDescriptor_t w, const void*,
                   cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm, void*,
                   std::size_t, const void*, cudnnTensorDescriptor_t y, void*) noexcept {
    set_convolution_shape(
        frame, real,
        {.direction = 1, .x = x, .w = w, .y = y, .convolution = convolution, .algorithm = algorithm});
  }
};

template <>
struct CallArguments<kFn_cudnnConvolutionBiasActivationForward> {
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, const void*, cudnnTensorDescriptor_t x,
                   const void*, cudnnFilterDescriptor_t w, const void*,
                   cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm, void*,
                   std::size_t, const void* scale, cudnnTensorDescriptor_t z, const void*,
                   cudnnTensorDescriptor_t bias, const void*, cudnnActivationDescriptor_t activation,
                   cudnnTensorDescriptor_t y, void*) noexcept {
    set_convolution_shape(frame, real,
                          {.direction = 1,
                           .x = x,
                           .w = w,
                           .y = y,
                           .convolution = convolution,
                           .algorithm = algorithm,
                           .fused = true,
                           .bias = bias,
                           .z = z,
                           .sum = scale,
                           .activation = activation});
  }
};

template <>
struct CallArguments<kFn_cudnnConvolutionBackwardData> {
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, const void*, cudnnFilterDescriptor_t w,
                   const void*, cudnnTensorDescriptor_t y, const void*,
                   cudnnConvolutionDescriptor_t convolution, cudnnConvolutionBwdDataAlgo_t algorithm, void*,
                   std::size_t, const void*, cudnnTensorDescriptor_t x, void*) noexcept {
    set_convolution_shape(
        frame, real,
        {.direction = 2, .x = x, .w = w, .y = y, .convolution = convolution, .algorithm = algorithm});
  }
};

template <>
struct CallArguments<kFn_cudnnConvolutionBackwardFilter> {
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, const void*, cudnnTensorDescriptor_t x,
                   const void*, cudnnTensorDescriptor_t y, const void*,
                   cudnnConvolutionDescriptor_t convolution, cudnnConvolutionBwdFilterAlgo_t algorithm, void*,
                   std::size_t, const void*, cudnnFilterDescriptor_t w, void*) noexcept {
    set_convolution_shape(
        frame, real,
        {.direction = 3, .x = x, .w = w, .y = y, .convolution = convolution, .algorithm = algorithm});
  }
};

/// In all of them, the first tensor is x.
template <std::uint8_t direction>
struct NormalizationArguments {
  template <typename... A>
  static void tell(CallFrame& frame, void* real, A... args) noexcept {
    cudnnTensorDescriptor_t x = nullptr;
    bool found = false;
    int fused = 0;
    const auto look = [&](const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, cudnnTensorDescriptor_t>) {
        if (!found) x = argument;
        found = true;
      } else if constexpr (std::is_same_v<Argument, cudnnBatchNormOps_t> ||
                           std::is_same_v<Argument, cudnnNormOps_t>) {
        fused = static_cast<int>(argument);
      }
    };
    (look(args), ...);
    set_normalization_shape(frame, real, direction, x, fused);
  }
};
template <>
struct CallArguments<kFn_cudnnBatchNormalizationForwardTraining> : NormalizationArguments<1> {};
template <>
struct CallArguments<kFn_cudnnBatchNormalizationForwardTrainingEx> : NormalizationArguments<1> {};
template <>
struct CallArguments<kFn_cudnnNormalizationForwardTraining> : NormalizationArguments<1> {};
template <>
struct CallArguments<kFn_cudnnBatchNormalizationBackward> : NormalizationArguments<2> {};
template <>
struct CallArguments<kFn_cudnnBatchNormalizationBackwardEx> : NormalizationArguments<2> {};
template <>
struct CallArguments<kFn_cudnnNormalizationBackward> : NormalizationArguments<2> {};
template <>
struct CallArguments<kFn_cudnnBatchNormalizationForwardInference> : NormalizationArguments<3> {};
template <>
struct CallArguments<kFn_cudnnNormalizationForwardInference> : NormalizationArguments<3> {};

template <>
struct CallArguments<kFn_cudnnRNNForward> {
  template <typename... Rest>
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t,
                   const std::int32_t*, cudnnRNNDataDescriptor_t x, Rest...) noexcept {
    set_rnn_shape(frame, real, 1, rnn, x);
  }
};

template <>
struct CallArguments<kFn_cudnnRNNBackwardData_v8> {
  template <typename... Rest>
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, cudnnRNNDescriptor_t rnn, const std::int32_t*,
                   cudnnRNNDataDescriptor_t, const void*, const void*, cudnnRNNDataDescriptor_t x,
                   Rest...) noexcept {
    set_rnn_shape(frame, real, 2, rnn, x);
  }
};

template <>
struct CallArguments<kFn_cudnnRNNBackwardWeights_v8> {
  template <typename... Rest>
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t,
                   const std::int32_t*, cudnnRNNDataDescriptor_t x, Rest...) noexcept {
    set_rnn_shape(frame, real, 3, rnn, x);
  }
};

template <>
struct CallArguments<kFn_cudnnMultiHeadAttnForward> {
  template <typename... Rest>
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, cudnnAttnDescriptor_t attention, int,
                   const int*, const int*, const int*, const int*, cudnnSeqDataDescriptor_t queries,
                   const void*, const void*, cudnnSeqDataDescriptor_t keys, Rest...) noexcept {
    set_attention_shape(frame, real, 1, attention, queries, keys);
  }
};

template <>
struct CallArguments<kFn_cudnnMultiHeadAttnBackwardData> {
  template <typename... Rest>
  static void tell(CallFrame& frame, void* real, cudnnHandle_t, cudnnAttnDescriptor_t attention, const int*,
                   const int*, const int*, const int*, cudnnSeqDataDescriptor_t, const void*,
                   cudnnSeqDataDescriptor_t queries, void*, const void*, cudnnSeqDataDescriptor_t keys,
                   Rest...) noexcept {
    set_attention_shape(frame, real, 2, attention, queries, keys);
  }
};

}  // namespace inject

#pragma GCC diagnostic pop
