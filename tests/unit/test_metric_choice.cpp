// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/metric_choice.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "libinject/output/metric_timeline.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr const char* kElapsed = ".avg.pct_of_peak_sustained_elapsed";

std::string base_of(const std::string& name) {
  return name.substr(0, name.find('.', name.find("__")));
}
std::string group_of(const std::string& name) {
  const std::size_t unit = name.find("__");
  const std::size_t dot = name.rfind('.', unit);
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// A chip: the metrics of one group share a pass; those without a group take one each.
struct Chip {
  std::vector<std::string> names;
  mutable int asked = 0;

  ChipMetrics metrics() const {
    return {names, [this](const std::vector<std::string>& wanted) -> std::size_t {
              ++asked;
              std::set<std::string> passes;
              for (const std::string& name : wanted) {
                if (std::find(names.begin(), names.end(), base_of(name)) == names.end()) return 0;
                const std::string group = group_of(name);
                passes.insert(group.empty() ? name : group.substr(group.find('.') + 1));
              }
              return passes.size();
            }};
  }
};

std::vector<std::string> titles(const MetricChoice& choice) {
  std::vector<std::string> list;
  for (const MetricInfo& metric : choice.metrics) list.push_back(metric.title);
  return list;
}

}  // namespace

TEST_CASE("Metrics of one group are sampled together", "[metrics]") {
  const Chip chip{{"sm__cycles_active", "A.TriageCompute.sm__cycles_active",
                   "A.TriageCompute.sm__pipe_tensor_cycles_active_realtime",
                   "A.TriageCompute.sm__warps_active_realtime", "B.TriageCompute.pcie__read_bytes",
                   "nvlrx__bytes"}};
  const MetricChoice choice = choose_metrics(chip.metrics());
  CHECK(choice.error.empty());
  CHECK(titles(choice) == std::vector<std::string>{"SM Active (%)", "Tensor Pipe (%)", "Warps Active (%)",
                                                   "Occupancy (%)", "PCIe Read (MB/s)"});
  CHECK(choice.metrics[0].name == std::string("A.TriageCompute.sm__cycles_active") + kElapsed);
  CHECK(choice.metrics[4].name == "B.TriageCompute.pcie__read_bytes.sum.per_second");
  CHECK(choice.measured.size() == 4);
  CHECK(chip.metrics().passes(choice.measured) == 1);
  // NVLink would take a pass of its own; the chip lacks the rest.
  const std::vector<std::string>& out = choice.left_out;
  CHECK(std::find(out.begin(), out.end(), "NVLink Receive (MB/s)") != out.end());
  CHECK(out.size() == 9);
}

TEST_CASE("Where all fits, it is asked for once", "[metrics]") {
  const Chip chip{{"A.TriageCompute.sm__cycles_active", "A.TriageCompute.sm__inst_executed_realtime"}};
  CHECK(choose_metrics(chip.metrics()).measured.size() == 2);
  CHECK(chip.asked == 1);
}

TEST_CASE("What is more important comes first, under whichever name fits", "[metrics]") {
  // The preferred name of the tensor pipe would need a second pass.
  const Chip chip{{"A.TriageSCG.sm__cycles_active", "A.TriageAC.sm__cycles_active",
                   "sm__pipe_tensor_cycles_active_realtime", "A.TriageSCG.sm__pipe_tensor_cycles_active",
                   "A.TriageAC.sm__pipe_tensor_cycles_active"}};
  const MetricChoice choice = choose_metrics(chip.metrics());
  CHECK(choice.measured ==
        std::vector<std::string>{std::string("A.TriageSCG.sm__cycles_active") + kElapsed,
                                 std::string("A.TriageSCG.sm__pipe_tensor_cycles_active") + kElapsed});
}

TEST_CASE("Warps are the SM's, not the TPC's", "[metrics]") {
  const std::string active = "T.TriageCompute.sm__cycles_active";
  const std::string tpc = "T.TriageCompute.tpc__warps_active_realtime";
  // The counter without a group, if it fits into the same pass as the others.
  const auto warps = [](const MetricChoice& choice) {
    const auto place = std::find_if(choice.metrics.begin(), choice.metrics.end(), [](const MetricInfo& info) {
      return info.quantity == Quantity::kWarpsActive;
    });
    return place == choice.metrics.end() ? std::string() : place->name;
  };
  const std::string sm = "T.TriageCompute.sm__warps_active";
  CHECK(warps(choose_metrics(Chip{{active, tpc, sm + "_realtime", sm}}.metrics())) == sm + kElapsed);
  // If it would take a pass of its own, the counter that does not.
  CHECK(warps(choose_metrics(Chip{{active, tpc, sm + "_realtime", "sm__warps_active"}}.metrics())) ==
        sm + "_realtime" + kElapsed);
  const MetricChoice without = choose_metrics(Chip{{active, tpc}}.metrics());
  CHECK(warps(without).empty());
  for (const char* title : {"Warps Active (%)", "Occupancy (%)"})
    CHECK(std::count(without.left_out.begin(), without.left_out.end(), title) == 1);
}

TEST_CASE("IPC is by the cycles in which the SM was active", "[metrics]") {
  const Chip chip{{"T.TriageCompute.sm__cycles_active", "T.TriageCompute.sm__inst_executed_realtime"}};
  const MetricChoice choice = choose_metrics(chip.metrics());
  REQUIRE(titles(choice) == std::vector<std::string>{"SM Active (%)", "IPC"});
  REQUIRE(choice.measured[1] == "T.TriageCompute.sm__inst_executed_realtime.avg.per_cycle_elapsed");
  CHECK(choice.values(std::array<double, 2>{25, 0.5})[1] == 2);
  CHECK(std::isnan(choice.values(std::array<double, 2>{0, 0})[1]));
  const Chip alone{{"T.TriageCompute.sm__inst_executed_realtime", "T.TriageCompute.pcie__read_bytes"}};
  const MetricChoice without = choose_metrics(alone.metrics());
  CHECK(titles(without) == std::vector<std::string>{"PCIe Read (MB/s)"});
  CHECK(std::count(without.left_out.begin(), without.left_out.end(), "IPC") == 1);
}

TEST_CASE("A chip with nothing to sample", "[metrics]") {
  const Chip chip{{"fe__cycles"}};
  const MetricChoice choice = choose_metrics(chip.metrics());
  CHECK(choice.metrics.empty());
  CHECK_FALSE(choice.error.empty());
}

TEST_CASE("Values of a sample", "[metrics]") {
  const Chip chip{{"T.TriageCompute.sm__cycles_active", "T.TriageCompute.sm__warps_active_realtime",
                   "T.TriageCompute.pcie__read_bytes"}};
  const MetricChoice choice = choose_metrics(chip.metrics());
  REQUIRE(titles(choice) ==
          std::vector<std::string>{"SM Active (%)", "Warps Active (%)", "Occupancy (%)", "PCIe Read (MB/s)"});
  REQUIRE(base_of(choice.measured[1]) == "T.TriageCompute.sm__warps_active_realtime");
  // Active for half of the time, with half of the warps while active.
  const std::array<double, 3> measured{50, 25, 3e9};
  const auto values = choice.values(measured);
  CHECK(values[0] == 50);
  CHECK(values[1] == 25);
  CHECK(values[2] == 50);
  CHECK(values[3] == Approx(3000));
  CHECK(std::isnan(values[4]));
  CHECK(std::isnan(values[kMaxMetrics - 1]));
  // An idle device has no occupancy; values beyond 100 % are judged elsewhere.
  CHECK(std::isnan(choice.values(std::array<double, 3>{0, 0, 0})[2]));
  CHECK(choice.values(std::array<double, 3>{50, 65, 0})[2] == 130);
  CHECK(std::isnan(choice.values(std::array<double, 3>{std::nan(""), 5, 0})[0]));
  CHECK(std::isnan(choice.values({})[0]));
}

TEST_CASE("A sample whose counters contradict each other", "[metrics]") {
  const Chip chip{{"T.TriageCompute.sm__cycles_active", "T.TriageCompute.sm__warps_active_realtime",
                   "T.TriageCompute.sm__pipe_tensor_cycles_active_realtime",
                   "T.TriageCompute.pcie__read_bytes"}};
  MetricChoice choice = choose_metrics(chip.metrics());
  REQUIRE(titles(choice) == std::vector<std::string>{"SM Active (%)", "Tensor Pipe (%)", "Warps Active (%)",
                                                     "Occupancy (%)", "PCIe Read (MB/s)"});
  const auto contradictory = [&choice](double active, double warps, double tensor) {
    // In order of importance.
    return choice.contradictory(choice.values(std::array<double, 4>{active, tensor, warps, 3e9}));
  };
  REQUIRE(choice.measured[1].find("tensor") != std::string::npos);
  CHECK_FALSE(contradictory(50, 25, 10));
  CHECK_FALSE(contradictory(50, 50.4, 50));
  CHECK_FALSE(contradictory(0, 0, 0));
  CHECK_FALSE(contradictory(std::nan(""), 30, 10));
  CHECK(contradictory(3, 37, 1));
  CHECK(contradictory(0, 0.1, 0));
  CHECK(contradictory(50, 25, 51));
  choice.metrics[0].quantity = Quantity::kUser;
  CHECK_FALSE(contradictory(3, 37, 1));
}

TEST_CASE("The user's own metrics", "[metrics]") {
  const Chip chip{
      {"T.TriageCompute.sm__cycles_active", "T.TriageCompute.lts__throughput", "sm__inst_executed"}};
  const std::string first = "T.TriageCompute.sm__cycles_active.avg";
  const std::string second = "T.TriageCompute.lts__throughput.max";
  const MetricChoice choice = check_metrics(chip.metrics(), {second, first});
  CHECK(choice.error.empty());
  CHECK(choice.measured == std::vector<std::string>{second, first});
  CHECK(titles(choice) == choice.measured);
  CHECK(choice.metrics[0].quantity == Quantity::kUser);
  CHECK(choice.values(std::array<double, 2>{3, 4})[1] == 4);

  const std::string unknown = check_metrics(chip.metrics(), {first, "sm__nonsense.avg"}).error;
  CHECK(unknown.find("'sm__nonsense.avg'") != std::string::npos);
  const std::string passes = check_metrics(chip.metrics(), {first, "sm__inst_executed.sum", second}).error;
  CHECK(passes.find("'sm__inst_executed.sum'") != std::string::npos);
  CHECK(passes.find("2 passes") != std::string::npos);
}

TEST_CASE("A second chip has the first one's columns", "[metrics]") {
  const Chip one{{"T.TriageCompute.sm__cycles_active", "T.TriageCompute.sm__warps_active_realtime"}};
  const Chip two{{"T.TriageA.sm__warps_active_realtime", "T.TriageA.pcie__read_bytes"}};
  const MetricChoice first = choose_metrics(one.metrics());
  const MetricChoice second = with_columns_of(first, choose_metrics(two.metrics()));
  CHECK(titles(second) == titles(first));
  CHECK(second.measured.size() == 2);
  const auto values = second.values(std::array<double, 2>{20, 7e6});
  CHECK(std::isnan(values[0]));
  CHECK(values[1] == 20);
  CHECK(std::isnan(values[2]));  // no share without the whole
}

TEST_CASE("What matters the least is left out first", "[metrics]") {
  const Chip chip{{"T.TriageCompute.sm__cycles_active", "T.TriageCompute.sm__warps_active_realtime",
                   "T.TriageCompute.lts__throughput", "T.TriageCompute.pcie__read_bytes",
                   "T.TriageCompute.nvltx__bytes"}};
  MetricChoice choice = choose_metrics(chip.metrics());
  const std::vector<std::string> columns = titles(choice);
  REQUIRE(choice.measured.size() == 5);
  const std::size_t left_out = choice.left_out.size();
  CHECK(leave_out_least_important(choice) == std::vector<std::string>{"NVLink Transmit (MB/s)"});
  CHECK(leave_out_least_important(choice) == std::vector<std::string>{"PCIe Read (MB/s)"});
  CHECK(choice.measured.size() == 3);
  CHECK(leave_out_least_important(choice) == std::vector<std::string>{"L2 (%)"});
  CHECK(choice.left_out.size() == left_out + 3);
  // The columns stay; their values come from the counters that are measured now.
  CHECK(titles(choice) == columns);
  REQUIRE(choice.measured.size() == 2);
  const bool active_first = choice.measured[0].find("sm__cycles_active") != std::string::npos;
  const auto values =
      choice.values(active_first ? std::array<double, 2>{50, 20} : std::array<double, 2>{20, 50});
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const std::string& title = columns[i];
    if (title == "SM Active (%)")
      CHECK(values[i] == 50);
    else if (title == "Warps Active (%)")
      CHECK(values[i] == 20);
    else if (title == "Occupancy (%)")
      CHECK(values[i] == 40);
    else
      CHECK(std::isnan(values[i]));
  }
  // The remaining metrics are the purpose of sampling.
  CHECK(leave_out_least_important(choice).empty());
  MetricChoice own = check_metrics(chip.metrics(), {"T.TriageCompute.nvltx__bytes.sum"});
  CHECK(leave_out_least_important(own).empty());
}

TEST_CASE("Most of the losses", "[metrics]") {
  CHECK(main_loss({3, 0, 0, 4, 0, 1}) == MetricLoss::kNotEvaluated);
  CHECK(loss_text(main_loss({9, 0, 0, 4, 0, 0, 1})).find("is not in them") != std::string_view::npos);
  CHECK(loss_text(main_loss({0, 2, 0, 0, 0, 1})) == "raise INJECT_METRICS_INTERVAL");
  CHECK(loss_text(main_loss({0, 2, 0, 0, 0, 0, 3})).substr(0, 13) == "measure fewer");
}

TEST_CASE("metric_samples.csv", "[metrics]") {
  const TemporaryFolder folder;
  const std::vector<MetricInfo> columns{{"a", "SM Active (%)", Quantity::kSmActive},
                                        {"b", "A, B", Quantity::kUser}};
  MetricTimeline timeline(1000, 2);
  MetricSample sample;
  timeline.add(sample, columns);
  CHECK(timeline.rows_left_out() == 1);  // there is no file
  REQUIRE(timeline.open(folder.path()));
  sample.start = 900;
  sample.end = 1900;
  sample.device = 3;
  sample.values[0] = 12.5F;
  sample.values[1] = std::nanf("");
  timeline.add(sample, columns);
  sample.start = sample.end;
  timeline.add(sample, columns);
  timeline.add(sample, columns);
  CHECK(timeline.rows_left_out() == 2);
  REQUIRE(timeline.flush());
  CHECK(folder.read("metric_samples.csv") ==
        "Device,Start (ns),End (ns),SM Active (%),\"A, B\"\n"
        "3,-100,900,12.500,\n"
        "3,900,900,12.500,\n");
  MetricTimeline again(0);
  CHECK_FALSE(again.open(folder.path()));
  CHECK_FALSE(again.error().empty());
}
