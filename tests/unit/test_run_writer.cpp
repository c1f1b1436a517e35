// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/run_writer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"
#include "libinject/base/log.h"
#include "libinject/base/process.h"
#include "libinject/journal/run_state.h"
#include "libinject/output/table_files.h"
#include "libinject/replay/image.h"
#include "tests/unit/catch.h"
#include "tests/unit/gunzip.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/write_files.h"

using namespace inject;
namespace fs = std::filesystem;

namespace {

constexpr Nanoseconds kBase = 1'000'000;

/// Sets an environment variable during its lifetime.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// Sets a soft limit during its lifetime.
class Limit {
 public:
  Limit(decltype(RLIMIT_FSIZE) resource, rlim_t value) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit lower{std::min(value, before_.rlim_max), before_.rlim_max};
    setrlimit(resource_, &lower);
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  decltype(RLIMIT_FSIZE) resource_;
  rlimit before_{};
};

/// Returns what `write` writes to stderr.
std::string on_stderr(const std::string& file, const std::function<void()>& write) {
  const int before = dup(STDERR_FILENO);
  const int descriptor = open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  REQUIRE(descriptor >= 0);
  dup2(descriptor, STDERR_FILENO);
  write();
  dup2(before, STDERR_FILENO);
  close(before);
  close(descriptor);
  std::ifstream text(file);
  return {std::istreambuf_iterator<char>(text), {}};
}

/// The number of errors and warnings that contain `text`, over the run of all tests.
std::size_t said(const std::string& text) {
  const std::vector<std::string> messages = Log::notable();
  return static_cast<std::size_t>(
      std::count_if(messages.begin(), messages.end(),
                    [&](const std::string& message) { return message.find(text) != std::string::npos; }));
}

/// The parts of a session that write, without CUDA, and a folder for the output.
struct Writing {
  Writing() {
    options.out = temporary.path() + "/run";
    options.summary = SummaryTarget::kOff;
  }
  static ParseResult with_ring() {
    ParseResult parsed;
    parsed.options.ring_bytes = std::size_t{64} << 10;
    return parsed;
  }
  /// Created with the options as set at the first call.
  RunWriter& writer() {
    if (!writer_) {
      writer_.emplace(options,
                      RunWriter::Sources{core, windows, statistics, drain, sources, buffers,
                                         [this] { return cupti_version; },
                                         [this](RunInfo& run) {
                                           if (complete) complete(run);
                                         }},
                      RunWriter::Clock{kBase, 77});
    }
    return *writer_;
  }
  std::string folder() const { return temporary.path() + "/run"; }
  bool exists(const std::string& name) const { return fs::exists(folder() + "/" + name); }
  std::string text(const std::string& name) const { return temporary.read("run/" + name); }
  nlohmann::json run_json() const { return nlohmann::json::parse(text("run.json")); }
  /// A window that contains a kernel.
  void window(bool ended = true) {
    const std::uint32_t number = windows.open("api", kBase);
    CallRecord call;
    call.function = find_function("cudaLaunchKernel");
    call.correlation = number;
    call.begin = kBase + 10;
    call.end = kBase + 20;
    call.window = number;
    call.generation = 1;
    call.call = number;
    queue.push(core.ring, call, 1);
    queue.drain(core.ring, [this](const Slot& slot) { drain.take(1, slot); });
    KernelEvent kernel;
    kernel.correlation = number;
    kernel.start = kBase + 30;
    kernel.end = kBase + 130;
    kernel.grid = kernel.block = {1, 1, 1};
    drain.take(kernel, "_Z5alphav", 1);
    if (!ended) return;
    windows.end(number, kBase + 1000);
    drain.settle(0, true);
    windows.settle();
  }
  /// Makes it impossible to put a table in place.
  void block_table() const { fs::create_directory(folder() + "/" + table()); }
  static std::string table() { return std::string(table_files().front().name); }

  TemporaryFolder temporary;
  Options options;
  Core core{with_ring()};
  ActivityBuffers buffers{std::size_t{1} << 20};
  WindowLog windows;
  Statistics statistics{core.names, core.ranges, core.shapes};
  Drain drain{core, windows, statistics, [] {}};
  DrainSources sources{core, buffers, windows, drain, [] {}};
  RecordQueue queue;
  std::uint32_t cupti_version = 0;
  std::function<void(RunInfo&)> complete;

 private:
  std::optional<RunWriter> writer_;
};

}  // namespace

TEST_CASE("a file's name in an option has this process's names put in", "[output]") {
  const Variable variable("INJECT_TEST_PLACE", "here");
  const Variable rank("RANK", "3");
  CHECK(expand_option_path("/a/%p-%h-%r-%q{INJECT_TEST_PLACE}%%") ==
        "/a/" + std::to_string(getpid()) + "-" + host_name() + "-3-here%");
  CHECK(expand_option_path("%q{INJECT_TEST_UNSET}").empty());
}

TEST_CASE_METHOD(Writing, "the run's folder is made once, and told", "[output]") {
  CHECK_FALSE(fs::exists(folder()));
  CHECK(writer().shown_folder() == nullptr);
  CHECK(writer().folder().empty());
  REQUIRE(writer().ensure_folder());
  CHECK(fs::is_directory(folder()));
  CHECK(writer().folder() == folder());
  CHECK(writer().shown_folder() == folder());
  CHECK(writer().ensure_folder());
  CHECK(writer().may_write());
  CHECK_FALSE(writer().folder_failed());
  CHECK_FALSE(fs::exists(folder() + ".1"));
}

TEST_CASE_METHOD(Writing, "a folder that is another run's is left alone", "[output]") {
  fs::create_directory(folder());
  REQUIRE(writer().ensure_folder());
  CHECK(writer().folder() == folder() + ".1");
  write_files(writer(), "closed");
  CHECK(fs::is_empty(folder()));
  CHECK(fs::exists(folder() + ".1/run.json"));
}

TEST_CASE_METHOD(Writing, "a folder that can't be made is one error, and no file", "[output]") {
  const bool name = GENERATE(true, false);
  CAPTURE(name);
  std::ofstream(temporary.path() + "/file") << "no folder";
  options.out = name ? temporary.path() + "/%q{INJECT_TEST_UNSET}" : temporary.path() + "/file/run";
  CHECK_FALSE(writer().ensure_folder());
  CHECK_FALSE(writer().ensure_folder());
  CHECK_FALSE(writer().may_write());
  CHECK(writer().folder_failed());
  CHECK(writer().shown_folder() == nullptr);
  CHECK(said("no files are written: INJECT_OUT=" + options.out + ": ") == 1);
  window();
  write_files(writer(), "open");
  CHECK_FALSE(writer().write_last());
  CHECK(std::distance(fs::directory_iterator(temporary.path()), fs::directory_iterator()) == 1);
  CHECK(said(temporary.path()) == 1);
}

TEST_CASE_METHOD(Writing, "tables are written once a window has ended, run.json before", "[output]") {
  options.in_force = {{"INJECT_BATCH", "8"}};
  options.batch = 8;
  cupti_version = 130'000;
  complete = [](RunInfo& run) { run.overhead.attachments = 4321; };
  REQUIRE(writer().may_write());
  write_files(writer(), "closed");
  CHECK(writer().closed_on_disk());
  CHECK(run_json()["state"] == "closed");
  CHECK_FALSE(exists(table()));

  windows.open("api", kBase);
  write_files(writer(), "open");
  CHECK_FALSE(writer().closed_on_disk());
  const nlohmann::json run = run_json();
  CHECK(run["state"] == "open");
  CHECK(run["pid"] == getpid());
  CHECK(run["host"] == host_name());
  CHECK(run["windows"].size() == 1);
  CHECK(run["options"]["INJECT_BATCH"] == "8");
  CHECK(run["versions"]["cupti"] == "130000");
  CHECK(run.dump().find("4321") != std::string::npos);
  CHECK_FALSE(exists(table()));

  windows.end(1, kBase + 500);
  window();
  write_files(writer(), "open");
  for (const TableFile& file : table_files()) {
    INFO(file.name);
    CHECK(exists(std::string(file.name)) == (file.wanted == nullptr));
  }
  CHECK(text("cuda_gpu_kern_sum.csv").find("alpha()") != std::string::npos);
  CHECK_FALSE(writer().write_last());
  CHECK(run_json()["state"] == "closed");
  CHECK(writer().closed_on_disk());
}

TEST_CASE_METHOD(Writing, "what is left for a kill says what the run is, and goes with it",
                 "[output][recovery]") {
  cupti_version = 24;
  REQUIRE(writer().ensure_folder());
  writer().tend_records();
  const auto left = [this] {
    const std::string bytes = text(recovery::kFileName);
    return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
  };
  std::string problem;
  {
    const std::vector<std::uint8_t> bytes = left();
    recovery::Image image;
    REQUIRE(image.open(bytes, problem));
    CHECK(image.header().pid == getpid());
    CHECK(image.header().base == kBase);
    CHECK(image.header().base_utc == 77);
    CHECK(image.live().cupti_version == 24);
    CHECK(image.live().written_block == 0);
    RunInfo run;
    REQUIRE(recovery::decode_run(image.info(), run));
    CHECK_FALSE(run.version.empty());
    CHECK(run.pid == getpid());
    CHECK(run.batch == 0);
  }
  // What becomes known later is in each write, as is the note that the tables are written.
  complete = [](RunInfo& run) { run.batch = 9; };
  cupti_version = 25;
  window();
  sources.pass(nullptr);
  write_files(writer(), "closed");
  {
    const std::vector<std::uint8_t> bytes = left();
    recovery::Image image;
    REQUIRE(image.open(bytes, problem));
    CHECK(image.live().cupti_version == 25);
    CHECK(image.live().written_block != 0);
    RunInfo run;
    REQUIRE(recovery::decode_run(image.info(), run));
    CHECK(run.batch == 9);
  }
  writer().write_last();
  CHECK_FALSE(exists(recovery::kFileName));
  CHECK(said(temporary.path()) == 0);
}

TEST_CASE_METHOD(Writing, "nothing is left for a kill where that is not asked for, or can't be",
                 "[output][recovery]") {
  options.recover = GENERATE(true, false);
  CAPTURE(options.recover);
  const std::string warning = "records are kept in memory, and are lost if the process is killed: ";
  const std::size_t before = said(warning);
  {
    const Limit limit(RLIMIT_FSIZE, 1000);
    REQUIRE(writer().ensure_folder());
  }
  CHECK(said(warning) - before == (options.recover ? 1u : 0u));
  CHECK_FALSE(exists(recovery::kFileName));
  writer().tend_records();
  writer().keep_run_state();
  window();
  write_files(writer(), "closed");
  CHECK_FALSE(writer().write_last());
  CHECK(run_json()["state"] == "closed");
  CHECK(said("`injectctl recover " + folder()) == 0);
}

TEST_CASE_METHOD(Writing, "records stay where a file could not be written", "[output][recovery]") {
  REQUIRE(writer().ensure_folder());
  block_table();
  window();
  write_files(writer(), "closed");
  write_files(writer(), "closed");
  CHECK(said(folder() + "/" + table()) == 1);  // only once
  CHECK_FALSE(writer().write_last());
  CHECK(exists(recovery::kFileName));
  CHECK(said("`injectctl recover " + folder() + "`") == 1);
  CHECK(run_json()["state"] == "closed");
}

TEST_CASE_METHOD(Writing, "a folder that has taken the name of ours, which was moved, is left alone",
                 "[output][recovery]") {
  REQUIRE(writer().ensure_folder());
  window();
  write_files(writer(), "closed");
  const std::string moved = temporary.path() + "/moved";
  fs::rename(folder(), moved);
  fs::create_directory(folder());
  for (const std::string& name : {std::string("run.json"), table(), std::string(recovery::kFileName)})
    temporary.write("run/" + name, "theirs");
  window();
  write_files(writer(), "closed");
  CHECK(writer().incomplete());
  CHECK_FALSE(writer().write_last());
  writer().stop();
  for (const std::string& name : {std::string("run.json"), table(), std::string(recovery::kFileName)})
    CHECK(text(name) == "theirs");
  CHECK(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()) == 3);
  CHECK(said(folder() + " has been moved or removed: nothing is written there") == 1);
  CHECK(said(folder() + " has been moved or removed: `injectctl recover`") == 1);
  CHECK(fs::exists(moved + "/" + recovery::kFileName));
}

TEST_CASE_METHOD(Writing, "an unused folder that has been moved is left, as is the one with its name",
                 "[output]") {
  writer().prepare_folder();
  fs::rename(folder(), temporary.path() + "/moved");
  fs::create_directory(folder());
  temporary.write(std::string("run/") + recovery::kFileName, "theirs");
  writer().discard_folder();
  CHECK(text(recovery::kFileName) == "theirs");
}

TEST_CASE_METHOD(Writing, "records go once the last writing has come through", "[output][recovery]") {
  REQUIRE(writer().ensure_folder());
  block_table();
  window();
  write_files(writer(), "closed");
  fs::remove(folder() + "/" + table());
  writer().write_last();
  CHECK_FALSE(exists(recovery::kFileName));
  CHECK(fs::is_regular_file(folder() + "/" + table()));
}

TEST_CASE_METHOD(Writing, "records stay where raw records were lost before", "[output][recovery]") {
  options.trace = GENERATE(std::uint8_t{kTraceCsv}, std::uint8_t{kTraceChrome});
  REQUIRE(writer().ensure_folder());
  window();
  {
    const QuietSignals quiet;
    const Limit limit(RLIMIT_FSIZE, 8);
    write_files(writer(), "closed");
  }
  CHECK(said(temporary.path()) == 1);
  writer().write_last();
  CHECK(run_json()["state"] == "closed");
  CHECK(exists(recovery::kFileName));
}

TEST_CASE_METHOD(Writing, "files show the moment they were made for, whenever they are put there",
                 "[output]") {
  window();
  REQUIRE(writer().may_write());
  RunWriter::Prepared first = writer().prepare("closed");
  window();
  put_files(writer(), first);
  CHECK(run_json().at("windows").size() == 1);
  CHECK(text(table()).find(",100,1,") != std::string::npos);  // 100 ns, one kernel
  writer().finish(first);
  CHECK(said(temporary.path()) == 0);

  // Text prepared earlier never replaces later text.
  RunWriter::Prepared late = writer().prepare("closed");
  window();
  writer().write_last();
  put_files(writer(), late);
  CHECK(run_json().at("windows").size() == 3);
  CHECK(late.problems.empty());
  writer().finish(late);
}

TEST_CASE_METHOD(Writing, "raw records go into the folder as they come", "[output]") {
  options.trace = kTraceCsv | kTraceChrome;
  options.metrics = options.metrics_timeline = true;
  REQUIRE(writer().ensure_folder());
  CHECK(writer().timeline().is_open());
  CHECK(writer().chrome().is_open());
  window(false);
  write_files(writer(), "open");
  CHECK(text("cuda_gpu_trace.csv").find("alpha()") != std::string::npos);
  CHECK_FALSE(exists(ChromeTrace::kFileName));  // written as a whole, by a write that may be the last
  windows.end(1, kBase + 1000);
  writer().write_last();
  const auto timeline = nlohmann::json::parse(gunzip(text(ChromeTrace::kFileName)));
  CHECK(timeline.dump().find("alpha()") != std::string::npos);
  CHECK(timeline.dump().find(fs::read_symlink("/proc/self/exe").filename().string()) != std::string::npos);
  CHECK(exists("metric_samples.csv"));
}

TEST_CASE_METHOD(Writing, "raw records that nobody asked for are not written", "[output]") {
  options.metrics_timeline = true;  // without any metrics
  REQUIRE(writer().ensure_folder());
  window();
  writer().write_last();
  CHECK_FALSE(writer().timeline().is_open());
  CHECK_FALSE(exists("metric_samples.csv"));
  CHECK_FALSE(exists("cuda_gpu_trace.csv"));
  CHECK_FALSE(exists(ChromeTrace::kFileName));
}

TEST_CASE("files that can't be opened are said, and the others are written", "[output]") {
  // The first free descriptor, so this is the number of descriptors in use.
  const int free = dup(STDERR_FILENO);
  close(free);
  std::size_t partly = 0;
  bool all = false;
  for (unsigned more = 0; more < 12 && !all; ++more) {
    CAPTURE(more);
    Writing run;
    run.options.trace = kTraceCsv | kTraceChrome;
    run.options.metrics = run.options.metrics_timeline = true;
    run.options.recover = false;
    RunWriter& writer = run.writer();
    bool made = false;
    {
      const Limit limit(RLIMIT_NOFILE, static_cast<rlim_t>(free) + more);
      made = writer.ensure_folder();
    }
    CHECK(made != writer.folder_failed());
    CHECK(said("no files are written: INJECT_OUT=" + run.folder()) == (made ? 0u : 1u));
    if (!made) continue;
    const auto fails = [&run](const char* what) {
      return said("no " + std::string(what) + " written: cannot create " + run.folder() + "/") != 0;
    };
    const bool samples = !fails("samples are");
    const bool records = !fails("raw records are");
    const bool timeline = !fails("timeline is");
    all = samples && records && timeline;
    if (!all) ++partly;
    run.window();
    writer.write_last();
    CHECK(writer.timeline().is_open() == samples);
    CHECK((run.text("cuda_gpu_trace.csv").find("alpha()") != std::string::npos) == records);
    CHECK(run.exists(ChromeTrace::kFileName) == timeline);
    CHECK(run.exists(Writing::table()));
  }
  CHECK(all);
  CHECK(partly > 1);
}

TEST_CASE_METHOD(Writing, "large tables are written less often", "[output]") {
  REQUIRE(writer().ensure_folder());
  CHECK(writer().interval() == RunWriter::kInterval);
  CHECK(writer().time() == 0);
  Nanoseconds work = 0;
  complete = [&work](RunInfo&) {
    for (const Nanoseconds begin = thread_cpu_time(); thread_cpu_time() - begin < work;) {
    }
  };
  work = 30 * kMillisecond;
  write_files(writer(), "closed");
  CHECK(writer().interval() >= 3 * kSecond);
  const Nanoseconds once = writer().time();
  CHECK(once >= work);
  work = 310 * kMillisecond;
  write_files(writer(), "closed");
  CHECK(writer().interval() == 30 * kSecond);
  CHECK(writer().time() >= once + work);
}

TEST_CASE_METHOD(Writing, "Prometheus' file is written where there is no folder", "[output][prometheus]") {
  std::ofstream(temporary.path() + "/file") << "no folder";
  options.out = temporary.path() + "/file/run";
  options.prometheus_file = temporary.path() + "/%p.prom";
  const std::string name = std::to_string(getpid()) + ".prom";
  CHECK(writer().may_write());
  CHECK(writer().folder_failed());
  windows.open("api", kBase);
  // The run's state.
  const auto open = [&] {
    const std::string text = temporary.read(name);
    std::string states;
    for (const char* state : {"open", "waiting", "closed"}) {
      if (text.find("state=\"" + std::string(state) + "\"} 1\n") != std::string::npos) states += state;
    }
    return states;
  };
  write_files(writer(), "open");
  CHECK(open() == "open");
  write_files(writer(), "closed");
  CHECK(open() == "waiting");
  CHECK_FALSE(writer().write_last());
  CHECK(open() == "closed");
  CHECK_FALSE(fs::exists(folder()));
}

TEST_CASE_METHOD(Writing, "a Prometheus file that can't be written is one error", "[output][prometheus]") {
  options.prometheus_file = temporary.path() + "/none/node.prom";
  window();
  REQUIRE(writer().may_write());
  write_files(writer(), "closed");
  write_files(writer(), "closed");
  CHECK(run_json()["prometheus"]["failed"] == 2);
  writer().write_last();
  CHECK(said("INJECT_PROM: ") >= 1);
  CHECK(said(temporary.path() + "/none") == 1);
  CHECK(run_json()["prometheus"]["failed"] == 3);
  CHECK(run_json()["prometheus"]["written"] == 0);
  CHECK_FALSE(exists(recovery::kFileName));  // does not keep the tables from being complete
}

TEST_CASE("ranks that would write one Prometheus file are told", "[output][prometheus]") {
  struct Case {
    const char* rank;
    const char* name;
    std::size_t warnings;
  };
  for (const Case& test : {Case{"1", "/all.prom", 1}, Case{"0", "/all.prom", 0}, Case{"2", "/all.prom", 0},
                           Case{"1", "/%r.prom", 0}}) {
    INFO(test.rank << " " << test.name);
    const Variable rank("RANK", test.rank);
    Writing run;
    run.options.prometheus_file = run.temporary.path() + test.name;
    run.writer();
    CHECK(said("INJECT_PROM=" + run.options.prometheus_file + ": all ranks on a host write this file") ==
          test.warnings);
  }
}

TEST_CASE_METHOD(Writing, "the summary goes where it is asked for", "[output]") {
  options.summary = SummaryTarget::kFile;
  options.summary_file = temporary.path() + "/summary-%p";
  REQUIRE(writer().ensure_folder());
  window();
  const auto shown = on_stderr(temporary.path() + "/stderr", [this] { CHECK_FALSE(writer().write_last()); });
  CHECK(shown.empty());
  const std::string text = temporary.read("summary-" + std::to_string(getpid()));
  CHECK(text.find("alpha()") != std::string::npos);
  CHECK(text.find(folder()) != std::string::npos);
}

TEST_CASE("the summary on the terminal is rank 0's", "[output]") {
  for (const char* number : {"", "0", "1"}) {
    CAPTURE(number);
    const Variable rank("RANK", number);
    Writing run;
    run.options.summary = SummaryTarget::kStderr;
    REQUIRE(run.writer().ensure_folder());
    run.window();
    const bool wanted = number != std::string("1");
    const std::string shown =
        on_stderr(run.temporary.path() + "/stderr", [&] { CHECK(run.writer().write_last() == wanted); });
    CHECK((shown.find(run.folder()) != std::string::npos) == wanted);
    CHECK(shown.empty() != wanted);
  }
}

TEST_CASE_METHOD(Writing, "a summary that can't be written is an error", "[output]") {
  options.summary = SummaryTarget::kFile;
  options.recover = false;
  const bool opens = GENERATE(true, false);
  CAPTURE(opens);
  options.summary_file = temporary.path() + (opens ? "/summary" : "/none/summary");
  REQUIRE(writer().ensure_folder());
  window();
  if (opens) {
    const QuietSignals quiet;
    const Limit limit(RLIMIT_FSIZE, 8);
    CHECK_FALSE(writer().write_last());
  } else {
    CHECK_FALSE(writer().write_last());
    CHECK(exists(table()));
  }
  CHECK(said(options.summary_file) == 1);
  CHECK(said("INJECT_SUMMARY: the summary can't be written: ") != 0);
}
