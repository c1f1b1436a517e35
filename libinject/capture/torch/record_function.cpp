// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/torch/record_function.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

#include "libinject/capture/hooks/elf_object.h"

namespace inject {

constinit std::atomic<const void*> CallbackTest::tested{nullptr};

namespace {

using Version = std::pair<unsigned, unsigned>;

struct TorchSearch {
  explicit TorchSearch(unsigned long long before) : seen(before) {}
  unsigned long long seen;  // objects that had been loaded by the last search
  unsigned long long adds = 0;
  bool found = false;
  RecordFunctionApi api;
  std::array<char, 4096> path{};
};

template <typename Function>
void find(const ElfObject& object, const char* name, Function& function) noexcept {
  if (const ElfW(Sym)* symbol = object.find_function(SymbolName(name)); symbol != nullptr)
    function = reinterpret_cast<Function>(object.address(*symbol));
}

int look_at(dl_phdr_info* info, std::size_t, void* data) noexcept {
  auto& search = *static_cast<TorchSearch*>(data);
  search.adds = info->dlpi_adds;
  if (search.adds == search.seen) return 1;
  if (info->dlpi_name == nullptr) return 0;
  const char* file = info->dlpi_name;
  if (const char* slash = std::strrchr(file, '/'); slash != nullptr) file = slash + 1;
  if (std::strncmp(file, "libtorch_cpu.so", 15) != 0) return 0;
  const ElfObject object(*info);
  RecordFunctionApi& torch = search.api;
  find(object, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", torch.add_global_callback);
  find(object, "_ZN2at14removeCallbackEm", torch.remove_callback);
  find(object, "_ZNK2at14RecordFunction4nameEv", torch.name);
  find(object, "_ZN2at14RecordFunctionC1ENS_11RecordScopeE", torch.construct);
  find(object, "_ZN2at14RecordFunctionD1Ev", torch.destroy);
  find(object, "_ZN2at14RecordFunction6beforeEPKcl", torch.before);
  find(object,
       "_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEESt17reference_"
       "wrapperIKN3c1014FunctionSchemaEEEEl",
       torch.before_descriptor);
  find(object, "_ZN2at14RecordFunctionC1EONS_13StepCallbacksE", torch.step_callbacks);
  find(object, "_ZNK2at14RecordFunction10num_inputsEv", torch.num_inputs);
  find(object, "aoti_torch_create_tensor_from_blob", torch.tensor_from_blob);
  find(object, "aoti_torch_delete_tensor_object", torch.delete_tensor);
  find(object, "aoti_torch_copy_", torch.copy_tensor);
  std::strncpy(search.path.data(), info->dlpi_name, search.path.size() - 1);
  search.found = true;
  return 1;
}

/// The first two numbers after `before` in `text`; zeros if there are none.
Version version_in(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return {};
  const char* end = text.data() + text.size();
  Version version;
  const auto major = std::from_chars(text.data() + at + before.size(), end, version.first);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  if (std::from_chars(major.ptr + 1, end, version.second).ec != std::errc()) return {};
  return version;
}

std::string beginning_of(const std::string& path) {
  std::string text(1024, '\0');
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  const ssize_t length = file < 0 ? 0 : ::read(file, text.data(), text.size());
  if (file >= 0) ::close(file);
  text.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
  return text;
}

/// The version according to the file beside the library, in Python's package or in the C++ distribution, or
/// to the library's own name (Debian). Zeros if neither contains it.
Version version_of(const std::string& library) {
  const std::size_t slash = library.rfind('/');
  const std::string parent = library.substr(0, slash == std::string::npos ? 0 : slash + 1) + "../";
  Version version = version_in(beginning_of(parent + "version.py"), "__version__ = '");
  if (version == Version{}) version = version_in(beginning_of(parent + "build-version"), "");
  if (version == Version{}) version = version_in(library, "libtorch_cpu.so.");
  return version;
}

/// A function of this scope as PyTorch would create it; after its end, callbacks no longer see it in
/// `tested`.
class TestFunction {
 public:
  TestFunction(const RecordFunctionApi& torch, RecordScope scope) : torch_(torch) {
    torch_.construct(place_.data(), scope);
    CallbackTest::tested = place_.data();
  }
  ~TestFunction() {
    torch_.destroy(place_.data());
    CallbackTest::tested = nullptr;
  }
  TestFunction(const TestFunction&) = delete;
  TestFunction& operator=(const TestFunction&) = delete;

  void begin(std::int64_t sequence = -1) {
    if (torch_.before != nullptr) {
      torch_.before(place_.data(), kName, sequence);
    } else {
      torch_.before_descriptor(place_.data(), std::string_view(kName), sequence);
    }
  }
  bool is_named() const {
    const char* name = torch_.name(place_.data());
    return name != nullptr && std::strcmp(name, kName) == 0;
  }

  /// Where the object contains this number; empty if nowhere, or at several places.
  std::optional<std::size_t> find(std::int64_t number) const {
    std::optional<std::size_t> found;
    for (std::size_t at = 0; at < kKnownSize; at += sizeof number) {
      std::int64_t here = 0;
      std::memcpy(&here, place_.data() + at, sizeof here);
      if (here != number) continue;
      if (found) return {};
      found = at;
    }
    return found;
  }

 private:
  static constexpr std::size_t kKnownSize = 1024;  // it has some 400 bytes in PyTorch 2.11
  static constexpr const char* kName = "libinject";
  const RecordFunctionApi& torch_;
  alignas(64) std::array<std::byte, 4096> place_{};  // several times the object's size in PyTorch 2.11
};

/// Waits until no thread is loading the library any more: it is in the loader's list before it is relocated
/// and its initialisers have run, and the loading thread holds the lock until then. Null if loading has
/// failed. From then on, the library stays in the process until the handle is closed.
void* hold(const char* path) noexcept {
  return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

}  // namespace

std::optional<LoadedTorch> find_torch(unsigned long long& adds_seen) {
  TorchSearch search(adds_seen);
  dl_iterate_phdr(&look_at, &search);
  adds_seen = search.adds;
  if (!search.found) return {};
  LoadedTorch torch;
  torch.held = hold(search.path.data());
  torch.api = search.api;
  if (torch.held != nullptr)
    torch.api.gradients_enabled = reinterpret_cast<decltype(torch.api.gradients_enabled)>(
        dlsym(torch.held, "_ZN3c108GradMode10is_enabledEv"));
  torch.library = search.path.data();
  torch.version = version_of(torch.library);
  return torch;
}

bool comes(const RecordFunctionApi& api, CallbackTest& test, RecordScope scope, unsigned times) {
  test.starts = test.ends = 0;
  bool named = true;
  {
    TestFunction function(api, scope);
    function.begin();
    if (times != 0) named = function.is_named();
  }
  return named && test.starts == times && test.ends == times;
}

std::optional<std::size_t> find_sequence(const RecordFunctionApi& api) {
  // Nothing else in the object has these values, and the memory was zero before.
  constexpr std::int64_t kFirstSequence = 0x5EC0'0001'7A31'0D15;
  constexpr std::int64_t kSecondSequence = 0x1E55'7A11'0000'5EC1;
  std::optional<std::size_t> first;
  std::optional<std::size_t> second;
  {
    TestFunction function(api, RecordScope::kFunction);
    function.begin(kFirstSequence);
    first = function.find(kFirstSequence);
  }
  {
    TestFunction function(api, RecordScope::kFunction);
    function.begin(kSecondSequence);
    second = function.find(kSecondSequence);
  }
  return first == second ? first : std::nullopt;
}

}  // namespace inject
