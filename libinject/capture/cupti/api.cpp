// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/api.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"

namespace inject {

namespace {

// CUDA 12.0: since then, kernel records have graph ids, and callbacks their present ids.
constexpr std::uint32_t kOldestVersion = 19;

struct LoadedCuda {
  std::vector<std::string> folders;  // of the CUDA libraries in the process, in load order
  int major = 0;                     // of libcudart or libcublas, 0 if neither is loaded
};

void note_path(LoadedCuda& found, std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return;
  const std::string_view file = path.substr(slash + 1);
  for (const std::string_view prefix : {"libcudart.so.", "libcublas.so.", "libcublasLt.so."}) {
    if (file.substr(0, prefix.size()) != prefix) continue;
    found.folders.emplace_back(path.substr(0, slash));
    if (found.major == 0)
      found.major = static_cast<int>(std::strtol(file.data() + prefix.size(), nullptr, 10));
  }
}

// An exception must not leave the callback: the C library's frames around it end the program.
int note_object(dl_phdr_info* info, std::size_t, void* data) noexcept {
  try {
    if (info->dlpi_name != nullptr) note_path(*static_cast<LoadedCuda*>(data), info->dlpi_name);
    return 0;
  } catch (...) {
    return 1;  // out of memory: use what was found so far
  }
}

// Where a copy may be relative to a folder that holds CUDA libraries: the toolkit's own folder, its CUPTI
// folder, and the wheels' layouts (nvidia/cu13/lib for all; nvidia/cuda_runtime/lib beside
// nvidia/cuda_cupti/lib).
constexpr const char* kBeside[] = {"", "/../extras/CUPTI/lib64", "/../../cuda_cupti/lib", "/../../cu13/lib"};

bool complete(CuptiApi& api, void* handle, std::string& error) {
#define INJECT_CUPTI_FIND(name)                                                  \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(handle, "cupti" #name)); \
  if (api.name == nullptr) {                                                     \
    error = "it lacks cupti" #name;                                              \
    return false;                                                                \
  }
  INJECT_CUPTI_FUNCTIONS(INJECT_CUPTI_FIND)
#undef INJECT_CUPTI_FIND
  api.ActivityRegisterTimestampCallback = reinterpret_cast<decltype(api.ActivityRegisterTimestampCallback)>(
      dlsym(handle, "cuptiActivityRegisterTimestampCallback"));
  api.GetGraphNodeId = reinterpret_cast<decltype(api.GetGraphNodeId)>(dlsym(handle, "cuptiGetGraphNodeId"));
  api.Subscribe_v2 = reinterpret_cast<decltype(api.Subscribe_v2)>(dlsym(handle, "cuptiSubscribe_v2"));
  if (api.GetVersion(&api.version) != CUPTI_SUCCESS || api.version < kOldestVersion) {
    error = str_format("its API version is {}, the oldest accepted is {} (CUDA 12.0)", api.version,
                       kOldestVersion);
    return false;
  }
  return true;
}

std::string file_of(void* handle, const std::string& asked) {
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr &&
      map->l_name != nullptr)
    return map->l_name;
  return asked;
}

}  // namespace

std::string CuptiApi::describe(CUptiResult result) const {
  const char* text = nullptr;
  std::string name = "CUPTI error";
  if (GetResultString != nullptr && GetResultString(result, &text) == CUPTI_SUCCESS && text != nullptr)
    name = text;
  return str_format("{} ({})", name, static_cast<int>(result));
}

bool load_cupti(CuptiApi& api, std::string& error) {
  const DynamicLoaderGuard guard;
  LoadedCuda cuda;
  dl_iterate_phdr(&note_object, &cuda);
  // The process's own major version first; without one, the newer.
  std::vector<std::string> sonames = {"libcupti.so.13", "libcupti.so.12"};
  if (cuda.major == 12) std::swap(sonames[0], sonames[1]);

  std::string refused;
  const auto take = [&](void* handle, const std::string& asked) {
    if (handle == nullptr) return false;
    CuptiApi candidate;
    std::string reason;
    candidate.path = file_of(handle, asked);
    if (complete(candidate, handle, reason)) {
      api = std::move(candidate);
      return true;
    }
    refused += (refused.empty() ? "" : "; ") + candidate.path + ": " + reason;
    dlclose(handle);
    return false;
  };

  for (const std::string& soname : sonames) {
    if (take(dlopen(soname.c_str(), RTLD_NOW | RTLD_NOLOAD), soname)) return true;
  }
  std::vector<std::string> files;
  for (const std::string& soname : sonames) {
    for (const std::string& folder : cuda.folders) {
      for (const char* beside : kBeside) {
        files.push_back(std::string(folder).append(beside).append("/").append(soname));
      }
    }
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* home = std::getenv(variable);
    if (home == nullptr || home[0] != '/') continue;
    for (const std::string& soname : sonames) {
      for (const char* folder : {"/lib64/", "/extras/CUPTI/lib64/", "/lib/"})
        files.push_back(home + (folder + soname));
    }
  }
  for (const std::string& file : files) {
    if (access(file.c_str(), R_OK) == 0 && take(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), file))
      return true;
  }
  for (const std::string& soname : sonames) {
    if (take(dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL), soname)) return true;
    const std::string toolkit = "/usr/local/cuda/lib64/" + soname;
    if (take(dlopen(toolkit.c_str(), RTLD_NOW | RTLD_LOCAL), toolkit)) return true;
  }
  error = refused.empty()
              ? "no libcupti.so.13 or libcupti.so.12 was found beside the CUDA libraries, in CUDA_HOME or on "
                "the library path"
              : "libcupti can't be used: " + refused;
  return false;
}

}  // namespace inject
