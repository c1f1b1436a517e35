// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/process.h"

#include <cuda.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "libinject/hooks/real_symbol.h"
#include "libinject/host_io.h"
#include "libinject/loader_use.h"
#include "libinject/record/memory_use.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

constexpr std::size_t kMaxPathLength = 4096;
constinit std::array<char, kMaxPathLength> folder_at_load{};

constinit std::atomic<decltype(&cuCtxGetDevice)> context_device{nullptr};

struct ImportSearch {
  std::string_view name;
  const void* self;
  bool found = false;
};

// Addresses in a loaded object's dynamic section are relocated by glibc for all objects but the vDSO.
std::uintptr_t address_in(const dl_phdr_info& info, ElfW(Addr) value) {
  return value < info.dlpi_addr ? info.dlpi_addr + value : value;
}

bool contains(const dl_phdr_info& info, const void* address) {
  const auto target = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    const std::uintptr_t begin = info.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && target >= begin && target < begin + header.p_memsz) return true;
  }
  return false;
}

// Undefined symbols come first in a dynamic symbol table: the GNU hash table covers only what follows them,
// and its second word says where that starts.
int search_imports(dl_phdr_info* info, std::size_t, void* data) {
  auto& search = *static_cast<ImportSearch*>(data);
  if (contains(*info, search.self)) return 0;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* sysv_hash = nullptr;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    const std::uintptr_t address = address_in(*info, dynamic->d_un.d_ptr);
    if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (dynamic->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(address);
    if (dynamic->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const std::uint32_t*>(address);
    if (dynamic->d_tag == DT_HASH) sysv_hash = reinterpret_cast<const std::uint32_t*>(address);
  }
  if (symbols == nullptr || strings == nullptr) return 0;
  const std::uint32_t count = gnu_hash != nullptr ? gnu_hash[1] : sysv_hash != nullptr ? sysv_hash[1] : 0;
  for (std::uint32_t i = 1; i < count; ++i) {
    if (symbols[i].st_shndx == SHN_UNDEF && search.name == strings + symbols[i].st_name) {
      search.found = true;
      return 1;
    }
  }
  return 0;
}

void list_if_cuda(std::vector<std::pair<std::string, std::string>>& list, std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  for (const std::string_view prefix : {"libcudart.so", "libcublas.so", "libcublasLt.so", "libcudnn.so",
                                        "libnccl.so", "libcupti.so", "libcuda.so"}) {
    if (file.substr(0, prefix.size()) == prefix) list.emplace_back(file, path);
  }
}

// An exception must not leave the callback: the C library's frames around it end the program.
int list_cuda_objects(dl_phdr_info* info, std::size_t, void* data) noexcept {
  try {
    auto& list = *static_cast<std::vector<std::pair<std::string, std::string>>*>(data);
    if (info->dlpi_name != nullptr) list_if_cuda(list, info->dlpi_name);
    return 0;
  } catch (...) {
    return 1;  // no memory: what was found so far has to do
  }
}

std::string read_file(const char* path) {
  std::string text;
  const int file = open_file(path, O_RDONLY);
  if (file < 0) return text;
  std::array<char, 4096> part;
  constexpr std::size_t kMax = 64 * 1024;
  for (ssize_t n = 0; text.size() < kMax && (n = read(file, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  close(file);
  return text;
}

template <typename Function>
Function* driver_function(const char* name) {
  static constinit std::atomic<void*> found{nullptr};
  const LoaderUse use;
  void* driver = found.load(std::memory_order_acquire);
  if (driver == nullptr) {
    // It may be loaded later: a window can be open before CUDA is there.
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    found.store(driver, std::memory_order_release);
  }
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace

bool has_other_rights() noexcept {
  return getauxval(AT_SECURE) != 0;
}

void remember_working_directory() noexcept {
  if (getcwd(folder_at_load.data(), folder_at_load.size()) == nullptr) folder_at_load[0] = 0;
}

std::string working_directory() {
  return folder_at_load.data();
}

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> command_line() {
  const std::string text = read_file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    words.push_back(text.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return words;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

bool process_imports(std::string_view name) {
  ImportSearch search{name, &folder_at_load};
  const LoaderUse use;
  dl_iterate_phdr(&search_imports, &search);
  return search.found;
}

void at_python_exit(void (*handler)()) noexcept {
  // Not in a program that has Python inside: it may go on after its interpreter.
  std::array<char, kMaxPathLength> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return;
  const char* slash = std::strrchr(path.data(), '/');
  if (slash == nullptr || std::strncmp(slash + 1, "python", 6) != 0) return;
  // Not by dlsym, whose lock the thread that waits for this one may hold.
  using Register = int (*)(void (*)());
  if (auto* add = reinterpret_cast<Register>(next_symbol("Py_AtExit")); add != nullptr) add(handler);
}

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> list;
  int version = 0;
  if (auto* get = driver_function<decltype(cuDriverGetVersion)>("cuDriverGetVersion");
      get != nullptr && get(&version) == CUDA_SUCCESS) {
    list.emplace_back("driver", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
  }
  const LoaderUse use;
  dl_iterate_phdr(&list_cuda_objects, &list);
  return list;
}

void find_current_device() noexcept {
  if (context_device.load(std::memory_order_relaxed) != nullptr) return;
  context_device.store(reinterpret_cast<decltype(&cuCtxGetDevice)>(next_symbol("cuCtxGetDevice")),
                       std::memory_order_release);
}

std::uint32_t current_device() noexcept {
  auto* ask = context_device.load(std::memory_order_acquire);
  if (ask == nullptr) return MemoryUse::kUnknownDevice;
  const int saved_errno = errno;
  // Where all driver calls are recorded, this is none of the program's.
  const UnseenThread unseen;
  CUdevice device = -1;
  const bool current = ask(&device) == CUDA_SUCCESS && device >= 0;
  errno = saved_errno;
  if (!current) return MemoryUse::kUnknownDevice;
  const auto number = static_cast<std::uint32_t>(device);
  return number < MemoryUse::kDevices ? number : MemoryUse::kOtherDevice;
}

std::vector<std::uint32_t> devices_in_use() {
  static auto* const count_of = driver_function<decltype(cuDeviceGetCount)>("cuDeviceGetCount");
  static auto* const device_of = driver_function<decltype(cuDeviceGet)>("cuDeviceGet");
  static auto* const state_of =
      driver_function<decltype(cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
  std::vector<std::uint32_t> used;
  int count = 0;
  if (count_of == nullptr || device_of == nullptr || state_of == nullptr || count_of(&count) != CUDA_SUCCESS)
    return used;
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    unsigned flags = 0;
    int active = 0;
    if (device_of(&device, i) == CUDA_SUCCESS && state_of(device, &flags, &active) == CUDA_SUCCESS &&
        active != 0) {
      used.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return used;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> list;
  auto* count_of = driver_function<decltype(cuDeviceGetCount)>("cuDeviceGetCount");
  auto* device_of = driver_function<decltype(cuDeviceGet)>("cuDeviceGet");
  auto* name_of = driver_function<decltype(cuDeviceGetName)>("cuDeviceGetName");
  auto* attribute_of = driver_function<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  auto* memory_of =
      driver_function<std::remove_pointer_t<decltype(&cuDeviceTotalMem)>>("cuDeviceTotalMem_v2");
  auto* bus_of = driver_function<decltype(cuDeviceGetPCIBusId)>("cuDeviceGetPCIBusId");
  auto* uuid_of = driver_function<std::remove_pointer_t<decltype(&cuDeviceGetUuid)>>("cuDeviceGetUuid_v2");
  int count = 0;
  if (count_of == nullptr || device_of == nullptr || count_of(&count) != CUDA_SUCCESS) return list;
  for (int i = 0; i < count; ++i) {
    CUdevice device;
    if (device_of(&device, i) != CUDA_SUCCESS) continue;
    DeviceInfo info;
    info.id = static_cast<std::uint32_t>(i);
    std::array<char, 256> text{};
    if (name_of != nullptr &&
        name_of(text.data(), static_cast<int>(text.size()) - 1, device) == CUDA_SUCCESS) {
      info.name = text.data();
    }
    if (bus_of != nullptr && bus_of(text.data(), static_cast<int>(text.size()) - 1, device) == CUDA_SUCCESS) {
      info.pci_bus = text.data();
    }
    CUuuid uuid;
    if (uuid_of != nullptr && uuid_of(&uuid, device) == CUDA_SUCCESS) {
      info.uuid = "GPU-";
      for (std::size_t byte = 0; byte < sizeof uuid.bytes; ++byte) {
        std::array<char, 4> hex;
        std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned char>(uuid.bytes[byte]));
        info.uuid += hex.data();
        if (byte == 3 || byte == 5 || byte == 7 || byte == 9) info.uuid += '-';
      }
    }
    std::size_t bytes = 0;
    if (memory_of != nullptr && memory_of(&bytes, device) == CUDA_SUCCESS) info.memory_bytes = bytes;
    const auto attribute = [&](CUdevice_attribute which, int& value) {
      if (attribute_of != nullptr) attribute_of(&value, which, device);
    };
    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, info.compute_major);
    attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, info.compute_minor);
    attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, info.multiprocessors);
    attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, info.clock_khz);
    attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, info.memory_clock_khz);
    attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, info.memory_bus_bits);
    attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE, info.warp_size);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, info.threads_per_block);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, info.threads_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, info.blocks_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, info.registers_per_block);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, info.registers_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, info.shared_per_block);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, info.shared_per_block_optin);
    attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, info.shared_per_multiprocessor);
    attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, info.reserved_shared_per_block);
    list.push_back(std::move(info));
  }
  return list;
}

}  // namespace inject
