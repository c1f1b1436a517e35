// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/model/functions.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "libinject/analysis/idle_time.h"

using inject::asks_for_work;
using inject::Category;
using inject::function_category;
using inject::function_group;
using inject::function_name;
using inject::FunctionGroup;
using inject::FunctionId;
using inject::host_state_of;
using inject::HostState;
using inject::is_bookkeeping;
using inject::kFunctionCount;

namespace {

// The functions that an ELF file defines and exports, from its section table; empty if the file does not
// exist.
std::set<std::string> exported_functions(const std::string& path) {
  std::set<std::string> names;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return names;
  struct stat status {};
  if (fstat(file, &status) == 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped != MAP_FAILED) {
      const auto* base = static_cast<const char*>(mapped);
      ElfW(Ehdr) header;
      std::memcpy(&header, base, sizeof(header));
      std::vector<ElfW(Shdr)> sections(header.e_shnum);
      std::memcpy(sections.data(), base + header.e_shoff, header.e_shnum * sizeof(ElfW(Shdr)));
      for (const ElfW(Shdr) & section : sections) {
        if (section.sh_type != SHT_DYNSYM) continue;
        const char* strings = base + sections[section.sh_link].sh_offset;
        std::vector<ElfW(Sym)> symbols(section.sh_size / sizeof(ElfW(Sym)));
        std::memcpy(symbols.data(), base + section.sh_offset, symbols.size() * sizeof(ElfW(Sym)));
        for (const ElfW(Sym) & symbol : symbols) {
          if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
            names.insert(strings + symbol.st_name);
          }
        }
      }
      munmap(mapped, size);
    }
  }
  close(file);
  return names;
}

std::vector<std::string> names_of(FunctionGroup group) {
  std::vector<std::string> names;
  for (FunctionId id = 1; id <= kFunctionCount; ++id) {
    if (function_group(id) == group) names.emplace_back(function_name(id));
  }
  return names;
}

}  // namespace

TEST_CASE("bookkeeping is each call of the runtime that is no part of the device's work") {
  for (FunctionId id = 1; id <= kFunctionCount; ++id) {
    const std::string_view name = function_name(id);
    INFO(name);
    CHECK(is_bookkeeping(id) == (function_group(id) == FunctionGroup::kCudart &&
                                 host_state_of(name, false) == HostState::kOther && !asks_for_work(name)));
  }
  CHECK(is_bookkeeping(inject::find_function("cudaGetDevice")));
  CHECK_FALSE(is_bookkeeping(inject::find_function("cudaEventQuery")));
  CHECK_FALSE(is_bookkeeping(inject::kNoFunction));
  CHECK_FALSE(is_bookkeeping(inject::kDriverFunction | 1));
}

TEST_CASE("every hooked function has a name of its own, found again by it", "[functions]") {
  std::set<std::string_view> names;
  for (FunctionId id = 1; id <= kFunctionCount; ++id) {
    const std::string_view name = function_name(id);
    INFO(name);
    REQUIRE_FALSE(name.empty());
    CHECK(name.data()[name.size()] == '\0');
    CHECK(names.insert(name).second);
    CHECK(inject::find_function(name) == id);
  }
  CHECK(function_name(inject::kNoFunction).empty());
  CHECK(function_name(kFunctionCount + 1).empty());
  CHECK(inject::find_function("cudaNoSuchFunction") == inject::kNoFunction);
  CHECK(function_name(inject::kFn_cublasSgemm_v2) == "cublasSgemm_v2");
}

// Pinned, so that a row lost or duplicated by an edit is noticed.
TEST_CASE("the tables have as many functions as meant", "[functions]") {
  std::map<FunctionGroup, int> counts;
  for (FunctionId id = 1; id <= kFunctionCount; ++id) ++counts[function_group(id)];
  CHECK(counts[FunctionGroup::kCudart] == 333);
  CHECK(counts[FunctionGroup::kCublas] == 508);
  CHECK(counts[FunctionGroup::kCublasLt] == 8);
  CHECK(counts[FunctionGroup::kCudnn] == 68);
  CHECK(counts[FunctionGroup::kNccl] == 21);
  CHECK(counts[FunctionGroup::kCupti] == 13);
  CHECK(counts.count(FunctionGroup::kDriver) == 0);
}

TEST_CASE("groups and categories are those of the rows", "[functions]") {
  CHECK(function_group(inject::kFn_cudaMemcpyAsync_ptsz) == FunctionGroup::kCudart);
  CHECK(function_category(inject::kFn_cudaMemcpyAsync_ptsz) == Category::kCopy);
  CHECK(function_category(inject::kFn___cudaLaunchKernel) == Category::kLaunch);
  CHECK(function_category(inject::kFn_cudaMemset_ptds) == Category::kMemset);
  CHECK(function_group(inject::kFn_cublasGemmEx) == FunctionGroup::kCublas);
  CHECK(function_category(inject::kFn_cublasGemmEx) == Category::kGemm);
  CHECK(function_category(inject::kFn_cublasStrsm_v2_64) == Category::kBlas);
  CHECK(function_group(inject::kFn_cublasLtMatmul) == FunctionGroup::kCublasLt);
  CHECK(function_category(inject::kFn_cublasLtMatmul) == Category::kGemm);
  CHECK(function_category(inject::kFn_cudnnRNNForward) == Category::kRnn);
  CHECK(function_category(inject::kFn_ncclSend) == Category::kPointToPoint);
  CHECK(function_category(inject::kFn_ncclAllReduce) == Category::kCollective);
  CHECK(function_group(inject::kFn_cuptiSubscribe) == FunctionGroup::kCupti);

  const FunctionId driver = inject::kDriverFunction | 307;
  CHECK(function_group(driver) == FunctionGroup::kDriver);
  CHECK(function_category(driver) == Category::kOther);
  CHECK(inject::group_name(FunctionGroup::kCublasLt) == "cublaslt");

  // Exactly cuBLAS's products, including those of vectors, have this name.
  for (FunctionId id = 1; id <= kFunctionCount; ++id) {
    if (function_group(id) != FunctionGroup::kCublas) continue;
    const std::string name(function_name(id));
    INFO(name);
    const bool product = name.find("gemm") != std::string::npos || name.find("Gemm") != std::string::npos ||
                         name.find("gemv") != std::string::npos;
    CHECK((function_category(id) == Category::kGemm) == product);
  }
}

TEST_CASE("driver calls are named once, when the driver's names are known", "[functions]") {
  const FunctionId driver = inject::kDriverFunction | 1999;
  CHECK(function_name(driver).empty());
  std::string name = "cuSomething";
  inject::set_driver_function_name(driver, name.c_str());
  name = "overwritten";
  CHECK(function_name(driver) == "cuSomething");
  inject::set_driver_function_name(driver, "cuSomethingElse");
  CHECK(function_name(driver) == "cuSomething");

  inject::set_driver_function_name(inject::kDriverFunction | 0x7FFF, "beyond the table");
  CHECK(function_name(inject::kDriverFunction | 0x7FFF).empty());
  inject::set_driver_function_name(inject::kFn_cudaMalloc, "not a driver call");
  CHECK(function_name(inject::kFn_cudaMalloc) == "cudaMalloc");
}

TEST_CASE("every hooked name is exported by the vendor's library", "[functions]") {
  struct Library {
    FunctionGroup group;
    const char* file;
  };
  const std::array<Library, 6> libraries{{{FunctionGroup::kCudart, "libcudart.so"},
                                          {FunctionGroup::kCublas, "libcublas.so"},
                                          {FunctionGroup::kCublasLt, "libcublasLt.so"},
                                          {FunctionGroup::kCudnn, "libcudnn.so"},
                                          {FunctionGroup::kNccl, "libnccl.so"},
                                          {FunctionGroup::kCupti, "libcupti.so"}}};
  for (const Library& library : libraries) {
    std::set<std::string> exported;
    for (const char* folder : {"lib64/", "lib/", "extras/CUPTI/lib64/"}) {
      if (exported.empty())
        exported = exported_functions(INJECT_CUDA_INCLUDE "/../" + std::string(folder) + library.file);
    }
    if (exported.empty()) {
      WARN("not checked, as " << library.file << " is not beside the headers");
      continue;
    }
    for (const std::string& name : names_of(library.group)) {
      INFO(name << " in " << library.file);
      CHECK(exported.count(name) == 1);
    }
  }
}

// Each function that the header declares is hooked, or left out for a reason given in cudart.def.
TEST_CASE("the runtime's header holds no function that was forgotten", "[functions]") {
  std::ifstream file(INJECT_CUDA_INCLUDE "/cuda_runtime_api.h");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  REQUIRE_FALSE(text.empty());
  std::smatch version;
  REQUIRE(std::regex_search(text, version, std::regex("#define CUDART_VERSION +(\\d+)")));
  if (version[1].str() != "13000") {
    WARN("not checked, as the list is that of CUDA 13.0, and the header is " << version[1].str());
    return;
  }

  std::set<std::string> declared;
  const std::regex declaration("CUDARTAPI(?:_CDECL)?\\s+(cuda\\w+)\\s*\\(");
  for (std::sregex_iterator at(text.begin(), text.end(), declaration), end; at != end; ++at)
    declared.insert((*at)[1].str());
  CHECK(declared.size() > 290);

  const std::set<std::string> left_out{
      // Different arguments under the same name in CUDA 12.
      "cudaGraphAddDependencies", "cudaGraphAddNode", "cudaGraphGetEdges", "cudaGraphNodeGetDependencies",
      "cudaGraphNodeGetDependentNodes", "cudaGraphRemoveDependencies", "cudaMemAdvise",
      "cudaMemPrefetchAsync", "cudaMemcpy3DBatchAsync", "cudaMemcpyBatchAsync", "cudaStreamGetCaptureInfo",
      "cudaStreamUpdateCaptureDependencies",
      // Renamed by a macro in CUDA 12.
      "cudaGetDeviceProperties", "cudaSignalExternalSemaphoresAsync", "cudaWaitExternalSemaphoresAsync",
      // Added late in CUDA 12.
      "cudaGetDriverEntryPointByVersion", "cudaKernelSetAttributeForDevice", "cudaLibraryEnumerateKernels",
      "cudaLibraryGetGlobal", "cudaLibraryGetKernel", "cudaLibraryGetKernelCount", "cudaLibraryGetManaged",
      "cudaLibraryGetUnifiedFunction", "cudaStreamGetDevice",
      // Not in CUDA 12.
      "cudaDeviceGetHostAtomicCapabilities", "cudaDeviceGetP2PAtomicCapabilities", "cudaLogsCurrent",
      "cudaLogsDumpToFile", "cudaLogsDumpToMemory", "cudaLogsRegisterCallback", "cudaLogsUnregisterCallback",
      "cudaMemDiscardAndPrefetchBatchAsync", "cudaMemDiscardBatchAsync", "cudaMemGetDefaultMemPool",
      "cudaMemGetMemPool", "cudaMemPrefetchBatchAsync", "cudaMemSetMemPool"};
  for (const std::string& name : declared) {
    INFO(name);
    CHECK((inject::find_function(name) != inject::kNoFunction) != (left_out.count(name) == 1));
  }
  for (const std::string& name : left_out) {
    INFO(name);
    CHECK(declared.count(name) == 1);
  }
}
