// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/integration/script/script.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "inject/inject.h"
#include "tests/integration/looks.h"
#include "tests/sim/cudasim.h"

namespace script {

namespace {

using Clock = std::chrono::steady_clock;

std::mutex mutex;  // protects everything below
std::condition_variable changed;
std::set<std::string> flags;
std::vector<std::thread> background;
std::map<std::string, nvtxDomainHandle_t> domains;
std::map<std::string, nvtxRangeId_t> ranges;
Clock::time_point marked;

[[noreturn]] void usage(const std::string& problem) {
  std::fprintf(stderr, "script: %s\n", problem.c_str());
  std::_Exit(99);
}

void print(const char* text, int number) {
  std::printf("%s: %d\n", text, number);
  std::fflush(stdout);
}

nvtxDomainHandle_t domain(const std::string& name) {
  const std::lock_guard lock(mutex);
  nvtxDomainHandle_t& handle = domains[name];
  if (handle == nullptr) handle = nvtxDomainCreateA(name.c_str());
  return handle;
}

nvtxEventAttributes_t message(const char* text) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text;
  return attributes;
}

void push_registered(const std::string& name) {
  nvtxEventAttributes_t attributes = message(nullptr);
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(nullptr, name.c_str());
  nvtxRangePushEx(&attributes);
}

void push_in_domain(const std::string& in, const std::string& name) {
  const nvtxEventAttributes_t attributes = message(name.c_str());
  nvtxDomainRangePushEx(domain(in), &attributes);
}

// payload:HOW:NAME:TYPE:VALUE[:DOMAIN]. HOW: open (a range that stays open), push and start (ranges that end
// at once), mark, registered (a mark).
void say_payload(const Arguments& a) {
  const std::string name = a.text(2);
  nvtxEventAttributes_t attributes = message(name.c_str());
  const std::string type = a.text(3);
  if (type == "u64") {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = std::stoull(a.text(4));
  } else if (type == "i64") {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    attributes.payload.llValue = std::stoll(a.text(4));
  } else if (type == "double") {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    attributes.payload.dValue = std::stod(a.text(4));
  } else if (type == "u32") {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT32;
    attributes.payload.uiValue = static_cast<std::uint32_t>(std::stoul(a.text(4)));
  } else if (type == "i32") {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    attributes.payload.iValue = std::stoi(a.text(4));
  } else if (type == "float") {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
    attributes.payload.fValue = std::stof(a.text(4));
  } else if (type != "none") {
    usage("no payload " + type);
  }
  const std::string how = a.text(1);
  nvtxDomainHandle_t in = a.has(5) ? domain(a.text(5)) : nullptr;
  if (how == "open") {
    in != nullptr ? nvtxDomainRangePushEx(in, &attributes) : nvtxRangePushEx(&attributes);
  } else if (how == "push") {
    in != nullptr ? nvtxDomainRangePushEx(in, &attributes) : nvtxRangePushEx(&attributes);
    in != nullptr ? nvtxDomainRangePop(in) : nvtxRangePop();
  } else if (how == "start") {
    const nvtxRangeId_t id =
        in != nullptr ? nvtxDomainRangeStartEx(in, &attributes) : nvtxRangeStartEx(&attributes);
    in != nullptr ? nvtxDomainRangeEnd(in, id) : nvtxRangeEnd(id);
  } else if (how == "registered") {
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = nvtxDomainRegisterStringA(in, name.c_str());
    in != nullptr ? nvtxDomainMarkEx(in, &attributes) : nvtxMarkEx(&attributes);
  } else {
    in != nullptr ? nvtxDomainMarkEx(in, &attributes) : nvtxMarkEx(&attributes);
  }
}

// In a library of its own, like a framework's profiler: CUPTI is then loaded when it is first used.
void client(const char* function) {
  static void* library = dlopen(CUPTI_CLIENT, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    report(dlerror(), -1);
    return;
  }
  auto* call = reinterpret_cast<int (*)()>(dlsym(library, function));
  report(function, call());
}

// CPU time of this thread.
std::chrono::nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Cost of this thread: minor page faults, voluntary context switches, CPU time.
struct Costs {
  long faults = 0;
  long waits = 0;
  long microseconds = 0;
};
Costs costs_so_far() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return {usage.ru_minflt, usage.ru_nvcsw, time.tv_sec * 1'000'000 + time.tv_nsec / 1000};
}
thread_local Costs costs_before;

// Subsequent allocations of the program, and of the simulation in it, use pages that have been touched.
void warm_heap(std::size_t bytes) {
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  void* memory = std::malloc(bytes);
  explicit_bzero(memory, bytes);
  std::free(memory);
}

// Long enough for a very busy machine, and shorter than the tests' own limit.
constexpr std::chrono::seconds kPatience{40};

template <typename Condition>
void wait_until(const std::string& what, Condition&& condition) {
  if (inject_is_open == nullptr) return;
  const auto deadline = Clock::now() + kPatience;
  while (!condition()) {
    if (Clock::now() > deadline) usage("waited in vain: " + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool is_open() {
  return inject_is_open_if_loaded() != 0;
}

void wait_for_looks(const Arguments& a) {
  const looks::Looks since;
  wait_until("looks", [&] { return since.seen(a.number(1)); });
}

// The number of threads that have come to each place.
std::map<std::string, std::uint64_t> met;

void meet(const Arguments& a) {
  std::unique_lock lock(mutex);
  ++met[a.text(1)];
  changed.notify_all();
  changed.wait(lock, [&] { return met[a.text(1)] >= a.number(2); });
}

// begun, returned
std::atomic<std::atomic<std::uint64_t>*> progress{nullptr};

void keep_progress(const Arguments& a) {
  const int file = open(a.text(1).c_str(), O_RDWR | O_CREAT, 0600);
  constexpr std::size_t kBytes = 2 * sizeof(std::uint64_t);
  if (file < 0 || ftruncate(file, kBytes) != 0) usage("no file " + a.text(1));
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) usage("no mapping of " + a.text(1));
  close(file);
  progress = static_cast<std::atomic<std::uint64_t>*>(mapped);
}

int signal_number(const std::string& name) {
  if (name == "SEGV") return SIGSEGV;
  if (name == "ABRT") return SIGABRT;
  if (name == "KILL") return SIGKILL;
  if (name == "USR1") return SIGUSR1;
  if (name == "USR2") return SIGUSR2;
  if (name == "HUP") return SIGHUP;
  if (name == "RTMIN+3") return SIGRTMIN + 3;
  usage("no signal " + name);
}

std::atomic<int> handled{0};
struct sigaction chained {};

void handler(int) {
  ++handled;
}
void handler_with_info(int, siginfo_t* info, void* context) {
  if (info != nullptr && context != nullptr && info->si_pid == getpid()) ++handled;
}
void chaining_handler(int number, siginfo_t* info, void* context) {
  ++handled;
  if ((chained.sa_flags & SA_SIGINFO) != 0) {
    chained.sa_sigaction(number, info, context);
  } else if (chained.sa_handler != SIG_DFL && chained.sa_handler != SIG_IGN) {
    chained.sa_handler(number);
  }
}

void handle(const Arguments& a) {
  const std::string how = a.text(2);
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_handler = how == "ignore" ? SIG_IGN : how == "default" ? SIG_DFL : &handler;
  if (how == "once") action.sa_flags = static_cast<int>(SA_RESETHAND);
  if (how == "siginfo" || how == "chain") {
    action.sa_sigaction = how == "chain" ? &chaining_handler : &handler_with_info;
    action.sa_flags = SA_SIGINFO;
  }
  report("sigaction", sigaction(signal_number(a.text(1)), &action, how == "chain" ? &chained : nullptr));
}

void show_in_child(const Arguments& a) {
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action {};
    sigaction(signal_number(a.text(1)), nullptr, &action);
    const bool own = action.sa_handler == &handler;
    _exit(action.sa_handler == SIG_DFL ? 0 : action.sa_handler == SIG_IGN ? 1 : own ? 2 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  constexpr const char* kActions[] = {"default", "ignored", "its own handler", "another handler"};
  std::printf("child: %s\n", kActions[WEXITSTATUS(status)]);
  std::fflush(stdout);
}

const Operations& common_operations() {
  static Operations operations{
      {"signal",
       [](const Arguments& a) {
         const std::lock_guard lock(mutex);
         flags.insert(a.text(1));
         changed.notify_all();
       }},
      {"wait",
       [](const Arguments& a) {
         std::unique_lock lock(mutex);
         changed.wait(lock, [&] { return flags.count(a.text(1)) != 0; });
       }},
      {"meet", meet},
      {"join",
       [](const Arguments&) {
         for (std::thread& thread : background) thread.join();
         background.clear();
       }},
      {"sleep",
       [](const Arguments& a) { std::this_thread::sleep_for(std::chrono::milliseconds(a.number(1))); }},
      {"busy",
       [](const Arguments& a) {
         const auto end = processor_time() + std::chrono::microseconds(a.number(1));
         while (processor_time() < end) {
         }
       }},
      {"print",
       [](const Arguments& a) {
         std::printf("%s\n", a.text(1).c_str());
         std::fflush(stdout);
       }},
      {"exit", [](const Arguments& a) { std::exit(static_cast<int>(a.number(1))); }},
      {"quick_exit", [](const Arguments& a) { _exit(static_cast<int>(a.number(1))); }},
      {"name", [](const Arguments& a) { pthread_setname_np(pthread_self(), a.text(1).c_str()); }},
      {"chdir", [](const Arguments& a) { report("chdir", chdir(a.text(1).c_str())); }},
      {"progress", keep_progress},
      {"crash", [](const Arguments& a) { raise(signal_number(a.text(1))); }},
      {"linger",
       [](const Arguments& a) {
         static std::chrono::milliseconds time;
         time = std::chrono::milliseconds(a.number(1));
         std::atexit([] { std::this_thread::sleep_for(time); });
       }},
      {"mark", [](const Arguments&) { marked = Clock::now(); }},
      {"within",
       [](const Arguments& a) {
         const auto passed = Clock::now() - marked;
         if (passed > std::chrono::milliseconds(a.number(1)))
           print("late, ms", static_cast<int>(passed / std::chrono::milliseconds(1)));
       }},
      {"fault",
       [](const Arguments& a) {
         // A value may contain colons.
         std::string value = a.text(2);
         for (std::size_t i = 3; a.has(i); ++i) value += ":" + a.text(i);
         if (cudasim_set_fault(a.text(1).c_str(), value.c_str()) != 0) usage("no fault " + a.text(1));
       }},
      {"count_costs", [](const Arguments&) { costs_before = costs_so_far(); }},
      {"costs",
       [](const Arguments& a) {
         const Costs costs = costs_so_far();
         print((a.text(1) + "_faults").c_str(), static_cast<int>(costs.faults - costs_before.faults));
         print((a.text(1) + "_waits").c_str(), static_cast<int>(costs.waits - costs_before.waits));
         print((a.text(1) + "_us").c_str(), static_cast<int>(costs.microseconds - costs_before.microseconds));
       }},
      {"warm_heap", [](const Arguments& a) { warm_heap(a.number(1)); }},
      {"duration", [](const Arguments& a) { cudasim_set_kernel_duration(a.text(1).c_str(), a.number(2)); }},
      {"open", [](const Arguments&) { print("open", inject_start_if_loaded()); }},
      {"close", [](const Arguments&) { print("close", inject_stop_if_loaded()); }},
      {"flush", [](const Arguments&) { print("flush", inject_flush_if_loaded()); }},
      {"is_open", [](const Arguments&) { print("is_open", inject_is_open_if_loaded()); }},
      {"units", [](const Arguments& a) { print("units", inject_units_if_loaded(std::stod(a.text(1)))); }},
      {"payload", say_payload},
      {"push", [](const Arguments& a) { nvtxRangePushA(a.text(1).c_str()); }},
      {"pop", [](const Arguments&) { nvtxRangePop(); }},
      {"wide",
       [](const Arguments& a) {
         const std::string name = a.text(1);
         nvtxRangePushW(std::wstring(name.begin(), name.end()).c_str());
       }},
      {"registered", [](const Arguments& a) { push_registered(a.text(1)); }},
      {"domain_push", [](const Arguments& a) { push_in_domain(a.text(1), a.text(2)); }},
      {"domain_pop", [](const Arguments& a) { nvtxDomainRangePop(domain(a.text(1))); }},
      {"range_start",
       [](const Arguments& a) {
         const nvtxRangeId_t id = nvtxRangeStartA(a.text(2).c_str());
         const std::lock_guard lock(mutex);
         ranges[a.text(1)] = id;
       }},
      {"domain_start",
       [](const Arguments& a) {
         const std::string name = a.text(3);
         const nvtxEventAttributes_t attributes = message(name.c_str());
         const nvtxRangeId_t id = nvtxDomainRangeStartEx(domain(a.text(2)), &attributes);
         const std::lock_guard lock(mutex);
         ranges[a.text(1)] = id;
       }},
      {"push_null", [](const Arguments&) { nvtxRangePushA(nullptr); }},
      {"names",
       [](const Arguments& a) {
         for (std::uint64_t i = 0; i < a.number(2); ++i) {
           nvtxRangePushA((a.text(1) + std::to_string(i)).c_str());
           nvtxRangePop();
         }
       }},
      {"until_open", [](const Arguments&) { wait_until("an open window", &is_open); }},
      {"until_closed", [](const Arguments&) { wait_until("no open window", [] { return !is_open(); }); }},
      {"until_calls",
       [](const Arguments& a) {
         wait_until(a.text(1), [&] { return cudasim_call_count(a.text(1).c_str()) >= a.number(2); });
       }},
      {"until_more_calls",
       [](const Arguments& a) {
         const std::uint64_t before = cudasim_call_count(a.text(1).c_str());
         wait_until(a.text(1), [&] { return cudasim_call_count(a.text(1).c_str()) >= before + a.number(2); });
       }},
      {"until_sampling",
       [](const Arguments& a) {
         wait_until("hardware metrics", [&] {
           return cudasim_call_count("cuptiPmSamplingStart") >=
                  cudasim_call_count("cuptiPmSamplingStop") + a.number(1, 1);
         });
       }},
      {"until_delivered",
       [](const Arguments& a) {
         wait_until("records", [&] { return cudasim_records_pending() <= a.number(1); });
       }},
      {"until_text",
       [](const Arguments& a) {
         wait_until(a.text(2),
                    [&] { return looks::text_of(a.text(1)).find(a.text(2)) != std::string::npos; });
       }},
      {"looks", wait_for_looks},
      {"raise", [](const Arguments& a) { report("kill", kill(getpid(), signal_number(a.text(1)))); }},
      {"handle", handle},
      {"handled", [](const Arguments&) { print("handled", handled); }},
      {"child", show_in_child},
      {"range_end",
       [](const Arguments& a) {
         nvtxRangeId_t id = 0;
         {
           const std::lock_guard lock(mutex);
           id = ranges[a.text(1)];
         }
         nvtxRangeEnd(id);
       }},
      {"subscribe", [](const Arguments&) { client("client_subscribe"); }},
      {"client", [](const Arguments& a) { client(("client_" + a.text(1)).c_str()); }},
      {"unsubscribe", [](const Arguments&) { client("client_unsubscribe"); }},
      {"take_buffers", [](const Arguments&) { client("client_take_buffers"); }},
      {"client_records", [](const Arguments&) { client("client_records"); }},
      {"initialize_profiler", [](const Arguments&) { client("client_initialize_profiler"); }},
      {"end_profiler", [](const Arguments&) { client("client_end_profiler"); }},
      {"finalize", [](const Arguments&) { client("client_finalize"); }},
  };
  return operations;
}

struct Program {
  std::vector<std::string> words;
  const Operations& operations;

  /// Index of the word after the block that opens at `begin`.
  std::size_t end_of_block(std::size_t begin) const {
    if (begin >= words.size() || words[begin] != "[") usage("a block is missing");
    int depth = 0;
    for (std::size_t i = begin; i < words.size(); ++i) {
      if (words[i] == "[") ++depth;
      if (words[i] == "]" && --depth == 0) return i + 1;
    }
    usage("a block does not end");
  }

  void run(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end;) {
      const Arguments arguments(words[i++]);
      const std::string& name = arguments.name();
      if (name == "loop" || name == "threads" || name == "background" || name == "while_open") {
        const std::size_t body = i + 1;
        const std::size_t after = end_of_block(i);
        run_block(name, arguments.number(1), body, after - 1);
        i = after;
        continue;
      }
      auto found = operations.find(name);
      if (found == operations.end()) {
        found = common_operations().find(name);
        if (found == common_operations().end()) usage("no operation " + name);
      }
      found->second(arguments);
    }
  }

  void run_block(const std::string& how, std::uint64_t count, std::size_t begin, std::size_t end) const {
    if (how == "loop") {
      for (std::uint64_t i = 0; i < count; ++i) run(begin, end);
    } else if (how == "background") {
      background.emplace_back([this, begin, end] { run(begin, end); });
    } else if (how == "while_open") {
      const auto deadline = Clock::now() + kPatience;
      while (is_open()) {
        if (Clock::now() > deadline) usage("a window stays open");
        run(begin, end);
      }
    } else {
      std::vector<std::thread> threads;
      for (std::uint64_t i = 0; i < count; ++i) threads.emplace_back([this, begin, end] { run(begin, end); });
      for (std::thread& thread : threads) thread.join();
    }
  }
};

}  // namespace

Arguments::Arguments(std::string_view word) {
  for (std::size_t begin = 0; begin <= word.size();) {
    const std::size_t end = std::min(word.find(':', begin), word.size());
    parts_.emplace_back(word.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::uint64_t Arguments::number(std::size_t index, std::uint64_t otherwise) const {
  return has(index) ? std::strtoull(parts_[index].c_str(), nullptr, 10) : otherwise;
}

Submission::Submission() {
  if (auto* counts = progress.load()) ++counts[0];
}
Submission::~Submission() {
  if (auto* counts = progress.load()) ++counts[1];
}

void report(const char* operation, int status) {
  if (status != 0) print(operation, status);
}

int run(int argc, char** argv, const Operations& operations) {
  // Leaked: threads may still run when main() has returned.
  auto* program = new Program{{argv + 1, argv + argc}, operations};
  int code = 0;
  std::size_t end = program->words.size();
  if (end != 0 && program->words.back().starts_with("return:"))
    code = static_cast<int>(Arguments(program->words[--end]).number(1));
  program->run(0, end);
  return code;
}

}  // namespace script
