// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PyTorch's interface (ATen/record_function.h) is C++ that is not promised to stay. Of it we use
//
//   - at::addGlobalCallback(RecordFunctionCallback), which takes a struct of 40 bytes by value: two
//     functions, the share of calls that are sampled, a flag for each of ten scopes, three for what is kept
//     for the callback. Since 1.12 (StepCallbacks) it may be called at any time: a mutex guards the list, and
//     each thread takes over a new version of it at its next function.
//   - at::RecordFunction::name(), for the object that a callback is given a reference to.
//   - at::RecordFunction's constructor, before() and destructor, to test that our callback is called in the
//     scope that was meant, and in no other. A profiler shows the test as functions named "libinject".
//
// They are the same in the headers of 1.13, 2.1, 2.6, 2.11, 2.13 and 2.15, and passed the test with the
// libraries of 1.13, 2.1, 2.11 and 2.15. Another version, one that lacks some of these functions, and one
// that fails the test are left alone. The callback stays registered: a function that is in progress when it
// is removed would still call its end. So it asks iteration_watch.source, which is kNone outside of the
// search and in a forked child.
//
// at::clearCallbacks() is public and takes everybody's callbacks, ours too. PyTorch doesn't tell anyone, so a
// PyTorch that has been silent is tested again, and the callback registered anew if it is gone.
#include "libinject/capture/torch/step_listener.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "libinject/base/caller_state.h"
#include "libinject/base/format.h"
#include "libinject/base/loader_use.h"
#include "libinject/base/log.h"
#include "libinject/base/mapping.h"
#include "libinject/capture/hooks/elf_object.h"
#include "libinject/capture/python/frame_reader.h"
#include "libinject/capture/torch/loader_fetch.h"
#include "libinject/record/iteration_watch.h"
#include "libinject/record/thread_registry.h"

namespace inject {

namespace {

constexpr std::string_view kStepPrefix = "Optimizer.step#";
constexpr std::size_t kMaxName = 256;
/// The wrapper around step() is so near: between it and PyTorch lie the frames of record_function and of the
/// operator that it calls.
constexpr int kMaxFrames = 8;
/// So often the callback is registered anew in vain.
constexpr unsigned kMaxRefusals = 8;

/// std::unique_ptr<at::ObserverContext>: returned through a hidden pointer, as it has a destructor. Always
/// null: PyTorch would delete what it points to.
struct NoContext {
  void* context = nullptr;
  NoContext() = default;
  NoContext(const NoContext&) = delete;
  NoContext& operator=(const NoContext&) = delete;
  ~NoContext() {}  // NOLINT(modernize-use-equals-default): not trivial, on purpose
};

/// at::RecordScope.
enum class Scope : std::uint8_t { kFunction = 0, kUser = 7, kCount = 10 };

/// at::RecordFunctionCallback, with zeros behind it for a version that has more.
struct Callback {
  NoContext (*start)(const void* function) = nullptr;
  void (*end)(const void* function, void* context) = nullptr;
  double sampling_probability = 1;
  std::array<bool, static_cast<std::size_t>(Scope::kCount)> scopes{};
  bool needs_inputs = false;
  bool needs_outputs = false;
  bool needs_ids = false;
  std::array<std::byte, 27> more{};
};
static_assert(offsetof(Callback, needs_ids) == 36 && sizeof(Callback) == 64);

/// Stands for c10::FunctionSchema, of which none is ever made here.
struct Schema;
/// at::RecordFunction::FunctionDescriptor.
using Descriptor = std::variant<std::string_view, std::reference_wrapper<const Schema>>;

/// The functions of libtorch_cpu.so.
struct Interface {
  std::uint64_t (*add_global_callback)(Callback) = nullptr;
  void (*remove_callback)(std::uint64_t) = nullptr;
  const char* (*name)(const void* function) = nullptr;
  void (*construct)(void* function, Scope) = nullptr;
  void (*destroy)(void* function) = nullptr;
  void (*before)(void* function, const char* name, std::int64_t sequence) = nullptr;            // 1.x
  void (*before_descriptor)(void* function, Descriptor name, std::int64_t sequence) = nullptr;  // 2.x
  void* step_callbacks = nullptr;  // says that it is 1.12 or later

  bool complete() const {
    return add_global_callback != nullptr && remove_callback != nullptr && name != nullptr &&
           construct != nullptr && destroy != nullptr && step_callbacks != nullptr &&
           (before != nullptr || before_descriptor != nullptr);
  }
};

std::atomic<const char* (*)(const void*)> read_name{nullptr};
/// PyTorch has called back since our thread asked for it last.
std::atomic<bool> heard{false};
/// Of the test: the object that it calls the callback for, and how often that came.
std::atomic<const void*> tested{nullptr};
std::atomic<unsigned> test_starts{0};
std::atomic<unsigned> test_ends{0};

/// Which optimizer steps, as a hash of its address (LaunchSign::optimizer): the first argument of the
/// innermost Python function that got an object of the class in the mark's name. 0 if there is none, as in
/// C++.
std::uint32_t stepping_optimizer(const char* name) noexcept {
  const std::string_view text(name, ::strnlen(name, kMaxName));
  const std::size_t end = text.rfind(".step");
  if (end == std::string_view::npos || end <= kStepPrefix.size()) return 0;
  const std::string_view type = text.substr(kStepPrefix.size(), end - kStepPrefix.size());
  PythonFrame frame = innermost_frame();
  for (int depth = 0; frame && depth < kMaxFrames; ++depth, frame = caller_of(frame)) {
    const void* object = first_argument(frame);
    std::array<char, kMaxName> found{};
    const std::size_t length = copy_type_name(object, found.data(), found.size());
    if (std::string_view(found.data(), length) != type) continue;
    const auto hash =
        static_cast<std::uint32_t>(hash_mix(reinterpret_cast<std::uintptr_t>(object) * kHashSeed) >> 32);
    return hash != 0 ? hash : 1;
  }
  return 0;
}

// PyTorch calls these on its threads, at every function of user scope. They neither wait, allocate nor throw,
// and of the interpreter they only read the frames of their own thread.
NoContext on_start(const void* function) noexcept {
  if (function == tested.load(std::memory_order_relaxed)) {
    test_starts.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  if (!heard.load(std::memory_order_relaxed)) heard.store(true, std::memory_order_relaxed);
  // Not before the test has been passed.
  if (!iteration_watch.steps_told.load(std::memory_order_acquire) ||
      iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone) {
    return {};
  }
  const char* name = read_name.load(std::memory_order_relaxed)(function);
  if (name == nullptr) return {};
  if (const auto fetch = fetch_kind(name)) fetch_begins(function, *fetch);
  if (std::strncmp(name, kStepPrefix.data(), kStepPrefix.size()) != 0) return {};
  if (ThreadRegistry::this_thread_is_ignored()) return {};
  const CallerState caller;
  ThreadState* thread = ThreadRegistry::current();
  // Of steps within steps, as a wrapper's around the wrapped one's, the outermost counts.
  if (thread == nullptr || thread->step != nullptr) return {};
  std::uint64_t hash = kHashSeed;
  for (std::size_t i = 0; i < kMaxName && name[i] != '\0'; ++i)
    hash = hash_mix((hash ^ static_cast<unsigned char>(name[i])) * kHashSeed);
  thread->step = function;
  thread->step_function = hash;
  thread->step_optimizer = stepping_optimizer(name);
  thread->step_sum = thread->sign_sum;
  thread->step_count = thread->sign_count;
  // The name is this object's, so it is copied while that lives.
  if (function_is_new(hash)) emit_name(hash, name);
  return {};
}

// Also if the search has ended meanwhile.
void on_end(const void* function, void* /*context*/) noexcept {
  if (function == tested.load(std::memory_order_relaxed)) {
    test_ends.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  fetch_ends(function);
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr || thread->step != function) return;
  thread->step = nullptr;
  thread->has_stepped = true;
  iteration_watch.stepped.store(true, std::memory_order_relaxed);
  if (iteration_watch.source.load(std::memory_order_acquire) == SignSource::kNone) return;
  const CallerState caller;
  const std::uint64_t launched = thread->sign_sum - thread->step_sum;
  emit_sign(SignKind::kStep, thread->step_function, hash_mix((thread->step_function ^ launched) * kHashSeed),
            thread->sign_count - thread->step_count, false);
}

struct TorchSearch {
  explicit TorchSearch(unsigned long long before) : seen(before) {}
  unsigned long long seen;  // objects that had been loaded by the last search
  unsigned long long adds = 0;
  bool found = false;
  Interface interface;
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
  const char* file = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (const char* slash = std::strrchr(file, '/'); slash != nullptr) file = slash + 1;
  if (std::strncmp(file, "libtorch_cpu.so", 15) != 0) return 0;
  const ElfObject object(*info);
  Interface& torch = search.interface;
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
  std::strncpy(search.path.data(), info->dlpi_name, search.path.size() - 1);
  search.found = true;
  return 1;
}

using Version = std::pair<unsigned, unsigned>;
constexpr Version kOldest{1, 12};
constexpr Version kNewest{2, 15};

/// The first two numbers of what follows `before` in `text`; zeros if there are none.
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

/// As the file beside the library has it, in Python's package or in the C++ distribution, or the library's
/// own name (Debian). Zeros where none says.
Version version_of(const std::string& library) {
  const std::size_t slash = library.rfind('/');
  const std::string parent = library.substr(0, slash == std::string::npos ? 0 : slash + 1) + "../";
  Version version = version_in(beginning_of(parent + "version.py"), "__version__ = '");
  if (version == Version{}) version = version_in(beginning_of(parent + "build-version"), "");
  if (version == Version{}) version = version_in(library, "libtorch_cpu.so.");
  return version;
}

/// A function of that scope as PyTorch would make it; not seen by whoever looks at `tested` after its end.
class TestFunction {
 public:
  TestFunction(const Interface& torch, Scope scope) : torch_(torch) {
    torch_.construct(place_.data(), scope);
    tested = place_.data();
  }
  ~TestFunction() {
    torch_.destroy(place_.data());
    tested = nullptr;
  }
  TestFunction(const TestFunction&) = delete;
  TestFunction& operator=(const TestFunction&) = delete;

  void begin() {
    if (torch_.before != nullptr) {
      torch_.before(place_.data(), kName, -1);
    } else {
      torch_.before_descriptor(place_.data(), std::string_view(kName), -1);
    }
  }
  bool is_named() const {
    const char* name = torch_.name(place_.data());
    return name != nullptr && std::strcmp(name, kName) == 0;
  }

 private:
  static constexpr const char* kName = "libinject";
  const Interface& torch_;
  alignas(64) std::array<std::byte, 4096> place_{};  // several times the object's size in PyTorch 2.11
};

/// Whether the callback came as often as it should for a function of that scope.
bool comes(const Interface& torch, Scope scope, unsigned times) {
  test_starts = test_ends = 0;
  bool named = true;
  {
    TestFunction function(torch, scope);
    function.begin();
    if (times != 0) named = function.is_named();
  }
  return named && test_starts == times && test_ends == times;
}

/// Whether our callback comes for what PyTorch calls by user scope, and for nothing else.
bool is_registered(const Interface& torch) {
  return comes(torch, Scope::kUser, 1) && comes(torch, Scope::kFunction, 0);
}

/// Registers the callback; takes it back and returns false if it does not come as it should.
bool register_callback(const Interface& torch) {
  Callback callback;
  callback.start = &on_start;
  callback.end = &on_end;
  callback.scopes[static_cast<std::size_t>(Scope::kUser)] = true;
  const std::uint64_t handle = torch.add_global_callback(callback);
  if (is_registered(torch)) return true;
  torch.remove_callback(handle);
  return false;
}

/// What the callback is registered with. Our thread's, once steps are told.
Interface listening_to;

void listen(const Interface& torch, const std::string& library) {
  const Version version = version_of(library);
  if (version < kOldest || version > kNewest) {
    Log::debug(
        str_format("{} is PyTorch {}.{}: it is not asked for its optimizers' steps, only 1.12 to 2.15 are",
                   library, version.first, version.second));
    return;
  }
  if (!torch.complete()) {
    Log::debug(library + " lacks functions that tell of its optimizers' steps");
    return;
  }
  read_name = torch.name;
  if (!register_callback(torch)) {
    Log::debug("this PyTorch calls back otherwise than is known: it is not asked for its optimizers' steps");
    return;
  }
  listening_to = torch;
  iteration_watch.steps_told.store(true, std::memory_order_release);
  Log::debug("PyTorch tells of its optimizers' steps");
}

/// Registers the callback anew if the program has cleared it. Steps may have gone unheard until now.
void listen_again() noexcept {
  static unsigned refused = 0;
  if (heard.exchange(false, std::memory_order_relaxed) || refused == kMaxRefusals) return;
  if (comes(listening_to, Scope::kUser, 1)) return;
  iteration_watch.steps_missed.store(true, std::memory_order_release);
  if (register_callback(listening_to)) {
    Log::debug("the program has cleared PyTorch's callbacks: ours is registered again");
  } else if (++refused == kMaxRefusals) {
    Log::debug("PyTorch no longer calls back: it is not asked for its optimizers' steps any more");
  }
}

/// Waits until nobody is loading the library any more: it is in the loader's list before it is relocated and
/// its initialisers have run, and its loader has the lock until then. Null if that has failed. From then on
/// it stays in the process until it is closed.
void* hold(const char* path) noexcept {
  return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

/// Looks for PyTorch among what has been loaded since the last time; true once it has been found.
bool find_torch(unsigned long long& adds_seen) noexcept {
  TorchSearch search(adds_seen);
  dl_iterate_phdr(&look_at, &search);
  adds_seen = search.adds;
  if (!search.found) return false;
  void* library = hold(search.path.data());
  if (library == nullptr) return true;
  try {
    listen(search.interface, search.path.data());
  } catch (...) {
    Log::error_without_allocation("PyTorch is not asked for its optimizers' steps: out of memory");
  }
  // Its functions are called again later.
  if (!iteration_watch.steps_told.load(std::memory_order_relaxed)) dlclose(library);
  return true;
}

}  // namespace

void listen_to_steps() noexcept {
  static std::atomic<bool> busy{false};
  // Of whoever is busy:
  static bool found = false;
  static unsigned long long adds_seen = 0;
  if (busy.exchange(true, std::memory_order_acq_rel)) return;
  {
    // A fork waits as well: PyTorch's mutex must not be taken in the child by a thread that is not there.
    const LoaderUse use;
    if (!found) {
      found = find_torch(adds_seen);
    } else if (iteration_watch.steps_told.load(std::memory_order_relaxed)) {
      listen_again();
    }
    // Whose steps they are is known by Python's frames.
    if (iteration_watch.steps_told.load(std::memory_order_relaxed)) find_python();
  }
  busy.store(false, std::memory_order_release);
}

}  // namespace inject
