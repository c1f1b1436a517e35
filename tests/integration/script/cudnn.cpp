// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/integration/script/cudnn.h"

#include <cudnn.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace script {

namespace {

constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

cudnnHandle_t handle() {
  thread_local cudnnHandle_t made = nullptr;
  if (made == nullptr) report("cudnnCreate", cudnnCreate(&made));
  return made;
}

// 64 channels of 56 × 56, 128 filters of 3 × 3, stride 2.
constexpr int kChannels = 64;
constexpr int kFilters = 128;
constexpr int kIn = 56;
constexpr int kOut = 28;

cudnnTensorDescriptor_t tensor(cudnnDataType_t type, std::array<int, 4> size) {
  cudnnTensorDescriptor_t made = nullptr;
  report("cudnnCreateTensorDescriptor", cudnnCreateTensorDescriptor(&made));
  const int stride[4] = {size[1] * size[2] * size[3], 1, size[3] * size[1], size[1]};
  report("cudnnSetTensorNdDescriptor", cudnnSetTensorNdDescriptor(made, type, 4, size.data(), stride));
  return made;
}

void convolve(const Arguments& a, bool with_null) {
  const std::string direction = a.text(1);
  const int batch = static_cast<int>(a.number(2, 8));
  const int groups = static_cast<int>(a.number(3, 1));
  cudnnTensorDescriptor_t x = tensor(CUDNN_DATA_HALF, {batch, kChannels, kIn, kIn});
  cudnnTensorDescriptor_t y = tensor(CUDNN_DATA_HALF, {batch, kFilters, kOut, kOut});
  cudnnFilterDescriptor_t w = nullptr;
  report("cudnnCreateFilterDescriptor", cudnnCreateFilterDescriptor(&w));
  const int filter[4] = {kFilters, kChannels / groups, 3, 3};
  report("cudnnSetFilterNdDescriptor",
         cudnnSetFilterNdDescriptor(w, CUDNN_DATA_HALF, CUDNN_TENSOR_NHWC, 4, filter));
  cudnnConvolutionDescriptor_t how = nullptr;
  report("cudnnCreateConvolutionDescriptor", cudnnCreateConvolutionDescriptor(&how));
  const int pad[2] = {1, 1};
  const int stride[2] = {2, 2};
  const int dilation[2] = {1, 1};
  report("cudnnSetConvolutionNdDescriptor",
         cudnnSetConvolutionNdDescriptor(how, 2, pad, stride, dilation, CUDNN_CROSS_CORRELATION,
                                         CUDNN_DATA_FLOAT));
  report("cudnnSetConvolutionGroupCount", cudnnSetConvolutionGroupCount(how, groups));
  cudnnTensorDescriptor_t given = with_null ? nullptr : x;
  if (direction == "forward") {
    report("cudnnConvolutionForward",
           cudnnConvolutionForward(handle(), &kOne, given, nullptr, w, nullptr, how,
                                   CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, nullptr, 0, &kZero, y, nullptr));
  } else if (direction == "data") {
    report(
        "cudnnConvolutionBackwardData",
        cudnnConvolutionBackwardData(handle(), &kOne, w, nullptr, y, nullptr, how,
                                     CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, nullptr, 0, &kZero, given, nullptr));
  } else if (direction == "filter") {
    report(
        "cudnnConvolutionBackwardFilter",
        cudnnConvolutionBackwardFilter(handle(), &kOne, given, nullptr, y, nullptr, how,
                                       CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, nullptr, 0, &kZero, w, nullptr));
  } else {
    cudnnActivationDescriptor_t activation = nullptr;
    report("cudnnCreateActivationDescriptor", cudnnCreateActivationDescriptor(&activation));
    report("cudnnSetActivationDescriptor",
           cudnnSetActivationDescriptor(activation, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    cudnnTensorDescriptor_t bias = tensor(CUDNN_DATA_FLOAT, {1, kFilters, 1, 1});
    report("cudnnConvolutionBiasActivationForward",
           cudnnConvolutionBiasActivationForward(handle(), &kOne, given, nullptr, w, nullptr, how,
                                                 CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, nullptr, 0,
                                                 direction == "sum" ? &kOne : &kZero, y, nullptr, bias,
                                                 nullptr, activation, y, nullptr));
    report("cudnnDestroyTensorDescriptor", cudnnDestroyTensorDescriptor(bias));
    report("cudnnDestroyActivationDescriptor", cudnnDestroyActivationDescriptor(activation));
  }
  report("cudnnDestroyConvolutionDescriptor", cudnnDestroyConvolutionDescriptor(how));
  report("cudnnDestroyFilterDescriptor", cudnnDestroyFilterDescriptor(w));
  report("cudnnDestroyTensorDescriptor", cudnnDestroyTensorDescriptor(y));
  report("cudnnDestroyTensorDescriptor", cudnnDestroyTensorDescriptor(x));
}

/// A descriptor of the graph API, destroyed at the end of its scope, like the front end's.
class Backend {
 public:
  explicit Backend(cudnnBackendDescriptorType_t type) {
    report("cudnnBackendCreateDescriptor", cudnnBackendCreateDescriptor(type, &descriptor_));
  }
  ~Backend() {
    if (descriptor_ != nullptr)
      report("cudnnBackendDestroyDescriptor", cudnnBackendDestroyDescriptor(descriptor_));
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  template <typename T, std::size_t kCount>
  Backend& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               const std::array<T, kCount>& values) {
    report(
        "cudnnBackendSetAttribute",
        cudnnBackendSetAttribute(descriptor_, name, type, static_cast<std::int64_t>(kCount), values.data()));
    return *this;
  }
  Backend& set(cudnnBackendAttributeName_t name, const Backend& other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::array{other.descriptor_});
  }
  Backend& finalize() {
    report("cudnnBackendFinalize", cudnnBackendFinalize(descriptor_));
    return *this;
  }
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  cudnnBackendDescriptor_t release() { return std::exchange(descriptor_, nullptr); }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

class GraphTensor : public Backend {
 public:
  enum class Order { kChannelsLast, kRowMajor };
  GraphTensor(std::int64_t id, std::array<std::int64_t, 4> size, bool is_virtual = false,
              Order order = Order::kChannelsLast)
      : Backend(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    std::array<std::int64_t, 4> stride{size[1] * size[2] * size[3], 1, size[3] * size[1], size[1]};
    if (order == Order::kRowMajor) stride = {stride[0], size[2] * size[3], size[3], 1};
    set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::array{id});
    set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::array{CUDNN_DATA_HALF});
    set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, size);
    set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, stride);
    set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, std::array{is_virtual});
    finalize();
  }
};

std::mutex mutex;
std::map<std::string, cudnnBackendDescriptor_t> plans;

cudnnBackendDescriptor_t make_plan(const std::string& direction, std::int64_t batch, std::int64_t index) {
  const GraphTensor x('x', {batch, kChannels, kIn, kIn});
  const GraphTensor w('w', {kFilters, kChannels, 3, 3});
  const GraphTensor y('y', {batch, kFilters, kOut, kOut}, direction == "fused");
  const GraphTensor z('z', {batch, kFilters, kOut, kOut});
  Backend how(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  constexpr std::array<std::int64_t, 2> kOnes{1, 1};
  constexpr std::array<std::int64_t, 2> kTwos{2, 2};
  how.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::array{CUDNN_DATA_FLOAT})
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, kOnes)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, kTwos)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, kOnes)
      .finalize();
  Backend relu(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  relu.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::array{CUDNN_POINTWISE_RELU_FWD})
      .finalize();
  Backend activation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  activation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, relu)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, y)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, z)
      .finalize();

  const auto operation_type =
      direction == "data"      ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
      : direction == "filter"  ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
      : direction == "pooling" ? CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR
      : direction == "matmul"  ? CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
                               : CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  Backend operation(operation_type);
  // Row-major, 96 × 32 = (96 × 64) · (64 × 32), one per sample.
  const GraphTensor left('a', {1, batch, 96, 64}, false, GraphTensor::Order::kRowMajor);
  const GraphTensor right('b', {1, batch, 64, 32}, false, GraphTensor::Order::kRowMajor);
  const GraphTensor result('c', {1, batch, 96, 32}, false, GraphTensor::Order::kRowMajor);
  if (direction == "data") {
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y);
  } else if (direction == "filter") {
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, y);
  } else if (direction == "matmul") {
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, left)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, right)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, result);
  } else if (direction != "pooling") {
    operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
  }
  operation.finalize();
  Backend graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (direction == "attention") {
    // 8 heads, 512 queries and 256 keys of 64.
    using Order = GraphTensor::Order;
    const GraphTensor q('q', {batch, 8, 512, 64}, false, Order::kRowMajor);
    const GraphTensor k('k', {batch, 8, 64, 256}, false, Order::kRowMajor);
    const GraphTensor v('v', {batch, 8, 256, 64}, false, Order::kRowMajor);
    const GraphTensor o('o', {batch, 8, 512, 64}, false, Order::kRowMajor);
    const GraphTensor scores('s', {batch, 8, 512, 256}, true, Order::kRowMajor);
    const GraphTensor weights('p', {batch, 8, 512, 256}, true, Order::kRowMajor);
    Backend exponential(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    exponential.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::array{CUDNN_POINTWISE_EXP})
        .finalize();
    Backend first(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    first.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, q)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, k)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, scores)
        .finalize();
    Backend softmax(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    softmax.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, exponential)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, scores)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, weights)
        .finalize();
    Backend second(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    second.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, weights)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, v)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, o)
        .finalize();
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              std::array{first.get(), softmax.get(), second.get()});
  } else if (direction == "fused") {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              std::array{operation.get(), activation.get()});
  } else {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  }
  graph.finalize();
  Backend engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::array{index})
      .finalize();
  Backend config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine).finalize();
  Backend plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).finalize();
  return plan.release();
}

void keep_plan(const Arguments& a) {
  cudnnBackendDescriptor_t plan = make_plan(a.text(2), static_cast<std::int64_t>(a.number(3, 8)),
                                            static_cast<std::int64_t>(a.number(4, 62)));
  const std::lock_guard lock(mutex);
  plans[a.text(1)] = plan;
}

void use_plan(const Arguments& a) {
  cudnnBackendDescriptor_t plan = make_plan(a.text(1), static_cast<std::int64_t>(a.number(2, 8)), 62);
  report("cudnnBackendExecute", cudnnBackendExecute(handle(), plan, nullptr));
  report("cudnnBackendDestroyDescriptor", cudnnBackendDestroyDescriptor(plan));
}

cudnnBackendDescriptor_t plan_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  return name == "null" ? nullptr : plans.at(name);
}

void normalize(const Arguments& a) {
  cudnnTensorDescriptor_t x = tensor(CUDNN_DATA_FLOAT, {32, 64, 56, 56});
  cudnnTensorDescriptor_t scale = tensor(CUDNN_DATA_FLOAT, {1, 64, 1, 1});
  const std::string direction = a.text(1);
  if (direction == "training") {
    report("cudnnBatchNormalizationForwardTraining",
           cudnnBatchNormalizationForwardTraining(handle(), CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, x,
                                                  nullptr, x, nullptr, scale, nullptr, nullptr, 0.1, nullptr,
                                                  nullptr, 1e-5, nullptr, nullptr));
  } else if (direction == "inference") {
    report(
        "cudnnBatchNormalizationForwardInference",
        cudnnBatchNormalizationForwardInference(handle(), CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, x, nullptr,
                                                x, nullptr, scale, nullptr, nullptr, nullptr, nullptr, 1e-5));
  } else {
    report("cudnnBatchNormalizationBackwardEx",
           cudnnBatchNormalizationBackwardEx(
               handle(), CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, &kOne, &kZero, &kOne,
               &kZero, x, nullptr, x, nullptr, x, nullptr, x, nullptr, x, nullptr, scale, nullptr, nullptr,
               nullptr, nullptr, 1e-5, nullptr, nullptr, nullptr, nullptr, 0, nullptr, 0));
  }
  report("cudnnDestroyTensorDescriptor", cudnnDestroyTensorDescriptor(scale));
  report("cudnnDestroyTensorDescriptor", cudnnDestroyTensorDescriptor(x));
}

// Two layers in both directions, 256 to 512, over four sequences of 20, 15, 9 and 3 steps, in memory for 25.
// even: 20 steps each; projected: the state has 128 elements; skip: without input products, 512 wide; many:
// 3000 sequences of 20 steps.
void recur(const Arguments& a) {
  const std::string variant = a.text(2);
  const bool skip = variant == "skip";
  const std::int32_t width = skip ? 512 : 256;
  cudnnRNNDescriptor_t rnn = nullptr;
  report("cudnnCreateRNNDescriptor", cudnnCreateRNNDescriptor(&rnn));
  report("cudnnSetRNNDescriptor_v8",
         cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_PERSIST_STATIC, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                                  CUDNN_BIDIRECTIONAL, skip ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT,
                                  CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH, width, 512,
                                  variant == "projected" ? 128 : 512, 2, nullptr, 0));
  cudnnRNNDataDescriptor_t x = nullptr;
  report("cudnnCreateRNNDataDescriptor", cudnnCreateRNNDataDescriptor(&x));
  std::vector<int> lengths{20, 15, 9, 3};
  if (variant == "even") lengths.assign(4, 20);
  if (variant == "many") lengths.assign(3000, 20);
  float fill = 0;
  report("cudnnSetRNNDataDescriptor",
         cudnnSetRNNDataDescriptor(x, CUDNN_DATA_HALF, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 25,
                                   static_cast<int>(lengths.size()), width, lengths.data(), &fill));
  const std::string direction = a.text(1);
  if (direction == "forward") {
    report("cudnnRNNForward",
           cudnnRNNForward(handle(), rnn, CUDNN_FWD_MODE_TRAINING, nullptr, x, nullptr, x, nullptr, nullptr,
                           nullptr, nullptr, nullptr, nullptr, nullptr, 0, nullptr, 0, nullptr, 0, nullptr));
  } else if (direction == "data") {
    report("cudnnRNNBackwardData_v8",
           cudnnRNNBackwardData_v8(handle(), rnn, nullptr, x, nullptr, nullptr, x, nullptr, nullptr, nullptr,
                                   nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, nullptr, 0,
                                   nullptr, 0, nullptr));
  } else {
    report("cudnnRNNBackwardWeights_v8",
           cudnnRNNBackwardWeights_v8(handle(), rnn, CUDNN_WGRAD_MODE_ADD, nullptr, x, nullptr, nullptr,
                                      nullptr, x, nullptr, 0, nullptr, 0, nullptr, 0, nullptr));
  }
  report("cudnnDestroyRNNDataDescriptor", cudnnDestroyRNNDataDescriptor(x));
  report("cudnnDestroyRNNDescriptor", cudnnDestroyRNNDescriptor(rnn));
}

}  // namespace

void add_cudnn(Operations& operations) {
  operations["conv"] = [](const Arguments& a) { convolve(a, false); };
  operations["conv_null"] = [](const Arguments& a) { convolve(a, true); };
  operations["plan"] = keep_plan;
  operations["use"] = use_plan;
  operations["bad_plan"] = [](const Arguments& a) {
    Backend plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.finalize();
    const std::lock_guard lock(mutex);
    plans[a.text(1)] = plan.release();
  };
  operations["execute"] = [](const Arguments& a) {
    report("cudnnBackendExecute", cudnnBackendExecute(handle(), plan_of(a.text(1)), nullptr));
  };
  operations["populate"] = [](const Arguments& a) {  // populate:PLAN:LAUNCHES
    cudaGraph_t graph = nullptr;
    report("cudaGraphCreate", cudaGraphCreate(&graph, 0));
    report("cudnnBackendPopulateCudaGraph",
           cudnnBackendPopulateCudaGraph(handle(), plan_of(a.text(1)), nullptr, graph));
    report("cudnnBackendUpdateCudaGraph",
           cudnnBackendUpdateCudaGraph(handle(), plan_of(a.text(1)), nullptr, graph));
    cudaGraphExec_t executable = nullptr;
    report("cudaGraphInstantiate", cudaGraphInstantiate(&executable, graph, 0));
    for (std::uint64_t i = 0; i < a.number(2); ++i)
      report("cudaGraphLaunch", cudaGraphLaunch(executable, nullptr));
  };
  operations["drop"] = [](const Arguments& a) {
    report("cudnnBackendDestroyDescriptor", cudnnBackendDestroyDescriptor(plan_of(a.text(1))));
  };
  operations["rnn"] = recur;
  operations["norm"] = normalize;
  operations["last_text"] = [](const Arguments&) {
    std::array<char, 256> text{};
    cudnnGetLastErrorString(text.data(), text.size());
    std::printf("last error: %s\n", text.data());
    std::fflush(stdout);
  };
}

}  // namespace script
