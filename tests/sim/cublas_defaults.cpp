// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What cublas.cpp does not define: every product and vector operation launches one kernel named for the
// function.
#include <cublas_v2.h>

#include "tests/sim/core/library.h"
#include "tests/sim/defaults.h"

namespace {
constexpr const char* kLibrary = "libcublas.so.13";
constexpr inject::sim::Domain kDomain = inject::sim::Domain::kNone;

template <class First, class... A>
int sim_default_work(const inject::sim::Function& function, inject::sim::SimCategory category, First first,
                     A...) {
  using inject::sim::SimCategory;
  if (category != SimCategory::kGemm && category != SimCategory::kBlas) return 0;
  if constexpr (std::is_same_v<First, cublasHandle_t>) {
    cudaStream_t stream = nullptr;
    if (cublasGetStream_v2(first, &stream) != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (inject::sim::library::launch((function.name + "_kernel").c_str(), 132, 256, stream) != 0)
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return 0;
}
}  // namespace

// Overloaded inline by the header; cublas.cpp defines them.
#define SIM_SKIP_cublasGemmEx ~, 1
#define SIM_SKIP_cublasGemmBatchedEx ~, 1
#define SIM_SKIP_cublasGemmStridedBatchedEx ~, 1

#include "libinject/model/cublas.def"
