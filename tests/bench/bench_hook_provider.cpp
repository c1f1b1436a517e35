// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Functions under the vendor's names that do nothing, with as many arguments as the vendor's: what is left of
// a call is the way there.
using Word = unsigned long;

#define SIX Word, Word, Word, Word, Word, Word
#define NOTHING(name, ...)                                                 \
  __attribute__((visibility("default"), noinline)) int name(__VA_ARGS__) { \
    return 0;                                                              \
  }

extern "C" {
NOTHING(cudaGetLastError)
NOTHING(cudaStreamSynchronize, Word)
NOTHING(cudaMemcpyAsync, Word, Word, Word, Word, Word)
NOTHING(cublasSgemm_v2, SIX, SIX, Word, Word)
NOTHING(cublasGemmStridedBatchedEx, SIX, SIX, SIX, Word, Word, Word, Word, Word)
NOTHING(cudnnNormalizationBackward, SIX, SIX, SIX, SIX, SIX, Word, Word, Word)
}
