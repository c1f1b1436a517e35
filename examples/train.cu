// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A training loop as small as it can be and still be one: a two-layer perceptron learns to classify points by
// a hidden random matrix. GEMMs by cuBLAS, the rest by kernels of its own, the phases marked with NVTX,
// iterations 20 to 24 between cudaProfilerStart and cudaProfilerStop.
//
//   inject-train [--steps N] [--no-profiler-api]
#include <cublas_v2.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

// Kernels stand outside the namespace below: tables show their names in full.

/// x[row][column] = max(0, x + bias[column])
__global__ void add_bias_relu(float* x, const float* bias, int rows, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * columns) x[i] = fmaxf(0.0f, x[i] + bias[i % columns]);
}

/// One thread a sample: adds the sample's loss to `loss` and turns its logits into the loss's gradient.
__global__ void softmax_cross_entropy(float* logits, const float* bias, const int* labels, float* loss,
                                      int rows, int columns) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float* x = logits + row * columns;
  float largest = -1e30f;
  for (int c = 0; c < columns; ++c) {
    x[c] += bias[c];
    largest = fmaxf(largest, x[c]);
  }
  float sum = 0.0f;
  for (int c = 0; c < columns; ++c) sum += expf(x[c] - largest);
  float scale = 1.0f / static_cast<float>(rows);
  atomicAdd(loss, (logf(sum) - (x[labels[row]] - largest)) * scale);
  for (int c = 0; c < columns; ++c) {
    float probability = expf(x[c] - largest) / sum;
    x[c] = (probability - (c == labels[row] ? 1.0f : 0.0f)) * scale;
  }
}

/// gradient = 0 where the activation was cut off
__global__ void relu_backward(float* gradient, const float* activation, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && activation[i] <= 0.0f) gradient[i] = 0.0f;
}

/// One thread a column.
__global__ void sum_rows(const float* x, float* sums, int rows, int columns) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) sum += x[row * columns + column];
  sums[column] = sum;
}

__global__ void sgd_momentum(float* weight, const float* gradient, float* velocity, int count, float rate,
                             float momentum) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  velocity[i] = momentum * velocity[i] + gradient[i];
  weight[i] -= rate * velocity[i];
}

namespace {

constexpr int kBatch = 256;
constexpr int kInputs = 128;
constexpr int kHidden = 512;
constexpr int kClasses = 16;
constexpr int kBatches = 16;  // distinct batches, seen in turn
constexpr float kLearningRate = 0.05f;
constexpr float kMomentum = 0.9f;
constexpr int kFirstProfiled = 20;
constexpr int kLastProfiled = 24;

[[noreturn]] void fail(const char* what, const char* why, int line) {
  std::fprintf(stderr, "train.cu:%d: %s: %s\n", line, what, why);
  std::exit(1);
}

#define CUDA_CHECK(call)                                                            \
  do {                                                                              \
    cudaError_t status_ = (call);                                                   \
    if (status_ != cudaSuccess) fail(#call, cudaGetErrorString(status_), __LINE__); \
  } while (0)
#define CUBLAS_CHECK(call)                                                       \
  do {                                                                           \
    cublasStatus_t status_ = (call);                                             \
    if (status_ != CUBLAS_STATUS_SUCCESS) fail(#call, "cuBLAS error", __LINE__); \
  } while (0)

struct Range {
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

constexpr int kThreads = 256;
int blocks(int count) {
  return (count + kThreads - 1) / kThreads;
}

float* device_floats(std::size_t count) {
  void* pointer = nullptr;
  CUDA_CHECK(cudaMalloc(&pointer, count * sizeof(float)));
  CUDA_CHECK(cudaMemset(pointer, 0, count * sizeof(float)));
  return static_cast<float*>(pointer);
}

struct Parameter {
  int count;
  float* weight;
  float* gradient;
  float* velocity;

  /// Uniform in [-bound, bound].
  Parameter(int size, float bound, std::mt19937& random)
      : count(size),
        weight(device_floats(static_cast<std::size_t>(size))),
        gradient(device_floats(static_cast<std::size_t>(size))),
        velocity(device_floats(static_cast<std::size_t>(size))) {
    std::uniform_real_distribution<float> uniform(-bound, bound);
    std::vector<float> start(static_cast<std::size_t>(size));
    for (float& value : start) value = bound > 0.0f ? uniform(random) : 0.0f;
    CUDA_CHECK(cudaMemcpy(weight, start.data(), start.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  ~Parameter() {
    CUDA_CHECK(cudaFree(weight));
    CUDA_CHECK(cudaFree(gradient));
    CUDA_CHECK(cudaFree(velocity));
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  void update(cudaStream_t stream) {
    sgd_momentum<<<blocks(count), kThreads, 0, stream>>>(weight, gradient, velocity, count, kLearningRate,
                                                         kMomentum);
    CUDA_CHECK(cudaGetLastError());
  }
};

/// Pinned host memory holding every batch: points, and the class that a hidden matrix gives them.
struct Dataset {
  float* points = nullptr;
  int* labels = nullptr;

  explicit Dataset(std::mt19937& random) {
    std::size_t samples = static_cast<std::size_t>(kBatches) * kBatch;
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&points), samples * kInputs * sizeof(float)));
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&labels), samples * sizeof(int)));
    std::normal_distribution<float> normal;
    std::vector<float> hidden(kInputs * kClasses);
    for (float& value : hidden) value = normal(random);
    for (std::size_t i = 0; i < samples; ++i) {
      float* point = points + i * kInputs;
      for (int d = 0; d < kInputs; ++d) point[d] = normal(random);
      float best = -INFINITY;
      for (int c = 0; c < kClasses; ++c) {
        float score = 0.0f;
        for (int d = 0; d < kInputs; ++d)
          score += point[d] * hidden[static_cast<std::size_t>(d * kClasses + c)];
        if (score > best) {
          best = score;
          labels[i] = c;
        }
      }
    }
  }
  ~Dataset() {
    CUDA_CHECK(cudaFreeHost(points));
    CUDA_CHECK(cudaFreeHost(labels));
  }
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
};

class Trainer {
 public:
  explicit Trainer(std::mt19937& random)
      : data_(random),
        w1_(kInputs * kHidden, 1.0f / std::sqrt(static_cast<float>(kInputs)), random),
        b1_(kHidden, 0.0f, random),
        w2_(kHidden * kClasses, 1.0f / std::sqrt(static_cast<float>(kHidden)), random),
        b2_(kClasses, 0.0f, random) {
    CUDA_CHECK(cudaStreamCreate(&stream_));
    CUBLAS_CHECK(cublasCreate(&cublas_));
    CUBLAS_CHECK(cublasSetStream(cublas_, stream_));
    points_ = device_floats(kBatch * kInputs);
    hidden_ = device_floats(kBatch * kHidden);
    hidden_gradient_ = device_floats(kBatch * kHidden);
    logits_ = device_floats(kBatch * kClasses);
    loss_ = device_floats(1);
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&labels_), kBatch * sizeof(int)));
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&host_loss_), sizeof(float)));
  }

  ~Trainer() {
    CUBLAS_CHECK(cublasDestroy(cublas_));
    CUDA_CHECK(cudaStreamDestroy(stream_));
    for (float* pointer : {points_, hidden_, hidden_gradient_, logits_, loss_}) CUDA_CHECK(cudaFree(pointer));
    CUDA_CHECK(cudaFree(labels_));
    CUDA_CHECK(cudaFreeHost(host_loss_));
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void step(int iteration) {
    Range range("iteration");
    load(iteration % kBatches);
    forward();
    backward();
    Range optimizer("optimizer");
    for (Parameter* parameter : {&w1_, &b1_, &w2_, &b2_}) parameter->update(stream_);
  }

  /// Waits for the last step.
  float loss() {
    CUDA_CHECK(cudaMemcpyAsync(host_loss_, loss_, sizeof(float), cudaMemcpyDeviceToHost, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return *host_loss_;
  }

 private:
  void load(int batch) {
    Range range("data");
    std::size_t first = static_cast<std::size_t>(batch) * kBatch;
    CUDA_CHECK(cudaMemcpyAsync(points_, data_.points + first * kInputs, kBatch * kInputs * sizeof(float),
                               cudaMemcpyHostToDevice, stream_));
    CUDA_CHECK(cudaMemcpyAsync(labels_, data_.labels + first, kBatch * sizeof(int), cudaMemcpyHostToDevice,
                               stream_));
  }

  void forward() {
    Range range("forward");
    // Row-major matrices are cuBLAS's column-major ones transposed: C = A B is asked for as C' = B' A'.
    multiply(CUBLAS_OP_N, CUBLAS_OP_N, kHidden, kBatch, kInputs, w1_.weight, kHidden, points_, kInputs,
             hidden_);
    add_bias_relu<<<blocks(kBatch * kHidden), kThreads, 0, stream_>>>(hidden_, b1_.weight, kBatch, kHidden);
    CUDA_CHECK(cudaGetLastError());
    multiply(CUBLAS_OP_N, CUBLAS_OP_N, kClasses, kBatch, kHidden, w2_.weight, kClasses, hidden_, kHidden,
             logits_);
    CUDA_CHECK(cudaMemsetAsync(loss_, 0, sizeof(float), stream_));
    softmax_cross_entropy<<<blocks(kBatch), kThreads, 0, stream_>>>(logits_, b2_.weight, labels_, loss_,
                                                                    kBatch, kClasses);
    CUDA_CHECK(cudaGetLastError());
  }

  void backward() {
    Range range("backward");
    const float* gradient = logits_;
    multiply(CUBLAS_OP_N, CUBLAS_OP_T, kClasses, kHidden, kBatch, gradient, kClasses, hidden_, kHidden,
             w2_.gradient);
    sum_rows<<<blocks(kClasses), kThreads, 0, stream_>>>(gradient, b2_.gradient, kBatch, kClasses);
    CUDA_CHECK(cudaGetLastError());
    multiply(CUBLAS_OP_T, CUBLAS_OP_N, kHidden, kBatch, kClasses, w2_.weight, kClasses, gradient, kClasses,
             hidden_gradient_);
    relu_backward<<<blocks(kBatch * kHidden), kThreads, 0, stream_>>>(hidden_gradient_, hidden_,
                                                                      kBatch * kHidden);
    CUDA_CHECK(cudaGetLastError());
    multiply(CUBLAS_OP_N, CUBLAS_OP_T, kHidden, kInputs, kBatch, hidden_gradient_, kHidden, points_, kInputs,
             w1_.gradient);
    sum_rows<<<blocks(kHidden), kThreads, 0, stream_>>>(hidden_gradient_, b1_.gradient, kBatch, kHidden);
    CUDA_CHECK(cudaGetLastError());
  }

  /// c = op(a) op(b), column-major, c without padding. TF32 inputs: what frameworks train FP32 models with.
  void multiply(cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const float* a, int lda,
                const float* b, int ldb, float* c) {
    const float one = 1.0f;
    const float zero = 0.0f;
    CUBLAS_CHECK(cublasGemmEx(cublas_, op_a, op_b, m, n, k, &one, a, CUDA_R_32F, lda, b, CUDA_R_32F, ldb,
                              &zero, c, CUDA_R_32F, m, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT));
  }

  Dataset data_;
  Parameter w1_, b1_, w2_, b2_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  float* points_ = nullptr;
  float* hidden_ = nullptr;
  float* hidden_gradient_ = nullptr;
  float* logits_ = nullptr;  // after the forward pass: their gradient
  float* loss_ = nullptr;
  int* labels_ = nullptr;
  float* host_loss_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  int steps = 30;
  bool profiler_api = true;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      steps = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--no-profiler-api") == 0) {
      profiler_api = false;
    } else {
      std::fprintf(stderr, "usage: %s [--steps N] [--no-profiler-api]\n", argv[0]);
      return 2;
    }
  }

  std::mt19937 random(1);
  Trainer trainer(random);
  for (int iteration = 0; iteration < steps; ++iteration) {
    if (profiler_api && iteration == kFirstProfiled) CUDA_CHECK(cudaProfilerStart());
    trainer.step(iteration);
    if (iteration % 5 == 4 || iteration + 1 == steps)
      std::printf("step %4d  loss %.4f\n", iteration, static_cast<double>(trainer.loss()));
    if (profiler_api && iteration == kLastProfiled) CUDA_CHECK(cudaProfilerStop());
  }
  CUDA_CHECK(cudaDeviceSynchronize());
  return 0;
}
