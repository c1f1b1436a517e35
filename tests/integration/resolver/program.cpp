// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// usage: resolver_program FOLDER bare|hooked SCENARIO
//
// Calls reach the library that the dynamic linker would have chosen: every scenario, except those only about
// hooks, is also run without the preload, with the same expectations.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string folder;
bool hooked = false;
std::atomic<int> failures{0};

void expect(const char* what, long expected, long found) {
  if (expected == found) return;
  failures.fetch_add(1);
  std::fprintf(stderr, "%s: expected %ld, found %ld\n", what, expected, found);
}

class Library {
 public:
  explicit Library(const std::string& path, int flags = 0) : path_(path) {
    handle_ = dlopen((folder + "/" + path).c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (handle_ == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(2);
    }
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { dlclose(handle_); }

  template <typename F>
  F* get(const char* name) const {
    auto* found = reinterpret_cast<F*>(dlsym(handle_, name));
    if (found == nullptr) {
      std::fprintf(stderr, "%s has no %s\n", path_.c_str(), name);
      std::exit(2);
    }
    return found;
  }
  int call(const char* name) const { return get<int()>(name)(); }

 private:
  std::string path_;
  void* handle_;
};

using Version = int(int*);

// The function to which the name resolves globally: under the preload, the hook.
template <typename F>
F* global(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

void local() {
  const Library plugin("libplugin13.so");
  for (int i = 0; i < 3; ++i) expect("version", 13000, plugin.call("plugin_version"));
  expect("count", 13000, plugin.call("plugin_count"));
  expect("tail call with one runtime", 0, [&] {
    int value = 0;
    const int status = plugin.get<Version>("plugin_tail_call")(&value);
    return value == 13000 ? status : -1;
  }());
}

void two_majors(const char* first, const char* second) {
  const Library one(first);
  const Library two(second);
  const int expected_one = std::strstr(first, "12") != nullptr ? 12000 : 13000;
  const int expected_two = 25000 - expected_one;
  for (int i = 0; i < 1000; ++i) {
    expect("first", expected_one, one.call("plugin_version"));
    expect("second", expected_two, two.call("plugin_version"));
    expect("second", expected_two, two.call("plugin_count"));
    expect("first", expected_one, one.call("plugin_count"));
  }
}

void constructor(const char* plugin) {
  const Library loaded(plugin);
  expect("called from a constructor", 13000, *loaded.get<int>("plugin_constructed"));
  expect("called later", 13000, loaded.call("plugin_version"));
}

void deep_binding() {
  const Library other("libplugin12.so");
  const Library plugin("libplugin13.so", RTLD_DEEPBIND);
  expect("deeply bound", 13000, plugin.call("plugin_version"));
  expect("the other", 12000, other.call("plugin_version"));
}

// The caller does not name a runtime as needed; the library that loaded it does.
void needed_by_parent() {
  const Library other("libplugin13.so");
  const Library parent("libparent12.so");
  const Library child("libchild.so");
  expect("child", 12000, child.call("plugin_version"));
  expect("other", 13000, other.call("plugin_version"));
}

// libcudnn.so.9's names recur in its sub-libraries, which may have been loaded before it.
void sub_libraries() {
  const Library sub("libcudnn_ops.so.9");
  const Library plugin("libplugin_cudnn.so");
  expect("library over sub-library", 9, plugin.get<long()>("plugin_cudnn")());
  expect("sub-library in itself", 91, sub.get<long()>("own_cudnn_create")());
}

void special_symbols() {
  const Library plugin("libplugin13.so");
  expect("indirect function", 13000, plugin.call("plugin_indirect"));
  expect("default version", 13000, plugin.call("plugin_versioned"));
}

// Another copy of the library takes the place of an unloaded one. It has the same size, so that caller and
// copy are at the addresses of their predecessors, but its functions are at different offsets.
void reloaded() {
  for (int i = 0; i < 20; ++i) {
    {
      const Library runtime("libcudart.so.13");
      const Library plugin("libplugin13.so");
      expect("first copy", 13000, plugin.call("plugin_version"));
      expect("first copy", 13000, plugin.call("plugin_device"));
    }
    {
      // Loaded earlier with the same soname, this copy serves the plugin.
      const Library runtime("copy/libcudart.so.13");
      const Library plugin("libplugin13.so");
      expect("second copy", 13500, plugin.call("plugin_version"));
      expect("second copy", 13500, plugin.call("plugin_count"));
      expect("second copy", 13500, plugin.call("plugin_device"));
    }
    // Occupies addresses, so that later libraries are placed elsewhere.
    if (i % 4 == 3) mmap(nullptr, 0x10000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
}

void concurrent_loading() {
  const Library stays("libplugin13.so");
  std::atomic<bool> done{false};
  std::atomic<long> calls{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done.load(std::memory_order_relaxed)) {
        expect("while others load", 13000, stays.call("plugin_version"));
        expect("while others load", 13000, stays.call("plugin_device"));
        calls.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    const Library comes("libplugin12.so");
    expect("just loaded", 12000, comes.call("plugin_version"));
    expect("just loaded", 12000, comes.call("plugin_device"));
    const Library constructed("libplugin13_thread.so");
    expect("constructor's thread", 13000, *constructed.get<int>("plugin_constructed"));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  if (calls.load() == 0) expect("calls were made meanwhile", 1, 0);
}

void first_calls_at_once() {
  for (int round = 0; round < 10; ++round) {
    const Library twelve("libplugin12.so");
    const Library thirteen("libplugin13.so");
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&, i] {
        const Library& plugin = i % 2 == 0 ? twelve : thirteen;
        const int expected = i % 2 == 0 ? 12000 : 13000;
        waiting.fetch_add(1);
        while (waiting.load() < 16) std::this_thread::yield();
        for (const char* name : {"plugin_version", "plugin_count", "plugin_device"}) {
          expect(name, expected, plugin.call(name));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

void forked() {
  const Library plugin("libplugin13.so");
  expect("before", 13000, plugin.call("plugin_version"));
  const pid_t child = fork();
  if (child == 0) {
    expect("known in the child", 13000, plugin.call("plugin_version"));
    expect("new in the child", 13000, plugin.call("plugin_count"));
    _exit(failures.load());
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect("child", 0, status);
}

// Calls that return to code which needs no runtime, or to code outside of any library.
void unrelated_callers() {
  const Library plugin("libplugin13.so");
  const Library other("libforward.so");
  auto* function = global<Version>("cudaRuntimeGetVersion");
  if (function == nullptr) {
    std::fprintf(stderr, "no hook\n");
    std::exit(2);
  }
  for (int i = 0; i < 3; ++i) {
    int value = 0;
    expect("status", 0, other.get<int(Version*, int*)>("forward")(function, &value));
    expect("called through another library", 13000, value);
    value = 0;
    expect("status", 0, function(&value));
    expect("called by the program", 13000, value);
  }
#if defined(__x86_64__)
  // sub $8, %rsp; call *%rsi; add $8, %rsp; ret
  const std::array<unsigned char, 11> code{0x48, 0x83, 0xEC, 0x08, 0xFF, 0xD6, 0x48, 0x83, 0xC4, 0x08, 0xC3};
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memcpy(page, code.data(), code.size());
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  for (int i = 0; i < 3; ++i) {
    int value = 0;
    expect("status", 0, reinterpret_cast<int (*)(int*, Version*)>(page)(&value, function));
    expect("called by generated code", 13000, value);
  }
#endif
}

// No library has the name: the API's own error, and one line.
void missing(bool stderr_closed) {
  constexpr int kSymbolNotFound = 302;
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) std::exit(2);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  if (stderr_closed) close(ends[0]);  // then writing raises SIGPIPE
  long malloc_status = 0;
  long create_status = 0;
  const char* text = nullptr;
  for (int i = 0; i < 2; ++i) {
    malloc_status = global<int(void**, unsigned long)>("cudaMalloc")(nullptr, 1);
    create_status = global<int(void*)>("cublasCreate_v2")(nullptr);
    text = global<const char*(int)>("cudaGetErrorString")(2);
  }
  dup2(saved, STDERR_FILENO);
  expect("cudaMalloc", kSymbolNotFound, malloc_status);
  expect("cublasCreate", 1, create_status);
  expect("cudaGetErrorString has a text", 1, text != nullptr && *text != '\0');
  if (stderr_closed) return;
  std::string said;
  std::array<char, 4096> buffer{};
  for (ssize_t n; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    said.append(buffer.data(), static_cast<std::size_t>(n));
  }
  int lines = 0;
  for (const char c : said) lines += c == '\n' ? 1 : 0;
  expect("lines", 3, lines);
  expect("cudaMalloc is named", 1, said.find("cudaMalloc") != std::string::npos);
}

struct Scenario {
  std::function<void()> run;
  bool about_hooks = false;
};

const std::map<std::string, Scenario> kScenarios{
    {"local", {local}},
    {"two_majors", {[] { two_majors("libplugin12.so", "libplugin13.so"); }}},
    {"two_majors_reversed", {[] { two_majors("libplugin13.so", "libplugin12.so"); }}},
    {"constructor", {[] { constructor("libplugin13_constructor.so"); }}},
    {"constructor_thread", {[] { constructor("libplugin13_thread.so"); }}},
    {"deep_binding", {deep_binding}},
    {"needed_by_parent", {needed_by_parent}},
    {"sub_libraries", {sub_libraries}},
    {"special_symbols", {special_symbols}},
    {"reloaded", {reloaded}},
    {"concurrent_loading", {concurrent_loading}},
    {"first_calls_at_once", {first_calls_at_once}},
    {"forked", {forked}},
    {"unrelated_callers", {unrelated_callers, true}},
    {"missing", {[] { missing(false); }, true}},
    {"missing_closed_stderr", {[] { missing(true); }, true}},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  folder = argv[1];
  hooked = std::strcmp(argv[2], "hooked") == 0;
  const auto scenario = kScenarios.find(argv[3]);
  if (scenario == kScenarios.end()) return 2;

  if ((global<Version>("cudaRuntimeGetVersion") != nullptr) != hooked) {
    std::fprintf(stderr, "the preload is %s\n", hooked ? "missing" : "there");
    return 2;
  }
  alarm(60);  // a deadlock ends here
  scenario->second.run();
  return failures.load() == 0 ? 0 : 1;
}
