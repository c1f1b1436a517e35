// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What cublaslt.cpp does not define.
#include <cublasLt.h>

#include "tests/sim/core/library.h"
#include "tests/sim/defaults.h"

namespace {
constexpr const char* kLibrary = "libcublasLt.so.13";
constexpr inject::sim::Domain kDomain = inject::sim::Domain::kNone;

template <class... A>
int sim_default_work(const inject::sim::Function& function, inject::sim::SimCategory category,
                     A... arguments) {
  using Last = std::tuple_element_t<sizeof...(A) - 1, std::tuple<A...>>;
  if constexpr (std::is_same_v<Last, cudaStream_t>) {
    if (category != inject::sim::SimCategory::kBlas && category != inject::sim::SimCategory::kGemm) return 0;
    cudaStream_t stream = std::get<sizeof...(A) - 1>(std::tuple<A...>(arguments...));
    if (inject::sim::library::launch((function.name + "_kernel").c_str(), 132, 256, stream) != 0)
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return 0;
}
}  // namespace

#include "libinject/model/cublaslt.def"
