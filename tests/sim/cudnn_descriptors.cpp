// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The descriptors of cuDNN's older functions: what is set can be read.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/sim/cudnn_library.h"

using inject::sim::cudnn::fail;

// The header has them incomplete.
struct cudnnTensorStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int rank = 0;
  std::array<int, CUDNN_DIM_MAX> size{};
  std::array<int, CUDNN_DIM_MAX> stride{};
};
struct cudnnFilterStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  int rank = 0;
  std::array<int, CUDNN_DIM_MAX> size{};
};
struct cudnnConvolutionStruct {
  int rank = 0;
  std::array<int, CUDNN_DIM_MAX> pad{};
  std::array<int, CUDNN_DIM_MAX> stride{};
  std::array<int, CUDNN_DIM_MAX> dilation{};
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  int groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  double coefficient = 0;
};
struct cudnnRNNStruct {
  cudnnRNNAlgo_t algorithm = CUDNN_RNN_ALGO_STANDARD;
  cudnnRNNMode_t cell = CUDNN_RNN_RELU;
  cudnnRNNBiasMode_t bias = CUDNN_RNN_NO_BIAS;
  cudnnDirectionMode_t directions = CUDNN_UNIDIRECTIONAL;
  cudnnRNNInputMode_t input = CUDNN_LINEAR_INPUT;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  std::int32_t input_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t projection_size = 0;
  std::int32_t layers = 0;
  cudnnDropoutDescriptor_t dropout = nullptr;
  std::uint32_t flags = 0;
};
struct cudnnRNNDataStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int length = 0;
  int width = 0;
  std::vector<int> lengths;
};

namespace {

void copy(int* into, const std::array<int, CUDNN_DIM_MAX>& from, int wanted, int there) {
  std::copy_n(from.begin(), std::min({wanted, there, static_cast<int>(from.size())}), into);
}
void copy(std::array<int, CUDNN_DIM_MAX>& into, const int* from, int count) {
  std::copy_n(from, std::clamp(count, 0, static_cast<int>(into.size())), into.begin());
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): names
#define DESCRIPTOR(Name)                                                         \
  cudnnStatus_t cudnnCreate##Name##Descriptor(cudnn##Name##Descriptor_t* made) { \
    CUDNN_FUNCTION(cudnnCreate##Name##Descriptor);                               \
    *made = new cudnn##Name##Struct;                                             \
    return CUDNN_STATUS_SUCCESS;                                                 \
  }                                                                              \
  cudnnStatus_t cudnnDestroy##Name##Descriptor(cudnn##Name##Descriptor_t made) { \
    CUDNN_FUNCTION(cudnnDestroy##Name##Descriptor);                              \
    delete made;                                                                 \
    return CUDNN_STATUS_SUCCESS;                                                 \
  }
// NOLINTEND(bugprone-macro-parentheses)
#define NEED(descriptor) \
  if ((descriptor) == nullptr) return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor")

extern "C" {

DESCRIPTOR(Tensor)
DESCRIPTOR(Filter)
DESCRIPTOR(Convolution)
DESCRIPTOR(Activation)
DESCRIPTOR(RNN)
DESCRIPTOR(RNNData)

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int rank,
                                         const int* size, const int* stride) {
  CUDNN_FUNCTION(cudnnSetTensorNdDescriptor);
  NEED(tensor);
  tensor->type = type;
  tensor->rank = rank;
  copy(tensor->size, size, rank);
  copy(tensor->stride, stride, rank);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, int wanted, cudnnDataType_t* type,
                                         int* rank, int* size, int* stride) {
  CUDNN_FUNCTION(cudnnGetTensorNdDescriptor);
  NEED(tensor);
  *type = tensor->type;
  *rank = tensor->rank;
  copy(size, tensor->size, wanted, tensor->rank);
  copy(stride, tensor->stride, wanted, tensor->rank);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int* size) {
  CUDNN_FUNCTION(cudnnSetFilterNdDescriptor);
  NEED(filter);
  filter->type = type;
  filter->format = format;
  filter->rank = rank;
  copy(filter->size, size, rank);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterNdDescriptor(cudnnFilterDescriptor_t filter, int wanted, cudnnDataType_t* type,
                                         cudnnTensorFormat_t* format, int* rank, int* size) {
  CUDNN_FUNCTION(cudnnGetFilterNdDescriptor);
  NEED(filter);
  *type = filter->type;
  *format = filter->format;
  *rank = filter->rank;
  copy(size, filter->size, wanted, filter->rank);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int rank,
                                              const int* pad, const int* stride, const int* dilation,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  CUDNN_FUNCTION(cudnnSetConvolutionNdDescriptor);
  NEED(convolution);
  convolution->rank = rank;
  copy(convolution->pad, pad, rank);
  copy(convolution->stride, stride, rank);
  copy(convolution->dilation, dilation, rank);
  convolution->mode = mode;
  convolution->compute = compute;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int wanted, int* rank,
                                              int* pad, int* stride, int* dilation,
                                              cudnnConvolutionMode_t* mode, cudnnDataType_t* compute) {
  CUDNN_FUNCTION(cudnnGetConvolutionNdDescriptor);
  NEED(convolution);
  *rank = convolution->rank;
  copy(pad, convolution->pad, wanted, convolution->rank);
  copy(stride, convolution->stride, wanted, convolution->rank);
  copy(dilation, convolution->dilation, wanted, convolution->rank);
  *mode = convolution->mode;
  *compute = convolution->compute;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  CUDNN_FUNCTION(cudnnSetConvolutionGroupCount);
  NEED(convolution);
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int* groups) {
  CUDNN_FUNCTION(cudnnGetConvolutionGroupCount);
  NEED(convolution);
  *groups = convolution->groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  CUDNN_FUNCTION(cudnnSetConvolutionMathType);
  NEED(convolution);
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t* math) {
  CUDNN_FUNCTION(cudnnGetConvolutionMathType);
  NEED(convolution);
  *math = convolution->math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double coefficient) {
  CUDNN_FUNCTION(cudnnSetActivationDescriptor);
  NEED(activation);
  *activation = {mode, nan, coefficient};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetActivationDescriptor(cudnnActivationDescriptor_t activation,
                                           cudnnActivationMode_t* mode, cudnnNanPropagation_t* nan,
                                           double* coefficient) {
  CUDNN_FUNCTION(cudnnGetActivationDescriptor);
  NEED(activation);
  *mode = activation->mode;
  *nan = activation->nan;
  *coefficient = activation->coefficient;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm,
                                       cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t directions, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t compute, cudnnMathType_t math,
                                       int32_t input_size, int32_t hidden_size, int32_t projection_size,
                                       int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  CUDNN_FUNCTION(cudnnSetRNNDescriptor_v8);
  NEED(rnn);
  *rnn = {algorithm, cell,       bias,        directions,      input,  type,    compute,
          math,      input_size, hidden_size, projection_size, layers, dropout, flags};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t* algorithm,
                                       cudnnRNNMode_t* cell, cudnnRNNBiasMode_t* bias,
                                       cudnnDirectionMode_t* directions, cudnnRNNInputMode_t* input,
                                       cudnnDataType_t* type, cudnnDataType_t* compute, cudnnMathType_t* math,
                                       int32_t* input_size, int32_t* hidden_size, int32_t* projection_size,
                                       int32_t* layers, cudnnDropoutDescriptor_t* dropout, uint32_t* flags) {
  CUDNN_FUNCTION(cudnnGetRNNDescriptor_v8);
  NEED(rnn);
  *algorithm = rnn->algorithm;
  *cell = rnn->cell;
  *bias = rnn->bias;
  *directions = rnn->directions;
  *input = rnn->input;
  *type = rnn->type;
  *compute = rnn->compute;
  *math = rnn->math;
  *input_size = rnn->input_size;
  *hidden_size = rnn->hidden_size;
  *projection_size = rnn->projection_size;
  *layers = rnn->layers;
  *dropout = rnn->dropout;
  *flags = rnn->flags;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int length, int batch, int width,
                                        const int* lengths, void* /*fill*/) {
  CUDNN_FUNCTION(cudnnSetRNNDataDescriptor);
  NEED(data);
  *data = {type, layout, length, width, std::vector<int>(lengths, lengths + batch)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t* type,
                                        cudnnRNNDataLayout_t* layout, int* length, int* batch, int* width,
                                        int wanted, int* lengths, void* /*fill*/) {
  CUDNN_FUNCTION(cudnnGetRNNDataDescriptor);
  NEED(data);
  *type = data->type;
  *layout = data->layout;
  *length = data->length;
  *batch = static_cast<int>(data->lengths.size());
  *width = data->width;
  std::copy_n(data->lengths.begin(), std::min(wanted, *batch), lengths);
  return CUDNN_STATUS_SUCCESS;
}
}
