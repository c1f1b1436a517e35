// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/host_source.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"

namespace inject {

namespace {

// What /proc shows for each thread on its own, and not for a process.
constexpr std::array kOfThreads{HostAmount::kRunQueueWait, HostAmount::kVoluntarySwitches,
                                HostAmount::kInvoluntarySwitches};
// Block size of ru_inblock.
constexpr std::uint64_t kBlock = 512;

std::uint64_t nanoseconds(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_usec) * 1000;
}

std::uint64_t ticks_since_boot() {
  timespec time{};
  if (clock_gettime(CLOCK_BOOTTIME, &time) != 0) return 0;
  const auto a_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(time.tv_sec) * a_second +
         static_cast<std::uint64_t>(time.tv_nsec) * a_second / kSecond;
}

HostUse use_of(const rusage& usage) {
  HostUse use;
  use.of(HostAmount::kProcessorTime) = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
  use.of(HostAmount::kVoluntarySwitches) = static_cast<std::uint64_t>(usage.ru_nvcsw);
  use.of(HostAmount::kInvoluntarySwitches) = static_cast<std::uint64_t>(usage.ru_nivcsw);
  use.of(HostAmount::kMinorFaults) = static_cast<std::uint64_t>(usage.ru_minflt);
  use.of(HostAmount::kMajorFaults) = static_cast<std::uint64_t>(usage.ru_majflt);
  use.of(HostAmount::kReadBytes) = static_cast<std::uint64_t>(usage.ru_inblock) * kBlock;
  return use;
}

bool is_drivers(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  const char next = name[kPrefix.size()];
  return next == '-' || (next >= '0' && next <= '9');
}

std::string_view name_in(std::string_view status) {
  constexpr std::string_view kName = "Name:\t";
  if (!status.starts_with(kName)) return {};
  return status.substr(kName.size(), status.find('\n') - kName.size());
}

}  // namespace

Nanoseconds kernel_tick() {
  static const auto a_second = static_cast<Nanoseconds>(sysconf(_SC_CLK_TCK));
  return kSecond / std::max<Nanoseconds>(a_second, 1);
}

HostRole thread_role(std::string_view name, bool is_first) noexcept {
  if (is_first) return HostRole::kMain;
  if (name.starts_with("pt_autograd")) return HostRole::kAutograd;
  if (name.starts_with("NCCL") || name.starts_with("pt_nccl")) return HostRole::kNccl;
  // The second name is Python's, which names a thread after its function, cut to 15 bytes.
  if (name == "pt_data_pin" || (name.starts_with("Thread-") && name.find("(_pi") != std::string_view::npos))
    return HostRole::kPinMemory;
  if (name == "libinject") return HostRole::kOurs;
  return is_drivers(name) ? HostRole::kDriver : HostRole::kOtherThread;
}

HostSource::HostSource() : HostSource("/proc", getpid(), Clocks{}) {}

HostSource::HostSource(std::string root, pid_t process, Clocks clocks)
    : root_(std::move(root)), process_(process), clocks_(clocks) {}

bool HostSource::resource_usage(int who, rusage& usage) {
  return getrusage(who, &usage) == 0;
}

bool HostSource::is_own() const {
  const ssize_t size = readlink((root_ + "/self").c_str(), text_.data(), text_.size());
  return size > 0 &&
         std::string_view(text_.data(), static_cast<std::size_t>(size)) == std::to_string(process_);
}

const char* HostSource::path(pid_t process, const char* rest) const {
  std::snprintf(path_.data(), path_.size(), "%s/%d/%s", root_.c_str(), static_cast<int>(process), rest);
  return path_.data();
}

const char* HostSource::task_path(pid_t process, pid_t task, const char* file) const {
  std::snprintf(path_.data(), path_.size(), "%s/%d/task/%d/%s", root_.c_str(), static_cast<int>(process),
                static_cast<int>(task), file);
  return path_.data();
}

std::optional<TaskStat> HostSource::stat_at(const char* path) const {
  return parse_task_stat(read_text(path, text_));
}

/// Adds those of one task, and gets what else its status says. False if it has ended.
bool HostSource::add_switches_and_wait(HostUse& use, pid_t process, pid_t task, Status& status) const {
  const auto wait = parse_run_queue_wait(read_text(task_path(process, task, "schedstat"), text_));
  const std::string_view text = read_text(task_path(process, task, "status"), text_);
  const std::optional<ContextSwitches> switches = parse_switches(text);
  status = {TaskName(name_in(text)), ignores_signal(text, SIGCHLD)};
  if (!switches && !stat_at(task_path(process, task, "stat"))) return false;
  add_to(use.of(HostAmount::kRunQueueWait), wait);
  add_to(use.of(HostAmount::kVoluntarySwitches),
         switches ? std::optional(switches->voluntary) : std::nullopt);
  add_to(use.of(HostAmount::kInvoluntarySwitches),
         switches ? std::optional(switches->involuntary) : std::nullopt);
  return true;
}

namespace {

/// If they are not, the kernel drops what a child used.
bool children_are_waited_for() noexcept {
  struct sigaction action {};
  return sigaction(SIGCHLD, nullptr, &action) == 0 && action.sa_handler != SIG_IGN &&
         (action.sa_flags & SA_NOCLDWAIT) == 0;
}

/// Without one, no file in /proc can be opened, and its task seems to have ended.
bool has_descriptors() noexcept {
  const int file = open_file("/proc/self/stat", O_RDONLY);
  if (file < 0) return errno != EMFILE && errno != ENFILE;
  ::close(file);
  return true;
}

}  // namespace

// What ended children used is read before the list of living ones, so that none is counted twice. The process
// comes last, so that no thread has used more than it.
bool HostSource::read(HostReading& reading) {
  if (!has_descriptors()) return false;
  reading.threads.clear();
  reading.children.clear();
  reading.threads_beyond = reading.children_beyond = 0;
  reading.begin = now();
  rusage usage{};
  reading.ticks = ticks_since_boot();
  read_threads(reading);
  // A child that the process waits for in between would be missing from both: then both are read again.
  constexpr int kMostTries = 3;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const bool known = clocks_.usage(RUSAGE_CHILDREN, usage);
    reading.ended_children = known && children_are_waited_for() ? use_of(usage) : HostUse{};
    reading.children.clear();
    read_children(reading);
    rusage after{};
    if (!known || !clocks_.usage(RUSAGE_CHILDREN, after) || use_of(after) == use_of(usage)) break;
  }
  reading.process = clocks_.usage(RUSAGE_SELF, usage) ? use_of(usage) : HostUse{};
  // getrusage() says 0 if the kernel does not account for I/O. The number in `io` includes what children read
  // that the process has waited for.
  if (!parse_read_bytes(read_text(path(process_, "io"), text_))) {
    reading.process.of(HostAmount::kReadBytes).reset();
    reading.ended_children.of(HostAmount::kReadBytes).reset();
  }
  // This clock has a resolution of a nanosecond.
  reading.process.of(HostAmount::kProcessorTime) = clocks_.process(process_);
  reading.time = now();
  std::optional<std::uint64_t>& wait = reading.process.of(HostAmount::kRunQueueWait);
  if (reading.threads_beyond == 0) wait = 0;
  for (const HostTask& thread : reading.threads) add_to(wait, thread.use.of(HostAmount::kRunQueueWait));
  return has_descriptors();
}

void HostSource::read_threads(HostReading& reading) {
  for_each_number(path(process_, "task"), [&](pid_t id) {
    if (reading.threads.size() == kMaxThreads) {
      ++reading.threads_beyond;
      return;
    }
    const std::optional<TaskStat> stat = stat_at(task_path(process_, id, "stat"));
    if (!stat) return;
    if (id == process_) program_ = stat->name;
    HostTask thread;
    thread.id = id;
    thread.start = stat->start;
    thread.role = thread_role(stat->name.view(), id == process_);
    HostUse& use = thread.use;
    use.of(HostAmount::kMinorFaults) = stat->minor_faults;
    use.of(HostAmount::kMajorFaults) = stat->major_faults;
    for (const HostAmount amount : kOfThreads) use.of(amount) = 0;
    Status status;
    if (!add_switches_and_wait(use, process_, id, status)) return;
    use.of(HostAmount::kReadBytes) = parse_read_bytes(read_text(task_path(process_, id, "io"), text_));
    use.of(HostAmount::kProcessorTime) = clocks_.thread(id);
    // The thread may have ended since; what it used is then in the rest.
    if ((use.of(HostAmount::kProcessorTime) && use.of(HostAmount::kReadBytes)) ||
        stat_at(task_path(process_, id, "stat")))
      reading.threads.push_back(thread);
  });
}

bool HostSource::is_found(pid_t pid) const {
  return std::any_of(found_.begin(), found_.end(), [pid](const Found& one) { return one.pid == pid; });
}

void HostSource::take(pid_t pid, pid_t parent, const TaskStat& stat) {
  if (is_found(pid)) return;  // it has moved to another list meanwhile
  if (found_.size() == kMaxChildren) {
    ++beyond_;
  } else {
    found_.push_back({pid, parent, stat});
  }
}

void HostSource::add_listed_children(pid_t process, pid_t task) {
  std::array<char, 2048> room;
  std::string_view list = read_text(task_path(process, task, "children"), room);
  while (!list.empty()) {
    pid_t child = 0;
    const auto end = std::from_chars(list.data(), list.data() + list.size(), child);
    // The last number of a list that did not fit may be cut off.
    if (end.ec != std::errc() || end.ptr == list.data() + list.size()) break;
    list.remove_prefix(static_cast<std::size_t>(end.ptr - list.data()) + 1);
    if (const auto stat = stat_at(path(child, "stat"))) take(child, process, *stat);
  }
  if (!list.empty() && room.size() == read_text(task_path(process, task, "children"), room).size()) ++beyond_;
}

void HostSource::scan_for_children() {
  std::vector<Found> all;
  std::uint64_t scanned = 0;
  for_each_number(root_.c_str(), [&](pid_t pid) {
    if (++scanned > kMaxScanned) return;
    if (pid == process_) return;
    if (const auto stat = stat_at(path(pid, "stat"))) all.push_back({pid, stat->parent, *stat});
  });
  if (scanned > kMaxScanned) beyond_ += scanned - kMaxScanned;
  const auto take_those_of = [&](pid_t parent) {
    for (const Found& one : all) {
      if (one.parent == parent) take(one.pid, parent, one.stat);
    }
  };
  take_those_of(process_);
  for (std::size_t i = 0; i < found_.size(); ++i) take_those_of(found_[i].pid);
}

void HostSource::list_children() {
  std::uint64_t listed = 0;
  const auto list_those_of = [&](pid_t process) {
    for_each_number(path(process, "task"), [&](pid_t task) {
      if (++listed <= kMaxScanned) add_listed_children(process, task);
    });
  };
  list_those_of(process_);
  std::size_t next = 0;
  const auto list_theirs = [&] {
    for (; next < found_.size(); ++next) list_those_of(found_[next].pid);
  };
  list_theirs();
  // The kernel may leave out a child while others end (proc(5)).
  for (const Found& one : found_before_) {
    if (beyond_ != 0 || is_found(one.pid)) continue;
    const std::optional<TaskStat> stat = stat_at(path(one.pid, "stat"));
    if (stat && stat->start == one.stat.start && (stat->parent == process_ || is_found(stat->parent)))
      take(one.pid, stat->parent, *stat);
  }
  list_theirs();
  if (listed > kMaxScanned) beyond_ += listed - kMaxScanned;
}

void HostSource::find_children() {
  std::swap(found_, found_before_);
  found_.clear();
  beyond_ = 0;
  lists_children_ = lists_children_ && ::access(task_path(process_, process_, "children"), R_OK) == 0;
  if (lists_children_) {
    list_children();
  } else {
    scan_for_children();
  }
}

void HostSource::read_children(HostReading& reading) {
  find_children();
  reading.children_beyond = beyond_;
  for (const Found& child : found_) read_child(child, reading);
  std::erase_if(with_cuda_, [this](pid_t pid) { return !is_found(pid); });
}

/// Identified by its name; excludes multiprocessing's resource tracker and its fork server, whose command
/// line its workers share (CPython, Lib/multiprocessing/resource_tracker.py and forkserver.py).
bool HostSource::is_loader_worker(const Found& child) const {
  const std::string_view name = child.stat.name.view();
  if (name == "pt_data_worker") return true;
  if (name != program_.view()) return false;
  const auto runs = [this](pid_t process, std::string_view code) {
    return read_text(path(process, "cmdline"), text_).find(code) != std::string_view::npos;
  };
  constexpr std::string_view kForkServer = "from multiprocessing.forkserver import main";
  if (runs(child.pid, "from multiprocessing.resource_tracker import main")) return false;
  return !runs(child.pid, kForkServer) || runs(child.parent, kForkServer);
}

void HostSource::read_child(const Found& child, HostReading& reading) {
  HostTask task;
  task.id = child.pid;
  task.start = child.stat.start;
  if (child.parent != process_) task.parent = child.parent;
  task.ended_children.of(HostAmount::kProcessorTime) = child.stat.children_ticks * kernel_tick();
  task.ended_children.of(HostAmount::kMinorFaults) = child.stat.children_minor_faults;
  task.ended_children.of(HostAmount::kMajorFaults) = child.stat.children_major_faults;
  // The other amounts are unknown, but zero if those children used no time and had no faults.
  if (child.stat.children_ticks + child.stat.children_minor_faults == 0) task.ended_children.amounts.fill(0);
  HostUse& use = task.use;
  use.of(HostAmount::kMinorFaults) = child.stat.minor_faults;
  use.of(HostAmount::kMajorFaults) = child.stat.major_faults;
  for (const HostAmount amount : kOfThreads) use.of(amount) = 0;
  bool cuda = std::find(with_cuda_.begin(), with_cuda_.end(), child.pid) != with_cuda_.end();
  std::size_t tasks = 0;
  std::array<pid_t, kMaxTasksOfChild> ids;
  ids[tasks++] = child.pid;
  if (child.stat.threads > 1) {
    for_each_number(path(child.pid, "task"), [&](pid_t id) {
      if (id != child.pid && tasks < ids.size()) ids[tasks++] = id;
    });
  }
  for (std::size_t i = 0; i < tasks; ++i) {
    Status status;
    if (!add_switches_and_wait(use, child.pid, ids[i], status) && i == 0) return;
    cuda = cuda || status.name.view() == "libinject" || is_drivers(status.name.view());
    task.drops_children = task.drops_children || status.drops_children;
  }
  // There were more threads than are read.
  if (child.stat.threads > tasks && tasks == ids.size()) {
    for (const HostAmount amount : kOfThreads) use.of(amount).reset();
  }
  // Includes what its ended children read.
  if (task.ended_children.of(HostAmount::kReadBytes))
    use.of(HostAmount::kReadBytes) = parse_read_bytes(read_text(path(child.pid, "io"), text_));
  use.of(HostAmount::kProcessorTime) = clocks_.process(child.pid);
  if (!use.of(HostAmount::kProcessorTime) && !stat_at(path(child.pid, "stat"))) return;
  if (cuda && std::find(with_cuda_.begin(), with_cuda_.end(), child.pid) == with_cuda_.end())
    with_cuda_.push_back(child.pid);
  task.role = cuda                      ? HostRole::kCudaChild
              : is_loader_worker(child) ? HostRole::kLoaderWorker
                                        : HostRole::kOtherChild;
  reading.children.push_back(task);
}

char HostSource::state_of(pid_t process, std::uint64_t start) const {
  const std::optional<TaskStat> first = stat_at(path(process, "stat"));
  if (!first || first->start != start || !first->running()) return 0;
  if (first->threads > kMostThreads) return 'R';
  char state = first->state;
  if (first->threads > 1) {
    for_each_number(path(process, "task"), [&](pid_t task) {
      if (state == 'R') return;
      const std::optional<TaskStat> stat = stat_at(task_path(process, task, "stat"));
      if (stat && (stat->state == 'R' || stat->state == 'D')) state = stat->state;
    });
  }
  return state;
}

char HostSource::thread_state(pid_t thread) const {
  const std::optional<TaskStat> stat = stat_at(task_path(process_, thread, "stat"));
  return stat ? stat->state : char{0};
}

}  // namespace inject
