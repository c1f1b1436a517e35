// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/holder.h"

#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"
#include "libinject/capture/cupti/callbacks.h"
#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/hooks/elf_object.h"

namespace inject {

namespace {

struct KnownLibrary {
  std::string_view stem;  // of the file's name
  std::string_view tool;
  bool injected;  // into the program, by the tool: if it is loaded, the tool is active
};

// Known from their vendors' folders and tools' messages, not from a documented interface: a name that changes
// costs a word in a message.
constexpr std::array<KnownLibrary, 12> kLibraries{{
    {"libToolsInjection", "Nsight Systems", true},
    {"libcuda-injection", "Nsight Compute", true},
    {"libsanitizer-collection", "compute-sanitizer", true},
    {"libsanitizer-public", "compute-sanitizer's API", true},
    {"libTreeLauncher", "an NVIDIA tool (Nsight Compute or compute-sanitizer)", true},
    {"libaccinj64", "nvprof", true},
    {"libcuinj64", "nvprof", true},
    {"libinject", "libinject", false},
    {"libproton", "Proton", false},
    {"libkineto", "torch.profiler", false},
    {"libtorch_", "torch.profiler", false},
    {"libnvtx3interop", "an NVTX tool", false},
}};

struct KnownVariable {
  const char* name;
  std::string_view tool;
};

constexpr std::array<KnownVariable, 4> kVariables{{
    {"NSYS_PROFILING_SESSION_ID", "Nsight Systems"},
    {"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"},
    {"NV_SANITIZER_INJECTION_PORT_BASE", "compute-sanitizer"},
    {"NV_SANITIZER_INJECTION_PORT_RANGE", "compute-sanitizer"},
}};

std::string_view file_of(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

const KnownLibrary* find_tool(std::string_view path) noexcept {
  const std::string_view file = file_of(path);
  const auto* known = std::find_if(kLibraries.begin(), kLibraries.end(), [&](const KnownLibrary& library) {
    return file.substr(0, library.stem.size()) == library.stem;
  });
  return known == kLibraries.end() ? nullptr : known;
}

// The result of a walk over the loaded objects. An exception must not leave its callback.
struct Walk {
  const void* address = nullptr;
  const char* symbol = nullptr;
  std::vector<std::string> paths;
};

int note_object(dl_phdr_info* info, std::size_t, void* data) noexcept {
  try {
    auto& walk = *static_cast<Walk*>(data);
    const ElfObject object(*info);
    const bool wanted = (walk.address == nullptr || object.contains(walk.address)) &&
                        (walk.symbol == nullptr || object.find_function(SymbolName(walk.symbol)) != nullptr);
    if (wanted && info->dlpi_name != nullptr && info->dlpi_name[0] != '\0')
      walk.paths.emplace_back(info->dlpi_name);
    return 0;
  } catch (...) {
    return 1;  // out of memory: use what was found so far
  }
}

std::vector<std::string> walk_objects(Walk walk) {
  const DynamicLoaderGuard guard;
  dl_iterate_phdr(&note_object, &walk);
  return std::move(walk.paths);
}

const char* environment(const char* name) {
  return std::getenv(name);
}

bool same_file(const char* one, const std::string& other) {
  if (one == other) return true;
  struct stat first {};
  struct stat second {};
  return stat(one, &first) == 0 && stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// An address in this library.
const void* own_address() noexcept {
  return reinterpret_cast<const void*>(&note_object);
}

}  // namespace

std::string_view tool_of_library(std::string_view path) noexcept {
  const KnownLibrary* known = find_tool(path);
  return known == nullptr ? std::string_view() : known->tool;
}

std::string describe_library(std::string_view path) {
  const std::string file(file_of(path));
  const std::string_view tool = tool_of_library(path);
  return tool.empty() ? file : str_format("{} ({})", tool, file);
}

std::string likely_holder(const std::function<const char*(const char*)>& variable,
                          const std::vector<std::string>& libraries, const std::string& own) {
  for (const char* name : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    const char* path = variable(name);
    if (path == nullptr || *path == '\0' || same_file(path, own)) continue;
    const std::string_view tool = tool_of_library(path);
    // Another copy of this library does not count; an unknown one can be anything, but in the NVTX variable
    // hardly a user of CUPTI.
    if (tool == "libinject" || (tool.empty() && std::strcmp(name, "NVTX_INJECTION64_PATH") == 0)) continue;
    const std::string setting = str_format("{}={}", name, path);
    return tool.empty() ? setting : str_format("{} ({})", tool, setting);
  }
  for (const KnownVariable& known : kVariables) {
    if (variable(known.name) != nullptr) return str_format("{} ({} is set)", known.tool, known.name);
  }
  for (const std::string& library : libraries) {
    if (const KnownLibrary* known = find_tool(library); known != nullptr && known->injected)
      return describe_library(library);
  }
  return {};
}

std::string likely_holder() {
  return likely_holder(&environment, walk_objects({}), object_containing(own_address()));
}

std::string subscriber_name(const CuptiApi& api) {
  std::string name;
  if (api.Subscribe_v2 != nullptr) {
    std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "libinject";
    params.oldSubscriberName = holder.data();
    params.oldSubscriberSize = holder.size();
    CUpti_SubscriberHandle subscriber = nullptr;
    // The holder may have left since, or this CUPTI may accept several subscribers that use this function,
    // unlike ours.
    if (api.Subscribe_v2(&subscriber, &on_cupti_callback, nullptr, &params) == CUPTI_SUCCESS) {
      api.Unsubscribe(subscriber);
    } else {
      holder.back() = '\0';
      // What CUPTI 13.0 returns for subscribers without a name.
      if (std::strstr(holder.data(), "<not provided>") == nullptr) name = holder.data();
    }
  }
  std::string likely = foreign_client.has_subscriber() ? foreign_client.name() : likely_holder();
  if (likely.empty() && foreign_client.has_subscriber()) likely = "the program itself";
  if (name.empty() || likely.empty()) return name + likely;
  return name + ", " + likely;
}

std::string object_containing(const void* address) {
  const std::vector<std::string> found = walk_objects({address, nullptr, {}});
  return found.empty() ? std::string() : found.front();
}

std::string others_in_place(const std::function<const char*(const char*)>& variable,
                            const std::vector<std::string>& copies) {
  if (copies.size() > 1) {
    return str_format("libinject is loaded more than once: {} is active, {} does nothing", copies[0],
                      copies[1]);
  }
  const char* path = variable("CUDA_INJECTION64_PATH");
  if (path == nullptr || *path == '\0' || copies.empty() || same_file(path, copies[0])) return {};
  const std::string_view tool = tool_of_library(path);
  return str_format(
      "CUDA_INJECTION64_PATH is left to {}{}{}: calls are recorded from the first allocation on, and device "
      "activity if CUPTI is free",
      tool, tool.empty() ? "" : ", ", path);
}

std::string others_in_place() {
  std::vector<std::string> copies = walk_objects({nullptr, "inject_is_open", {}});
  const std::string own = object_containing(own_address());
  std::stable_partition(copies.begin(), copies.end(), [&](const std::string& path) { return path == own; });
  return others_in_place(&environment, copies);
}

}  // namespace inject
