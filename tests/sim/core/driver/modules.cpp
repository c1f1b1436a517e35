// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Modules, libraries and the functions in them. Images are not read: a module has every kernel that is asked
// for. A missing one can be had by a fault on cuModuleGetFunction.
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {
namespace {

CUresult load_module(CUmodule* module) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *module = reinterpret_cast<CUmodule>(new int(0));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoad(CUmodule* module, const char*) {
  return load_module(module);
}

CUresult cuModuleLoadData(CUmodule* module, const void*) {
  return load_module(module);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned int, CUjit_option*, void**) {
  return load_module(module);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) {
  return load_module(module);
}

CUresult cuModuleUnload(CUmodule hmod) {
  delete reinterpret_cast<int*>(hmod);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule, const char* name) {
  *hfunc = reinterpret_cast<CUfunction>(&kernel_by_name(name));
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  *library = reinterpret_cast<CUlibrary>(new int(0));
  return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library) {
  delete reinterpret_cast<int*>(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary, const char* name) {
  *pKernel = reinterpret_cast<CUkernel>(&kernel_by_name(name));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = reinterpret_cast<Kernel*>(hfunc)->name;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  return impl::cuFuncGetName(name, reinterpret_cast<CUfunction>(hfunc));
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction) {
  *pi = attrib == CU_FUNC_ATTRIBUTE_NUM_REGS                ? 32
        : attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
                                                            : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  return CUDA_SUCCESS;
}

}  // namespace inject::sim::drv::impl
