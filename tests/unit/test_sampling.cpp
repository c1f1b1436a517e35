// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A separate program, because find_pm_api(), and with it CUPTI, is replaced by functions controlled by the
// tests.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/capture/metrics/pm_refusal.h"
#include "libinject/capture/metrics/pm_sampler.h"
#include "libinject/capture/metrics/sampled_devices.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr Nanoseconds kInterval = 10'000;
constexpr Nanoseconds kLong = 10 * kSecond;

/// CUPTI's PM sampling of one chip with three metrics: records its calls in order, and returns the results
/// set by the test.
struct FakeCupti {
  std::vector<std::string> calls;
  std::map<std::string, std::deque<CUptiResult>> answers;  // a function's next results; then success
  std::map<std::string, std::function<void()>> meanwhile;  // run during a call of the function
  struct Sample {
    Nanoseconds start;
    Nanoseconds end;
  };
  std::vector<Sample> image;
  std::size_t incoming = 0;    // samples that the next decode finds
  std::size_t incomplete = 0;  // samples that it finds incomplete
  bool overflow = false;       // whether the next decode finds an overflow
  Nanoseconds next = 0;

  CUptiResult call(const char* name) {
    calls.emplace_back(name);
    if (const auto found = meanwhile.find(name); found != meanwhile.end()) found->second();
    std::deque<CUptiResult>& left = answers[name];
    if (left.empty()) return CUPTI_SUCCESS;
    const CUptiResult result = left.front();
    left.pop_front();
    return result;
  }
  /// Calls since the last time, except queries.
  std::vector<std::string> done() {
    std::vector<std::string> names = std::exchange(calls, {});
    std::erase_if(names, [](const std::string& name) {
      return name.rfind("Get", 0) == 0 || name.rfind("Host", 0) == 0 || name == "Decode";
    });
    return names;
  }
  void decode() {
    for (; incoming != 0; --incoming, next += kInterval) image.push_back({next, next + kInterval});
  }
};
FakeCupti* fake = nullptr;

constexpr const char* kMetrics[] = {"sm__cycles_active", "nvlrx__bytes", "nvltx__bytes"};
char object;

PmApi fake_api() {
  PmApi api;
  api.DeviceGetChipName = [](CUpti_Device_GetChipName_Params* params) {
    params->pChipName = "FAKE100";
    return fake->call("GetChipName");
  };
  api.ProfilerInitialize = [](CUpti_Profiler_Initialize_Params*) { return fake->call("Initialize"); };
  api.ProfilerDeInitialize = [](CUpti_Profiler_DeInitialize_Params*) { return fake->call("DeInitialize"); };
  api.ProfilerDeviceSupported = [](CUpti_Profiler_DeviceSupported_Params* params) {
    params->isSupported = params->architecture = params->sli = params->vGpu = params->confidentialCompute =
        params->cmp = params->wsl = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    return fake->call("GetDeviceSupported");
  };
  api.ProfilerHostInitialize = [](CUpti_Profiler_Host_Initialize_Params* params) {
    params->pHostObject = reinterpret_cast<CUpti_Profiler_Host_Object*>(&object);
    return fake->call("HostInitialize");
  };
  api.ProfilerHostDeinitialize = [](CUpti_Profiler_Host_Deinitialize_Params*) {
    return fake->call("HostDeinitialize");
  };
  api.ProfilerHostGetBaseMetrics = [](CUpti_Profiler_Host_GetBaseMetrics_Params* params) {
    params->ppMetricNames = const_cast<const char**>(kMetrics);
    params->numMetrics = params->metricType == CUPTI_METRIC_TYPE_COUNTER ? std::size(kMetrics) : 0;
    return fake->call("HostGetBaseMetrics");
  };
  api.ProfilerHostConfigAddMetrics = [](CUpti_Profiler_Host_ConfigAddMetrics_Params*) {
    return fake->call("HostConfigAddMetrics");
  };
  api.ProfilerHostGetConfigImageSize = [](CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
    params->configImageSize = 64;
    return fake->call("HostGetConfigImageSize");
  };
  api.ProfilerHostGetConfigImage = [](CUpti_Profiler_Host_GetConfigImage_Params*) {
    return fake->call("HostGetConfigImage");
  };
  api.ProfilerHostGetNumOfPasses = [](CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
    params->numOfPasses = 1;
    return fake->call("HostGetNumOfPasses");
  };
  api.ProfilerHostEvaluateToGpuValues = [](CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
    for (std::size_t i = 0; i < params->numMetrics; ++i) params->pMetricValues[i] = 50;
    return fake->call("HostEvaluate");
  };
  api.PmSamplingEnable = [](CUpti_PmSampling_Enable_Params* params) {
    params->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(&object);
    return fake->call("Enable");
  };
  api.PmSamplingDisable = [](CUpti_PmSampling_Disable_Params*) { return fake->call("Disable"); };
  api.PmSamplingSetConfig = [](CUpti_PmSampling_SetConfig_Params* params) {
    return fake->call(params->triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL
                          ? "SetConfig"
                          : "SetConfig (cycles)");
  };
  api.PmSamplingStart = [](CUpti_PmSampling_Start_Params*) {
    fake->next = now() - kSecond;
    return fake->call("Start");
  };
  api.PmSamplingStop = [](CUpti_PmSampling_Stop_Params*) { return fake->call("Stop"); };
  api.PmSamplingDecodeData = [](CUpti_PmSampling_DecodeData_Params* params) {
    fake->decode();
    params->overflow = std::exchange(fake->overflow, false) ? 1 : 0;
    params->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
    return fake->call("Decode");
  };
  api.PmSamplingGetCounterDataSize = [](CUpti_PmSampling_GetCounterDataSize_Params* params) {
    params->counterDataSize = params->maxSamples * std::size_t{1024};
    return fake->call("GetCounterDataSize");
  };
  api.PmSamplingCounterDataImageInitialize = [](CUpti_PmSampling_CounterDataImage_Initialize_Params*) {
    fake->image.clear();
    return fake->call("Empty");
  };
  api.PmSamplingGetCounterDataInfo = [](CUpti_PmSampling_GetCounterDataInfo_Params* params) {
    params->numTotalSamples = 100'000;
    params->numCompletedSamples = fake->image.size();
    params->numPopulatedSamples = fake->image.size() + fake->incomplete;
    return fake->call("GetCounterDataInfo");
  };
  api.PmSamplingCounterDataGetSampleInfo = [](CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
    if (params->sampleIndex < fake->image.size()) {
      params->startTimestamp = fake->image[params->sampleIndex].start;
      params->endTimestamp = fake->image[params->sampleIndex].end;
    }
    return fake->call("GetSampleInfo");
  };
  return api;
}

/// Records what a sampler reports.
struct Owner final : SamplingOwner {
  void add_device(std::uint32_t device, const MetricChoice& choice) override {
    devices.push_back(device);
    columns = choice.metrics.size();
  }
  void leave_out(const std::vector<std::string>& titles) override { left_out = titles; }
  void hand_over(SamplingReport& report) override {
    samples += std::exchange(report.totals.samples, {}).size();
    overflows += std::exchange(report.overflows, 0);
    for (std::uint64_t& count : report.totals.lost) lost += std::exchange(count, 0);
    decoding = report.decoding;
  }
  void refuse_for_good() noexcept override { refused = true; }
  void leave_on() noexcept override { left_on = true; }

  std::vector<std::uint32_t> devices;
  std::size_t columns = 0;
  std::vector<std::string> left_out;
  std::size_t samples = 0;
  std::uint64_t overflows = 0;
  std::uint64_t lost = 0;
  MetricDecoding decoding;
  bool refused = false;
  bool left_on = false;
};

struct Sampling {
  Sampling() {
    fake = &cupti;
    stop.begin();
    devices.begin();
  }
  /// Runs the next decode of a started device.
  void decode() {
    for (const std::uint64_t before = owner.decoding.calls; owner.decoding.calls == before;) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(devices.until_due(kMillisecond)));
      devices.decode_due();
    }
  }
  void close() {
    devices.stop();
    devices.decode_rest(now() + kLong);
    devices.close(true, true);
  }

  FakeCupti cupti;
  SamplingOptions options{true, {}, kInterval, nullptr};
  SamplingStop stop;
  Owner owner;
  SampledDevices devices{options, stop, owner};
  std::atomic<std::uint64_t> noted{1};
};

/// Kept to the end, because the thread may access it once more after it has stopped.
PmSampler& new_sampler() {
  static std::vector<std::unique_ptr<PmSampler>> all;
  return *all.emplace_back(std::make_unique<PmSampler>(PmSampler::Options{true, {}, kInterval, nullptr}));
}

using Names = std::vector<std::string>;
const Names kOpened{"Initialize", "Enable", "SetConfig", "Empty", "Start"};

}  // namespace

namespace inject {

bool find_pm_api(const CuptiApi&, PmApi& api, std::string&) {
  api = fake_api();
  return true;
}

}  // namespace inject

TEST_CASE("A device that is in use is set up, sampled and left as it was", "[sampling]") {
  Sampling s;
  s.devices.open(s.noted);
  CHECK(s.cupti.done() == kOpened);
  CHECK(s.owner.devices == std::vector<std::uint32_t>{0});
  CHECK(s.owner.columns == 3);
  s.devices.open(s.noted);  // it is open already
  CHECK(s.cupti.done().empty());
  s.cupti.incoming = 5;
  s.decode();
  CHECK(s.owner.samples == 4);
  CHECK(s.owner.decoding.samples == 5);
  CHECK(s.cupti.done().empty());
  s.cupti.incoming = 2;
  s.close();
  CHECK(s.owner.samples == 6);
  CHECK(s.cupti.done() == Names{"Stop", "Disable", "DeInitialize"});
  CHECK_FALSE(s.owner.left_on);
}

TEST_CASE("Devices are set up one after the other, and sampled all at once", "[sampling]") {
  Sampling s;
  s.noted = 0b101;
  s.devices.open(s.noted);
  CHECK(s.owner.devices == std::vector<std::uint32_t>{0, 2});
  CHECK(s.cupti.done() == Names{"Initialize", "Enable", "SetConfig", "Empty", "Enable", "SetConfig", "Empty",
                                "Start", "Start"});
  s.close();
  CHECK(s.cupti.done() == Names{"Stop", "Stop", "Disable", "Disable", "DeInitialize"});
}

TEST_CASE("A chip without a timer is sampled by cycles", "[sampling]") {
  Sampling s;
  s.cupti.answers["SetConfig"] = {CUPTI_ERROR_NOT_SUPPORTED};
  s.devices.open(s.noted);
  CHECK(s.cupti.done() == Names{"Initialize", "Enable", "SetConfig", "SetConfig (cycles)", "Empty", "Start"});
}

TEST_CASE("A refusal", "[sampling]") {
  Sampling s;
  SECTION("that concerns all devices is for good") {
    s.cupti.answers["Enable"] = {CUPTI_ERROR_INSUFFICIENT_PRIVILEGES};
    s.noted = 0b11;
    s.devices.open(s.noted);
    CHECK(s.devices.refused());
    CHECK(s.owner.refused);
    CHECK(s.cupti.done() == Names{"Initialize", "Enable"});
  }
  SECTION("that concerns one lets the others be sampled") {
    s.cupti.answers["Enable"] = {CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED};
    s.noted = 0b11;
    s.devices.open(s.noted);
    CHECK(s.owner.devices == std::vector<std::uint32_t>{1});
    s.close();
    s.cupti.done();
    s.devices.begin();
    s.devices.open(s.noted);  // there would be no difference
    CHECK(s.cupti.done() == kOpened);
  }
  SECTION("that may pass is tried again, once CUPTI has been attached anew") {
    s.cupti.answers["Enable"] = {CUPTI_ERROR_HARDWARE_BUSY};
    s.devices.open(s.noted);
    s.devices.open(s.noted);
    CHECK(s.cupti.done() == Names{"Initialize", "Enable"});
    CHECK_FALSE(s.devices.refused());
    s.close();
    CHECK(s.cupti.done() == Names{"DeInitialize"});
    s.devices.begin();
    s.devices.open(s.noted);
    CHECK(s.cupti.done() == kOpened);
  }
  SECTION("of the start switches the device off") {
    s.cupti.answers["Start"] = {CUPTI_ERROR_UNKNOWN};
    s.devices.open(s.noted);
    CHECK(s.cupti.done() == Names{"Initialize", "Enable", "SetConfig", "Empty", "Start", "Disable"});
    CHECK(s.owner.devices.empty());
  }
}

TEST_CASE("A device that CUPTI keeps on sampling is left alone", "[sampling]") {
  Sampling s;
  s.devices.open(s.noted);
  s.cupti.done();
  SECTION("as it can't be stopped") {
    s.cupti.answers["Stop"] = {CUPTI_ERROR_UNKNOWN, CUPTI_ERROR_UNKNOWN};
    s.close();
    CHECK(s.cupti.done() == Names{"Stop", "Stop"});
    CHECK(s.owner.left_on);
    CHECK(s.devices.refused());
  }
  SECTION("as it can't be switched off") {
    s.cupti.answers["Disable"] = {CUPTI_ERROR_UNKNOWN, CUPTI_ERROR_UNKNOWN};
    s.close();
    CHECK(s.cupti.done() == Names{"Stop", "Disable", "Disable"});
    CHECK(s.owner.left_on);
  }
  SECTION("but each is tried twice") {
    s.cupti.answers["Stop"] = {CUPTI_ERROR_UNKNOWN};
    s.cupti.answers["Disable"] = {CUPTI_ERROR_UNKNOWN};
    s.close();
    CHECK(s.cupti.done() == Names{"Stop", "Stop", "Disable", "Disable", "DeInitialize"});
    CHECK_FALSE(s.owner.left_on);
  }
}

TEST_CASE("Nothing more is called once the thread is to stop", "[sampling]") {
  Sampling s;
  SECTION("before a device is open") {
    s.stop.request();
    s.devices.open(s.noted);
    CHECK(s.cupti.calls.empty());
  }
  SECTION("between decodes") {
    s.devices.open(s.noted);
    s.stop.request();
    s.cupti.done();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    s.devices.decode_due();
    CHECK(s.cupti.calls.empty());
  }
  SECTION("as CUPTI is gone") {
    s.devices.open(s.noted);
    s.cupti.calls.clear();
    s.devices.close(false, false);
    CHECK(s.cupti.calls.empty());
  }
  SECTION("as it is gone once a call returns") {
    s.devices.open(s.noted);
    s.cupti.calls.clear();
    s.cupti.incoming = 3;
    s.cupti.meanwhile["Decode"] = [&s] {
      s.stop.request();
      s.stop.abandon(true);
    };
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    s.devices.decode_due();
    s.devices.close(false, false);
    CHECK(s.cupti.calls == Names{"Decode"});
    CHECK(s.owner.samples == 0);
  }
}

TEST_CASE("After an overflow sampling begins anew on all devices", "[sampling]") {
  Sampling s;
  s.noted = 0b11;
  s.devices.open(s.noted);
  s.cupti.incoming = 3;
  s.decode();
  s.cupti.done();
  s.cupti.overflow = true;
  s.decode();
  CHECK(s.owner.overflows == 1);
  CHECK(s.cupti.done() == Names{"Stop", "Disable", "Stop", "Disable", "Enable", "SetConfig", "Empty",
                                "Enable", "SetConfig", "Empty", "Start", "Start"});
}

TEST_CASE("A decode that fails is tried once more from the beginning", "[sampling]") {
  Sampling s;
  s.devices.open(s.noted);
  s.cupti.done();
  s.cupti.answers["Decode"] = {CUPTI_ERROR_UNKNOWN, CUPTI_ERROR_UNKNOWN};
  s.decode();
  CHECK(s.cupti.done() == Names{"Stop", "Disable", "Enable", "SetConfig", "Empty", "Start"});
  CHECK(s.owner.overflows == 0);
  s.decode();
  CHECK(s.cupti.done().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  s.cupti.calls.clear();
  s.devices.decode_due();  // of a device that was given up
  CHECK(s.cupti.calls.empty());
}

TEST_CASE("Units that tell nothing are left out, the least important first", "[sampling]") {
  Sampling s;
  s.devices.open(s.noted);
  s.cupti.done();
  s.cupti.incomplete = SampleAccount::kMaxFruitless + 1;
  s.decode();
  CHECK(s.owner.left_out == Names{"NVLink Receive (MB/s)", "NVLink Transmit (MB/s)"});
  CHECK(s.cupti.done() == Names{"Stop", "Disable", "Enable", "SetConfig", "Empty", "Start"});
  s.cupti.incomplete = 0;
  s.cupti.incoming = 3;
  s.decode();
  CHECK(s.owner.samples == 2);
}

TEST_CASE("A reason is logged once", "[sampling]") {
  LoggedReasons reasons;
  CHECK(reasons.add("busy"));
  CHECK_FALSE(reasons.add("busy"));
  CHECK(reasons.add("too old"));
}

TEST_CASE("What an error of CUPTI's means", "[sampling]") {
  CHECK(is_permanent(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED));
  CHECK_FALSE(is_permanent(CUPTI_ERROR_HARDWARE_BUSY));
  CHECK_FALSE(is_permanent(CUPTI_ERROR_INVALID_OPERATION));
  CHECK_FALSE(is_permanent(CUPTI_ERROR_UNKNOWN));
  CHECK(affects_all_devices(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES));
  CHECK_FALSE(affects_all_devices(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED));
  // The first call reports busy counters; from others the error means a call out of order.
  CHECK(reason_of(CUPTI_ERROR_INVALID_OPERATION, kPmEnable) != nullptr);
  CHECK(reason_of(CUPTI_ERROR_INVALID_OPERATION, "cuptiPmSamplingStart") == nullptr);
  FakeCupti cupti;
  fake = &cupti;
  const PmApi api = fake_api();
  CHECK(refusal(api, 0, "cuptiPmSamplingStart", CUPTI_ERROR_UNKNOWN) == "cuptiPmSamplingStart failed");
  CHECK(refusal(api, 0, kPmEnable, CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED).find("(MIG)") != std::string::npos);
}

TEST_CASE("The sampler is out of CUPTI once it has stopped", "[sampling]") {
  FakeCupti cupti;
  fake = &cupti;
  PmSampler& sampler = new_sampler();
  CHECK(sampler.stop(0));
  sampler.note_devices(1);
  sampler.start({});
  REQUIRE(sampler.wait_started(kLong));
  CHECK(sampler.running());
  CHECK_FALSE(sampler.starting());
  CHECK(sampler.info().devices == std::vector<std::uint32_t>{0});
  SECTION("as it was told") {
    REQUIRE(sampler.stop(kLong));
    CHECK_FALSE(sampler.running());
    CHECK(cupti.done().back() == "DeInitialize");
    CHECK(sampler.starting());
  }
  SECTION("for a program that finalizes CUPTI") {
    REQUIRE(sampler.suspend(kLong));
    CHECK(cupti.done().back() == "DeInitialize");
    sampler.start({});
    CHECK_FALSE(sampler.running());
    sampler.resume();
    sampler.start({});
    REQUIRE(sampler.wait_started(kLong));
    REQUIRE(sampler.stop(kLong));
    CHECK(cupti.done().front() == "Initialize");
  }
  SECTION("for a program that ends CUPTI's profiler") {
    REQUIRE(sampler.yield_cupti(false, kLong));
    CHECK(cupti.done().back() == "Disable");
    sampler.start({});
    CHECK_FALSE(sampler.running());
  }
}

TEST_CASE("What a window lacks before sampling has begun is lost", "[sampling]") {
  FakeCupti cupti;
  fake = &cupti;
  std::atomic<bool> begun{false};
  cupti.meanwhile["Initialize"] = [&begun] {
    while (!begun) std::this_thread::yield();
  };
  PmSampler& sampler = new_sampler();
  sampler.note_devices(0b11);
  const Nanoseconds before = now() - 50 * kMillisecond;
  sampler.note_window(before);
  sampler.note_window_end(now());
  CHECK(sampler.info().lost == 0);  // no device is to be sampled
  sampler.start({});
  sampler.note_window(before);
  begun = true;
  REQUIRE(sampler.wait_started(kLong));
  CHECK(sampler.info().lost_by[static_cast<std::size_t>(MetricLoss::kMissing)] >=
        2 * (50 * kMillisecond / kInterval));
  REQUIRE(sampler.stop(kLong));
}
