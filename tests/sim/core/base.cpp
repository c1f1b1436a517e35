// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/base.h"

#include <unistd.h>

#include <pthread.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tests/sim/cudasim.h"

namespace inject::sim {
namespace {

struct FailRule {
  std::string function;
  int code = 0;
  std::uint64_t from = 1;
  std::uint64_t count = ~std::uint64_t{0};
  bool hangs = false;
};

struct FlagRule {
  std::string waiter;
  std::string setter;
};

// Leaked: programs call into CUDA from exit handlers and from threads that outlive main().
struct State {
  std::mutex mutex;
  Settings settings;
  std::vector<std::pair<std::string, Nanoseconds>> kernel_durations;  // the first match counts
  std::array<std::uint64_t, 5> rates{10'000, 10'000, 1'000'000, 100'000, 1'000'000};
  std::vector<FailRule> fail_rules;
  std::atomic<bool> any_fail_rule{false};
  std::vector<std::string> hangs;
  std::vector<FlagRule> flags;
  std::map<std::pair<std::string, std::string>, Function> functions;
  std::unordered_set<std::string> strings;
  Faults faults;
};

bool parse_u64(std::string_view text, std::uint64_t& value) {
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && rest == end;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
  }
  return parts;
}

[[noreturn]] void bad_setting(std::string_view name, std::string_view value) {
  std::fprintf(stderr, "cudasim: %.*s: can't use '%.*s'\n", static_cast<int>(name.size()), name.data(),
               static_cast<int>(value.size()), value.data());
  std::abort();  // a mistyped test must not pass
}

bool apply_fault(State& state, std::string_view name, std::string_view value);

void apply_setting(State& state, std::string_view name, std::string_view value) {
  std::uint64_t number = 0;
  bool is_number = parse_u64(value, number);
  if (name == "CUDASIM_DEVICES") {
    if (!is_number || number > 64) bad_setting(name, value);
    state.settings.devices = static_cast<int>(number);
  } else if (name == "CUDASIM_KERNEL_NS") {
    if (!is_number) bad_setting(name, value);
    state.settings.kernel_duration = number;
  } else if (name == "CUDASIM_LAUNCH_NS") {
    if (!is_number) bad_setting(name, value);
    state.settings.launch_latency = number;
  } else if (name == "CUDASIM_KERNELS") {
    for (std::string_view item : split(value, ',')) {
      std::size_t equals = item.rfind('=');
      if (equals == std::string_view::npos || !parse_u64(item.substr(equals + 1), number))
        bad_setting(name, item);
      state.kernel_durations.emplace_back(item.substr(0, equals), number);
    }
  } else if (name == "CUDASIM_RATES") {
    constexpr std::array<std::string_view, 5> kNames{"h2d", "d2h", "d2d", "p2p", "memset"};
    for (std::string_view item : split(value, ',')) {
      std::size_t equals = item.find('=');
      const auto* known = std::find(kNames.begin(), kNames.end(), item.substr(0, equals));
      if (equals == std::string_view::npos || known == kNames.end() ||
          !parse_u64(item.substr(equals + 1), number) || number == 0)
        bad_setting(name, item);
      state.rates[static_cast<std::size_t>(known - kNames.begin())] = number;
    }
  } else if (name == "CUDASIM_POWER") {
    PowerSettings& power = state.settings.power;
    const std::pair<std::string_view, std::uint64_t*> kNames[] = {{"step_us", &power.step},
                                                                  {"idle_mw", &power.idle},
                                                                  {"busy_mw", &power.busy},
                                                                  {"limit_mw", &power.limit},
                                                                  {"sm_mhz", &power.sm_clock},
                                                                  {"max_sm_mhz", &power.max_sm_clock},
                                                                  {"memory_mhz", &power.memory_clock},
                                                                  {"celsius", &power.celsius},
                                                                  {"energy_cost_us", &power.energy_cost}};
    power.step = 20'000;
    for (std::string_view item : split(value, ',')) {
      std::size_t equals = item.find('=');
      const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                       [&](const auto& one) { return one.first == item.substr(0, equals); });
      if (equals == std::string_view::npos || known == std::end(kNames) ||
          !parse_u64(item.substr(equals + 1), *known->second))
        bad_setting(name, item);
    }
    if (power.step == 0) bad_setting(name, value);
    power.step *= 1000;
    power.energy_cost *= 1000;
  } else if (name == "CUDASIM_FAULTS") {
    for (std::string_view item : split(value, ',')) {
      std::size_t equals = item.find('=');
      std::string_view argument = equals == std::string_view::npos ? "" : item.substr(equals + 1);
      if (!apply_fault(state, item.substr(0, equals), argument)) bad_setting(name, item);
    }
  } else if (name == "CUDASIM_REPORT") {
    state.settings.report_path = value;
  } else {
    bad_setting("CUDASIM_CONFIG", name);
  }
}

void read_environment(State& state) {
  constexpr std::array<const char*, 8> kNames{"CUDASIM_DEVICES",   "CUDASIM_KERNEL_NS", "CUDASIM_KERNELS",
                                              "CUDASIM_LAUNCH_NS", "CUDASIM_RATES",     "CUDASIM_POWER",
                                              "CUDASIM_FAULTS",    "CUDASIM_REPORT"};
  for (const char* name : kNames)
    if (const char* value = std::getenv(name)) apply_setting(state, name, value);
  const char* path = std::getenv("CUDASIM_CONFIG");
  if (path == nullptr) return;
  std::ifstream file(path);
  if (!file) bad_setting("CUDASIM_CONFIG", path);
  std::string line;
  while (std::getline(file, line)) {
    std::size_t equals = line.find('=');
    if (line.empty() || line[0] == '#') continue;
    if (equals == std::string::npos) bad_setting("CUDASIM_CONFIG", line);
    std::string name = line.substr(0, equals);
    if (std::getenv(name.c_str()) == nullptr) apply_setting(state, name, line.substr(equals + 1));
  }
}

State& state() {
  static State& instance = []() -> State& {
    State& fresh = *new State;
    read_environment(fresh);
    return fresh;
  }();
  return instance;
}

// api_fail=FUNCTION:CODE[:FROM[:COUNT]]
bool parse_fail_rule(std::string_view value, FailRule& rule) {
  std::vector<std::string_view> parts = split(value, ':');
  std::uint64_t code = 0;
  if (parts.size() < 2 || parts.size() > 4 || !parse_u64(parts[1], code)) return false;
  rule.function = parts[0];
  rule.code = static_cast<int>(code);
  if (parts.size() > 2 && !parse_u64(parts[2], rule.from)) return false;
  return parts.size() < 4 || parse_u64(parts[3], rule.count);
}

bool apply_fault(State& state, std::string_view name, std::string_view value) {
  Faults& fault = state.faults;
  bool off = value == "off";
  std::uint64_t number = 0;
  bool is_number = parse_u64(value, number);
  auto counter = [&](std::atomic<std::int64_t>& target) {
    if (!off && !is_number) return false;
    target = static_cast<std::int64_t>(number);
    return true;
  };
  if (name == "late") {
    if (!off && !is_number) return false;
    fault.late_ns = number * 1'000'000u;
  } else if (name == "drop") {
    return counter(fault.drop);
  } else if (name == "repeat") {
    return counter(fault.repeat);
  } else if (name == "overwritten_end") {
    return counter(fault.overwritten_end);
  } else if (name == "zero_time") {
    return counter(fault.zero_time);
  } else if (name == "out_of_order") {
    fault.out_of_order = !off;
  } else if (name == "finalize_keeps_nothing") {
    fault.finalize_keeps_nothing = !off;
  } else if (name == "no_attach_wait") {
    fault.no_attach_wait = !off;
  } else if (name == "subscriber_taken") {
    // Not intern(): settings are read while the state is being made.
    fault.holder = off || value.empty() ? nullptr : (new std::string(value))->c_str();
    fault.subscriber_taken = !off;
  } else if (name == "fatal_error") {
    fault.fatal_error = !off;
  } else if (name == "attach_ms") {
    if (!off && !is_number) return false;
    fault.attach_ms = static_cast<std::uint32_t>(number);
  } else if (name == "detach_ms") {
    if (!off && !is_number) return false;
    fault.detach_ms = static_cast<std::uint32_t>(number);
  } else if (name == "enable_ms") {
    if (!off && !is_number) return false;
    fault.enable_ms = static_cast<std::uint32_t>(number);
  } else if (name == "init_ms") {
    if (!off && !is_number) return false;
    fault.init_ms = static_cast<std::uint32_t>(number);
  } else if (name == "nvml_ms") {
    if (!off && !is_number) return false;
    fault.nvml_ms = static_cast<std::uint32_t>(number);
  } else if (name == "nvml_wait_ms") {
    if (!off && !is_number) return false;
    fault.nvml_wait_ms = static_cast<std::uint32_t>(number);
  } else if (name == "finalize_ms") {
    if (!off && !is_number) return false;
    fault.finalize_ms = static_cast<std::uint32_t>(number);
  } else if (name == "profiler_stop_ms") {
    if (!off && !is_number) return false;
    fault.profiler_stop_ms = static_cast<std::uint32_t>(number);
  } else if (name == "context_ms") {
    if (!off && !is_number) return false;
    fault.context_ms = static_cast<std::uint32_t>(number);
  } else if (name == "cupti_version") {
    if (!off && !is_number) return false;
    fault.cupti_version = static_cast<std::uint32_t>(number);
  } else if (name == "pm_enable_ms") {
    if (!off && !is_number) return false;
    fault.pm_enable_ms = static_cast<std::uint32_t>(number);
  } else if (name == "pm_decode_ms") {
    if (!off && !is_number) return false;
    fault.pm_decode_ms = static_cast<std::uint32_t>(number);
  } else if (name == "pm_load_ms") {
    if (!off && !is_number) return false;
    fault.pm_load_ms = static_cast<std::uint32_t>(number);
  } else if (name == "pm_buffer") {
    return counter(fault.pm_buffer);
  } else if (name == "pm_overflow_flag") {
    fault.pm_overflow_flag = !off;
  } else if (name == "pm_overflow_silent") {
    fault.pm_overflow_silent = !off;
  } else if (name == "pm_wall_clock") {
    fault.pm_wall_clock = !off;
  } else if (name == "pm_contrary") {
    return counter(fault.pm_contrary);
  } else if (name == "pm_retimed") {
    return counter(fault.pm_retimed);
  } else if (name == "pm_no_timer") {
    fault.pm_no_timer = !off;
  } else if (name == "pm_no_pcie") {
    fault.pm_no_pcie = !off;
  } else if (name == "pm_silent_pcie") {
    fault.pm_silent_pcie = !off;
  } else if (name == "energy_reset") {
    fault.energy_resets.fetch_add(off ? 0 : 1);
  } else if (name == "clock_reasons") {
    if (!off && !is_number) return false;
    fault.clock_reasons = static_cast<std::uint32_t>(number);
  } else if (name == "sm_clock") {
    if (!off && !is_number) return false;
    fault.sm_clock = static_cast<std::uint32_t>(number);
  } else if (name == "pm_unsupported") {
    constexpr std::array<std::string_view, 6> kReasons{"off",  "architecture",  "sli",
                                                       "vgpu", "vgpu_disabled", "wsl"};
    const auto* reason = std::find(kReasons.begin(), kReasons.end(), value);
    if (reason == kReasons.end()) return false;
    fault.pm_unsupported = static_cast<std::uint32_t>(reason - kReasons.begin());
  } else if (name == "cupti_hang") {
    FailRule rule;
    rule.function = value;
    rule.hangs = true;
    state.fail_rules.push_back(rule);
    state.any_fail_rule = true;
  } else if (name == "cupti_fail" || name == "api_fail") {
    if (off) {
      state.fail_rules.clear();
      state.any_fail_rule = false;
      return true;
    }
    FailRule rule;
    if (!parse_fail_rule(value, rule)) return false;
    state.fail_rules.push_back(rule);
    state.any_fail_rule = true;
  } else if (name == "hang") {
    if (off)
      state.hangs.clear();
    else
      state.hangs.emplace_back(value);
  } else if (name == "wait_for") {
    if (off) {
      state.flags.clear();
      return true;
    }
    std::size_t slash = value.find('/');
    if (slash == std::string_view::npos) return false;
    state.flags.push_back({std::string(value.substr(0, slash)), std::string(value.substr(slash + 1))});
  } else {
    return false;
  }
  return true;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

struct CbidEntry {
  std::uint32_t cbid;
  const char* name;       // as in the header's enumerator
  std::string_view base;  // without the runtime's _vNNNN
};

constexpr std::string_view without_version(std::string_view name) {
  std::size_t at = name.rfind("_v");
  if (at == std::string_view::npos) return name;
  for (char c : name.substr(at + 2))
    if (c < '0' || c > '9') return name;
  return name.size() - at - 2 >= 4 ? name.substr(0, at) : name;
}

// Generated from the vendor's enumerations of callback ids when the build is configured.
constexpr CbidEntry kDriverCbids[] = {
#define SIM_CBID(id, name) {id, #name, #name},
#include "driver_cbids.inc"
};
constexpr CbidEntry kRuntimeCbids[] = {
#define SIM_CBID(id, name) {id, #name, without_version(#name)},
#include "runtime_cbids.inc"
};

std::atomic<std::uint32_t> generation{1};
std::atomic<bool> driver_initialised{false};
std::atomic<bool> forked_child{false};

}  // namespace

int Function::enter() {
  std::uint64_t call = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  State& shared = state();
  if (!shared.any_fail_rule.load(std::memory_order_relaxed)) return 0;
  std::unique_lock lock(shared.mutex);
  for (const FailRule& rule : shared.fail_rules) {
    if (rule.function != name || call < rule.from || call - rule.from >= rule.count) continue;
    if (!rule.hangs) return rule.code;
    lock.unlock();
    for (;;) pause();
  }
  return 0;
}

Function& register_function(const char* library, const char* name, Domain domain) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  Function& function = shared.functions[{library, name}];
  if (function.name.empty()) {
    function.library = library;
    function.name = name;
    function.domain = domain;
    function.cbid = find_cbid(domain, name, &function.cbid_name);
  }
  return function;
}

std::uint32_t find_cbid(Domain domain, std::string_view name, const char** full_name) {
  const CbidEntry* found = nullptr;
  if (domain == Domain::kDriver) {
    for (const CbidEntry& entry : kDriverCbids)
      if (entry.base == name) found = &entry;
  } else if (domain == Domain::kRuntime) {
    for (const CbidEntry& entry : kRuntimeCbids)
      if (entry.base == name) found = &entry;  // the newest version stands last
  }
  *full_name = found != nullptr ? found->name : nullptr;
  return found != nullptr ? found->cbid : 0;
}

const char* cbid_name(Domain domain, std::uint32_t cbid) {
  auto search = [cbid](const auto& table) -> const char* {
    for (const CbidEntry& entry : table)
      if (entry.cbid == cbid) return entry.name;
    return nullptr;
  };
  if (domain == Domain::kDriver) return search(kDriverCbids);
  if (domain == Domain::kRuntime) return search(kRuntimeCbids);
  return nullptr;
}

const Settings& settings() {
  return state().settings;
}

void set_kernel_duration(std::string_view name_part, Nanoseconds duration) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.kernel_durations.insert(shared.kernel_durations.begin(), {std::string(name_part), duration});
  generation.fetch_add(1);
}

Nanoseconds transfer_duration(Rate rate, std::uint64_t bytes) {
  std::uint64_t per_microsecond = state().rates[static_cast<std::size_t>(rate)];
  return std::max<Nanoseconds>(1, (bytes * 1000 + per_microsecond - 1) / per_microsecond);
}

bool Faults::take(std::atomic<std::int64_t>& counter) {
  if (counter.load(std::memory_order_relaxed) <= 0) return false;
  return counter.fetch_sub(1, std::memory_order_relaxed) > 0;
}

Faults& faults() {
  return state().faults;
}

bool set_fault(std::string_view name, std::string_view value) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  generation.fetch_add(1);
  return apply_fault(shared, name, value);
}

KernelBehaviour kernel_behaviour(std::string_view name) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  KernelBehaviour behaviour;
  behaviour.duration = shared.settings.kernel_duration;
  for (const auto& [part, duration] : shared.kernel_durations) {
    if (!contains(name, part)) continue;
    behaviour.duration = duration;
    break;
  }
  for (const std::string& part : shared.hangs) behaviour.hangs |= contains(name, part);
  for (std::size_t i = 0; i < shared.flags.size(); ++i) {
    if (contains(name, shared.flags[i].waiter)) behaviour.waits_for = static_cast<int>(i);
    if (contains(name, shared.flags[i].setter)) behaviour.sets.push_back(static_cast<int>(i));
  }
  return behaviour;
}

std::uint32_t settings_generation() {
  return generation.load(std::memory_order_acquire);
}

const char* intern(std::string_view text) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return shared.strings.emplace(text).first->c_str();
}

bool in_forked_child() {
  return forked_child.load(std::memory_order_relaxed);
}

void mark_initialised() {
  if (driver_initialised.exchange(true)) return;
  // A child's calls register functions before they fail: the lock must not be one that a thread held which is
  // not there.
  pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                 [] {
                   state().mutex.unlock();
                   forked_child = true;
                 });
}

void for_each_function(const std::function<void(const Function&)>& visit) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  for (const auto& [key, function] : shared.functions) visit(function);
}

}  // namespace inject::sim

using namespace inject::sim;

extern "C" {

void cudasim_set_kernel_duration(const char* name_part, uint64_t nanoseconds) {
  set_kernel_duration(name_part, nanoseconds);
}

int cudasim_set_fault(const char* name, const char* value) {
  return set_fault(name, value != nullptr ? value : "") ? 0 : -1;
}

uint64_t cudasim_call_count(const char* function) {
  std::string_view wanted = function;
  std::string_view library;
  if (std::size_t mark = wanted.find('!'); mark != std::string_view::npos) {
    library = wanted.substr(0, mark);
    wanted.remove_prefix(mark + 1);
  }
  uint64_t calls = 0;
  for_each_function([&](const Function& candidate) {
    if (candidate.name == wanted && (library.empty() || candidate.library == library))
      calls += candidate.calls.load(std::memory_order_relaxed);
  });
  return calls;
}
}
