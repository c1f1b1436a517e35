// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/config/options.h"

#include <algorithm>
#include <sstream>

#include "libinject/base/text.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

ParseResult parse(std::vector<std::string_view> environment) {
  return parse_options(std::span<const std::string_view>(environment));
}

Options accepted(std::vector<std::string_view> environment) {
  const ParseResult result = parse(std::move(environment));
  INFO(result.error);
  REQUIRE(result.error.empty());
  CHECK(result.warnings.empty());
  return result.options;
}

std::string refused(std::string_view entry) {
  const ParseResult result = parse({entry});
  INFO(entry);
  REQUIRE(!result.error.empty());
  CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 0);
  CHECK(result.error.find("accepted: ") != std::string::npos);
  return result.error;
}

}  // namespace

TEST_CASE("Defaults without any variable", "[config]") {
  const Options options = accepted({"PATH=/bin", "HOME=/root"});
  CHECK(options.window == WindowSpec{});
  CHECK(options.out == "inject-%h-%p");
  CHECK(options.api == ApiStatistics::kCuda);
  CHECK(options.hooks == kHookAll);
  CHECK(options.trace == 0);
  CHECK(options.summary == SummaryTarget::kStderr);
  CHECK(options.ring_bytes == 16u << 20);
  CHECK(options.buffer_bytes == 32u << 20);
  CHECK(options.log_level == LogLevel::kInfo);
  CHECK(options.log_file.empty());
  CHECK_FALSE(options.help);
}

TEST_CASE("The table's defaults are the struct's", "[config]") {
  std::vector<std::string> entries;
  for (const OptionInfo& info : option_table()) {
    entries.push_back(std::string(info.variable) + "=" + std::string(info.default_value));
  }
  const std::vector<std::string_view> views(entries.begin(), entries.end());
  const Options given = accepted(views);
  const Options unset = accepted({});
  CHECK(given.window == unset.window);
  CHECK(given.out == unset.out);
  CHECK(given.hooks == unset.hooks);
  CHECK(given.ring_bytes == unset.ring_bytes);
  CHECK(given.buffer_bytes == unset.buffer_bytes);
  CHECK(given.in_force == unset.in_force);
  CHECK(unset.in_force.size() == option_table().size());
}

TEST_CASE("Values reach their fields", "[config]") {
  const Options options =
      accepted({"INJECT_WINDOW=time:20s+5s/1mx3", "INJECT_OUT=/data/%q{JOB}/%r", "JOB=17", "INJECT_API=full",
                "INJECT_HOOKS=cublas,nccl", "INJECT_TRACE=csv", "INJECT_BATCH=256",
                "INJECT_SUMMARY=sum-%p.txt", "INJECT_RING=64K", "INJECT_BUFFERS=1g", "INJECT_LOG=debug",
                "INJECT_LOG_FILE=log.txt", "INJECT_HELP=1"});
  CHECK(to_string(options.window) == "time:20s+5s/1mx3");
  CHECK(options.out == "/data/%q{JOB}/%r");
  CHECK(options.api == ApiStatistics::kFull);
  CHECK(options.hooks == (kHookCublas | kHookNccl));
  CHECK(options.batch == 256);
  CHECK(options.trace == kTraceCsv);
  CHECK(options.summary == SummaryTarget::kFile);
  CHECK(options.summary_file == "sum-%p.txt");
  CHECK(options.ring_bytes == 65536);
  CHECK(options.buffer_bytes == std::size_t{1} << 30);
  CHECK(options.log_level == LogLevel::kDebug);
  CHECK(options.log_file == "log.txt");
  CHECK(options.help);
  const auto in_force = std::find_if(options.in_force.begin(), options.in_force.end(),
                                     [](const auto& entry) { return entry.first == "INJECT_RING"; });
  REQUIRE(in_force != options.in_force.end());
  CHECK(in_force->second == "64K");
}

TEST_CASE("Smaller choices", "[config]") {
  CHECK(accepted({"INJECT_API=off"}).api == ApiStatistics::kOff);
  CHECK(accepted({"INJECT_SUMMARY=off"}).summary == SummaryTarget::kOff);
  CHECK(accepted({"INJECT_PROM=/x/%h-%r.prom"}).prometheus_file == "/x/%h-%r.prom");
  CHECK(accepted({"JOB=7.prom", "INJECT_PROM=%q{JOB}"}).prometheus_file == "%q{JOB}");
  CHECK(accepted({"INJECT_PROM="}).prometheus_file.empty());
  CHECK(accepted({"INJECT_HOOKS=cudart"}).hooks == kHookCudart);
  CHECK(accepted({"INJECT_HOOKS=cudart,cublas,cublaslt,cudnn,nccl,torch,python"}).hooks == kHookAll);
  CHECK(accepted({"INJECT_BATCH=1"}).batch == 1);
  CHECK(accepted({"INJECT_BATCH=1000000000"}).batch == 1'000'000'000);
  CHECK(accepted({"INJECT_BATCH="}).batch == 0);
  CHECK(accepted({"INJECT_BATCH="}).unit_source() == UnitSource::kCalled);
  CHECK(accepted({"INJECT_BATCH=1"}).unit_source() == UnitSource::kStated);
  CHECK(accepted({"INJECT_BATCH=auto"}).unit_source() == UnitSource::kLoader);
  const Options by_range = accepted({"INJECT_BATCH=nvtx:tok*@\"my data\""});
  CHECK(by_range.unit_source() == UnitSource::kPayload);
  CHECK(by_range.batch == 0);
  CHECK(by_range.unit_ranges.name == "tok*");
  CHECK(by_range.unit_ranges.domain == "my data");
  CHECK(accepted({"INJECT_RING=1048576"}).ring_bytes == 1048576);
  CHECK(accepted({"INJECT_RING=4G"}).ring_bytes == std::size_t{4} << 30);
  CHECK(accepted({"INJECT_LOG=warning"}).log_level == LogLevel::kWarn);
  CHECK(accepted({"INJECT_AFTER=interrupt"}).after == AfterAction::kInterrupt);
  CHECK(accepted({"INJECT_AFTER=exit"}).after == AfterAction::kExit);
  CHECK(accepted({"INJECT_TIMEOUT=1.5m"}).timeout == 90'000'000'000u);
  CHECK(accepted({"INJECT_CONTROL=1"}).control);
  CHECK_FALSE(accepted({"INJECT_RECOVER=0"}).recover);
  CHECK(accepted({"INJECT_AFTER=continue", "INJECT_TIMEOUT=off", "INJECT_CONTROL=0", "INJECT_METRICS=off"})
            .help == false);
}

TEST_CASE("Empty values are unset ones, the first of two counts", "[config]") {
  CHECK(accepted({"INJECT_WINDOW=", "INJECT_OUT=", "INJECT_RING="}).ring_bytes == 16u << 20);
  CHECK(accepted({"INJECT_RING=1M", "INJECT_RING=2M"}).ring_bytes == 1u << 20);
}

TEST_CASE("Malformed values", "[config]") {
  for (const char* entry : {"INJECT_WINDOW=never",
                            "INJECT_AFTER=stop",
                            "INJECT_TIMEOUT=soon",
                            "INJECT_TIMEOUT=10",
                            "INJECT_TIMEOUT=0",
                            "INJECT_TIMEOUT=0s",
                            "INJECT_OUT=%x",
                            "INJECT_OUT=a%",
                            "INJECT_OUT=.",
                            "INJECT_OUT=/data/../",
                            "INJECT_OUT=%q{JOB",
                            "INJECT_OUT=%q{UNSET_VARIABLE}",
                            "INJECT_API=some",
                            "INJECT_API=CUDA",
                            "INJECT_HOOKS=none",
                            "INJECT_HOOKS=cublas,",
                            "INJECT_HOOKS=cublas nccl",
                            "INJECT_BATCH=many",
                            "INJECT_BATCH=32.5",
                            "INJECT_BATCH=-1",
                            "INJECT_BATCH= 32",
                            "INJECT_BATCH=32k",
                            "INJECT_BATCH=Auto",
                            "INJECT_BATCH=nvtx:",
                            "INJECT_BATCH=nvtx:batch@",
                            "INJECT_BATCH=nvtx:batch/10",
                            "INJECT_BATCH=nvtx:batchx3",
                            "INJECT_TRACE=json",
                            "INJECT_TRACE=csv,",
                            "INJECT_TRACE=off,csv",
                            "INJECT_TRACE=csv chrome",
                            "INJECT_SUMMARY=%z",
                            "INJECT_PROM=metrics.txt",
                            "INJECT_PROM=prom",
                            "INJECT_PROM=%z.prom",
                            "INJECT_RING=16MB",
                            "INJECT_RING=-1",
                            "INJECT_RING=M",
                            "INJECT_RING=0x10",
                            "INJECT_RING=1.5M",
                            "INJECT_CONTROL=yes",
                            "INJECT_RECOVER=yes",
                            "INJECT_LOG=loud",
                            "INJECT_LOG_FILE=%k",
                            "INJECT_HELP=yes",
                            "INJECT_METRICS=sm",
                            "INJECT_METRICS=auto,sm__cycles_active.avg",
                            "INJECT_METRICS=sm__cycles_active",
                            "INJECT_METRICS=sm__cycles_active.avg,",
                            "INJECT_METRICS=sm__cycles_active.avg,sm__cycles_active.avg",
                            "INJECT_METRICS=sm__cycles active.avg",
                            "INJECT_METRICS=__x.avg",
                            "INJECT_METRICS_INTERVAL=100",
                            "INJECT_METRICS_INTERVAL=us",
                            "INJECT_METRICS_INTERVAL=-5us",
                            "INJECT_METRICS_TIMELINE=2"}) {
    const std::string error = refused(entry);
    const std::string_view name = std::string_view(entry).substr(0, std::string_view(entry).find('='));
    const std::string_view value = std::string_view(entry).substr(name.size() + 1);
    INFO(error);
    CHECK(error.rfind(std::string(name) + "='" + std::string(value) + "': ", 0) == 0);
    CHECK(error.find("not built") == std::string::npos);
  }
}

TEST_CASE("Sizes out of bounds", "[config]") {
  CHECK(refused("INJECT_RING=63K").find("too small") != std::string::npos);
  CHECK(refused("INJECT_RING=0").find("too small") != std::string::npos);
  CHECK(refused("INJECT_RING=5G").find("too large") != std::string::npos);
  CHECK(refused("INJECT_RING=99999999999999999999").find("too large") != std::string::npos);
  CHECK(refused("INJECT_RING=18014398509481984K").find("too large") != std::string::npos);
  CHECK(refused("INJECT_BUFFERS=1K").find("too small") != std::string::npos);
  CHECK(refused("INJECT_BATCH=0").find("too small") != std::string::npos);
  CHECK(refused("INJECT_BATCH=1000000001").find("too large") != std::string::npos);
  CHECK(refused("INJECT_BATCH=99999999999999999999").find("too large") != std::string::npos);
}

TEST_CASE("Hardware metrics", "[config]") {
  const Options none = accepted({});
  CHECK_FALSE(none.metrics);
  CHECK(none.metrics_interval == 500'000);
  const Options automatic = accepted({"INJECT_METRICS=auto", "INJECT_METRICS_TIMELINE=1"});
  CHECK((automatic.metrics && automatic.metrics_timeline));
  CHECK(automatic.metric_names.empty());
  const Options own =
      accepted({"INJECT_METRICS=sm__cycles_active.avg,TPC.TriageCompute.sm__inst_executed.sum.per_second"});
  CHECK(own.metric_names == std::vector<std::string>{"sm__cycles_active.avg",
                                                     "TPC.TriageCompute.sm__inst_executed.sum.per_second"});
  CHECK(accepted({"INJECT_METRICS=auto", "INJECT_METRICS_INTERVAL=10us"}).metrics_interval == 10'000);
  CHECK(accepted({"INJECT_METRICS=auto", "INJECT_METRICS_INTERVAL=0.25ms"}).metrics_interval == 250'000);
  CHECK(accepted({"INJECT_METRICS=auto", "INJECT_METRICS_INTERVAL=1000us"}).metrics_interval == 1'000'000);
  CHECK(accepted({"INJECT_METRICS=auto", "INJECT_METRICS_INTERVAL=1ms"}).metrics_interval == 1'000'000);
  CHECK(refused("INJECT_METRICS_INTERVAL=9us").find("too short") != std::string::npos);
  CHECK(refused("INJECT_METRICS_INTERVAL=0").find("too short") != std::string::npos);
  CHECK(refused("INJECT_METRICS_INTERVAL=2ms").find("too long") != std::string::npos);
  CHECK(refused("INJECT_METRICS_INTERVAL=99999999999999999999us").find("too long") != std::string::npos);
  std::string many = "INJECT_METRICS=a__b.avg";
  for (int i = 0; i < 24; ++i) many += ",a__b" + std::to_string(i) + ".avg";
  CHECK(refused(many).find("more than 24") != std::string::npos);
}

TEST_CASE("What sets up metrics that are not taken is warned of", "[config]") {
  const auto warnings = [](std::vector<std::string_view> entries) {
    const ParseResult result = parse(std::move(entries));
    CHECK(result.error.empty());
    return result.warnings;
  };
  const std::string ignored = " has no effect without INJECT_METRICS=auto, or a list of metrics";
  CHECK(warnings({"INJECT_METRICS_INTERVAL=50us"}) ==
        std::vector<std::string>{"INJECT_METRICS_INTERVAL" + ignored});
  CHECK(warnings({"INJECT_METRICS=off", "INJECT_METRICS_TIMELINE=1"}) ==
        std::vector<std::string>{"INJECT_METRICS_TIMELINE" + ignored});
  CHECK(warnings({"INJECT_METRICS=", "INJECT_METRICS_INTERVAL=1ms", "INJECT_METRICS_TIMELINE=1"}) ==
        std::vector<std::string>{"INJECT_METRICS_INTERVAL" + ignored, "INJECT_METRICS_TIMELINE" + ignored});
  CHECK(
      warnings({"INJECT_METRICS=auto", "INJECT_METRICS_INTERVAL=1ms", "INJECT_METRICS_TIMELINE=1"}).empty());
  CHECK(warnings({"INJECT_METRICS_INTERVAL=500us", "INJECT_METRICS_TIMELINE=0"}).empty());
}

TEST_CASE("INJECT_AFTER without a last window is warned of", "[config]") {
  const auto warnings = [](std::string_view window, std::string_view timeout = "INJECT_TIMEOUT=off") {
    const ParseResult result = parse({window, "INJECT_AFTER=exit", timeout});
    CHECK(result.error.empty());
    return result.warnings;
  };
  CHECK(warnings("INJECT_WINDOW=time:1s+1s/5s") ==
        std::vector<std::string>{
            "INJECT_AFTER has no effect: with INJECT_WINDOW=time:1s+1s/5s there is no last "
            "window; use time:1s+1s/5sx1, or set INJECT_TIMEOUT"});
  for (const char* window : {"api", "nvtx:step", "nvtx:step/100", "signal:USR1", "iter:30+10/100"}) {
    CAPTURE(window);
    CHECK(warnings(std::string("INJECT_WINDOW=") + window).size() == 1);
    CHECK(warnings(std::string("INJECT_WINDOW=") + window, "INJECT_TIMEOUT=10m").empty());
  }
  for (const char* window : {"auto", "apix1", "nvtx:step/100x3", "signal:USR1x1", "iter:30+10",
                             "iter:30+10/100x5", "time:1s+1s", "launch:5+5", "always", "off"}) {
    CAPTURE(window);
    CHECK(warnings(std::string("INJECT_WINDOW=") + window).empty());
  }
  CHECK(parse({"INJECT_WINDOW=api"}).warnings.empty());
}

TEST_CASE("Formats of raw records are a list", "[config]") {
  CHECK(accepted({"INJECT_TRACE=off"}).trace == 0);
  CHECK(accepted({"INJECT_TRACE=chrome"}).trace == kTraceChrome);
  CHECK(accepted({"INJECT_TRACE=csv,chrome"}).trace == (kTraceCsv | kTraceChrome));
  CHECK(accepted({"INJECT_TRACE=chrome,csv"}).trace == (kTraceCsv | kTraceChrome));
  CHECK(refused("INJECT_TRACE=csv,json").find("'json' is not a known format") != std::string::npos);
}

TEST_CASE("Only the first error is told, with the value made printable", "[config]") {
  const ParseResult result = parse({"INJECT_API=\x1b[2Jx\n\xff", "INJECT_HOOKS=none"});
  CHECK(result.error.rfind("INJECT_API='\\x1b[2Jx\\x0a\\xff': ", 0) == 0);
  const std::string huge = "INJECT_API=" + std::string(100'000, 'a');
  CHECK(parse({huge}).error.size() < 400);
}

TEST_CASE("Unknown variables are warned of with the nearest name", "[config]") {
  const ParseResult result =
      parse({"INJECT_WINDOWS=api", "INJECT_LGO=info", "INJECT_SOMETHING_ELSE=1", "INJECTION=1", "INJECT_X"});
  CHECK(result.error.empty());
  REQUIRE(result.warnings.size() == 3);
  const auto meant = [](std::string_view name) {
    const std::string entry = std::string(name) + "=1";
    const std::string warning = parse({entry}).warnings.at(0);
    const std::size_t at = warning.find("did you mean ");
    return at == std::string::npos ? std::string() : warning.substr(at + 13, warning.find('?') - at - 13);
  };
  CHECK(meant("INJECT_OUTPUT") == "INJECT_OUT");
  CHECK(meant("INJECT_out") == "INJECT_OUT");
  CHECK(meant("INJECT_RIGN") == "INJECT_RING");
  CHECK(meant("INJECT_METRIC_INTERVALS") == "INJECT_METRICS_INTERVAL");
  CHECK(meant("INJECT_METRICS_FILE") == "INJECT_METRICS");
  CHECK(meant("INJECT_" + std::string(100'000, 'x')).empty());
  for (const char* far : {"INJECT_FOO", "INJECT_RUN", "INJECT_DEBUG", "INJECT_A", "INJECT_", "INJECT_FILTER"})
    CHECK(meant(far).empty());
  CHECK(result.warnings[0].find("did you mean INJECT_WINDOW?") != std::string::npos);
  CHECK(result.warnings[1].find("did you mean INJECT_LOG?") != std::string::npos);
  CHECK(result.warnings[2].find("did you mean") == std::string::npos);
  CHECK(result.warnings[2].find("INJECT_HELP=1") != std::string::npos);
}

TEST_CASE("Edit distance", "[config]") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ab", "ba") == 1);
}

TEST_CASE("What a path names may be set later where the options are read ahead of the program", "[config]") {
  const std::vector<std::string_view> entries{"INJECT_OUT=out-%q{LOCAL_RANK}", "INJECT_SUMMARY=%q{A}.txt"};
  CHECK(parse(entries).error.find("'LOCAL_RANK'") != std::string::npos);
  CHECK(parse_options(entries, UnsetVariable::kMayComeLater).error.empty());
  const std::vector<std::string_view> wrong{"INJECT_OUT=out-%z"};
  CHECK_FALSE(parse_options(wrong, UnsetVariable::kMayComeLater).error.empty());
}

TEST_CASE("A summary on stdout is refused", "[config]") {
  CHECK(refused("INJECT_SUMMARY=stdout") ==
        "INJECT_SUMMARY='stdout': stdout is the program's own; accepted: stderr, off, or a file");
  CHECK(accepted({"INJECT_SUMMARY=./stdout"}).summary_file == "./stdout");
  CHECK(refused("INJECT_SUMMARY=Stdout") ==
        "INJECT_SUMMARY='Stdout': stdout is the program's own; accepted: stderr, off, or a file");
  CHECK(refused("INJECT_SUMMARY=OFF") ==
        "INJECT_SUMMARY='OFF': off is written in lower case; accepted: stderr, off, or a file");
  CHECK(refused("INJECT_SUMMARY=Stderr") ==
        "INJECT_SUMMARY='Stderr': stderr is written in lower case; accepted: stderr, off, or a file");
  CHECK(accepted({"INJECT_SUMMARY=./OFF"}).summary_file == "./OFF");
}

TEST_CASE("The environment as a zero-terminated array", "[config]") {
  const char* const environment[] = {"A=1", "INJECT_RING=1M", "", "=", "INJECT_RING", nullptr};
  const ParseResult result = parse_options(environment);
  CHECK(result.error.empty());
  CHECK(result.options.ring_bytes == 1u << 20);
  CHECK(parse_options(static_cast<const char* const*>(nullptr)).error.empty());
}

TEST_CASE("The help names every option and fits its columns", "[config]") {
  const std::string help = options_help();
  for (const OptionInfo& info : option_table()) CHECK(help.find(info.variable) != std::string::npos);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 110);
  }
}
