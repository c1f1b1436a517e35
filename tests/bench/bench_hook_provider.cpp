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

struct Dim {
  unsigned x, y, z;
};

extern "C" {
NOTHING(cudaGetLastError)
NOTHING(cudaFree, void*)
NOTHING(cudaPeekAtLastError)
NOTHING(cudaLaunchKernel, const void*, Dim, Dim, void**, unsigned long, void*)
NOTHING(cudaStreamSynchronize, Word)
NOTHING(cudaMemcpyAsync, Word, Word, Word, Word, Word)
NOTHING(cublasSgemm_v2, SIX, SIX, Word, Word)
NOTHING(cublasGemmStridedBatchedEx, SIX, SIX, SIX, Word, Word, Word, Word, Word)
NOTHING(cudnnNormalizationBackward, SIX, SIX, SIX, SIX, SIX, Word, Word, Word)
NOTHING(cudnnBackendExecute, Word, Word, Word)
NOTHING(cublasLtMatmul, SIX, SIX, Word, Word, Word, Word)
NOTHING(cublasSscal_v2, Word, Word, Word, Word, Word)

// Addresses of their own, again after some hundred.
__attribute__((visibility("default"), noinline)) int cudaMalloc(void** memory, unsigned long) {
  static unsigned long next = 0;
  *memory = reinterpret_cast<void*>(0x7f00'0000'0000u + (next++ & 511) * 512);
  return 0;
}

// What hooks ask of a handle and of descriptors.
__attribute__((visibility("default"), noinline)) int cublasGetMathMode(Word, int* mode) {
  *mode = 0;
  return 0;
}
__attribute__((visibility("default"), noinline)) int cublasLtMatrixLayoutGetAttribute(
    const Word* layout, int attribute, void* value, unsigned long size, unsigned long*) {
  __builtin_memcpy(value, &layout[attribute & 7], size);
  return 0;
}
__attribute__((visibility("default"), noinline)) int cublasLtMatmulDescGetAttribute(
    const Word* desc, int attribute, void* value, unsigned long size, unsigned long*) {
  __builtin_memcpy(value, &desc[attribute & 7], size);
  return 0;
}

// The search asks for it once for each kernel.
__attribute__((visibility("default"))) int cudaFuncGetName(const char** name, const void*) {
  *name = "kernel";
  return 0;
}
}
