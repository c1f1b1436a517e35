// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// PM sampling: values follow from the kernels, and calls out of order are counted.
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/cudasim.h"
#include "tests/unit/catch.h"

using namespace inject::sim;

namespace {

template <typename Params>
Params params() {
  Params fresh{};
  fresh.structSize = sizeof fresh;
  return fresh;
}

CUptiResult initialize() {
  auto p = params<CUpti_Profiler_Initialize_Params>();
  return cuptiProfilerInitialize(&p);
}
CUptiResult deinitialize() {
  auto p = params<CUpti_Profiler_DeInitialize_Params>();
  return cuptiProfilerDeInitialize(&p);
}
/// A context, a client, and the profiler for it.
void prepare(Client& client) {
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  client.subscribe();
  REQUIRE(initialize() == CUPTI_SUCCESS);
}

CUpti_PmSampling_Object* enable() {
  auto p = params<CUpti_PmSampling_Enable_Params>();
  return cuptiPmSamplingEnable(&p) == CUPTI_SUCCESS ? p.pPmSamplingObject : nullptr;
}
CUptiResult disable(CUpti_PmSampling_Object* object) {
  auto p = params<CUpti_PmSampling_Disable_Params>();
  p.pPmSamplingObject = object;
  return cuptiPmSamplingDisable(&p);
}
CUptiResult start(CUpti_PmSampling_Object* object) {
  auto p = params<CUpti_PmSampling_Start_Params>();
  p.pPmSamplingObject = object;
  return cuptiPmSamplingStart(&p);
}
CUptiResult stop(CUpti_PmSampling_Object* object) {
  auto p = params<CUpti_PmSampling_Stop_Params>();
  p.pPmSamplingObject = object;
  return cuptiPmSamplingStop(&p);
}

constexpr std::size_t kMaxSamples = 200;  // that an image has room for

/// One metric, from its name to its values.
struct Sampling {
  const char* metric =
      "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed";
  CUpti_Profiler_Host_Object* host = nullptr;
  CUpti_PmSampling_Object* object = nullptr;
  std::vector<std::uint8_t> image;

  // By default the buffer lasts for longer than a sleep takes on a busy machine.
  void open(std::uint64_t interval = 100'000, std::size_t buffer = std::size_t{64} << 20) {
    auto create = params<CUpti_Profiler_Host_Initialize_Params>();
    create.pChipName = "SIM100";
    create.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
    REQUIRE(cuptiProfilerHostInitialize(&create) == CUPTI_SUCCESS);
    host = create.pHostObject;
    auto add = params<CUpti_Profiler_Host_ConfigAddMetrics_Params>();
    add.pHostObject = host;
    add.ppMetricNames = &metric;
    add.numMetrics = 1;
    REQUIRE(cuptiProfilerHostConfigAddMetrics(&add) == CUPTI_SUCCESS);
    auto size = params<CUpti_Profiler_Host_GetConfigImageSize_Params>();
    size.pHostObject = host;
    REQUIRE(cuptiProfilerHostGetConfigImageSize(&size) == CUPTI_SUCCESS);
    std::vector<std::uint8_t> config(size.configImageSize);
    auto get = params<CUpti_Profiler_Host_GetConfigImage_Params>();
    get.pHostObject = host;
    get.configImageSize = config.size();
    get.pConfigImage = config.data();
    REQUIRE(cuptiProfilerHostGetConfigImage(&get) == CUPTI_SUCCESS);
    object = enable();
    REQUIRE(object != nullptr);
    auto set = params<CUpti_PmSampling_SetConfig_Params>();
    set.pPmSamplingObject = object;
    set.configSize = config.size();
    set.pConfig = config.data();
    set.hardwareBufferSize = buffer;
    set.samplingInterval = interval;
    set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    REQUIRE(cuptiPmSamplingSetConfig(&set) == CUPTI_SUCCESS);
    auto bytes = params<CUpti_PmSampling_GetCounterDataSize_Params>();
    bytes.pPmSamplingObject = object;
    bytes.pMetricNames = &metric;
    bytes.numMetrics = 1;
    bytes.maxSamples = kMaxSamples;
    REQUIRE(cuptiPmSamplingGetCounterDataSize(&bytes) == CUPTI_SUCCESS);
    image.resize(bytes.counterDataSize);
    empty();
    REQUIRE(start(object) == CUPTI_SUCCESS);
  }

  /// Whether the hardware's buffer has overflowed.
  bool decode(std::size_t& samples, CUptiResult on_overflow = CUPTI_ERROR_OUT_OF_MEMORY) {
    auto p = params<CUpti_PmSampling_DecodeData_Params>();
    p.pPmSamplingObject = object;
    p.pCounterDataImage = image.data();
    p.counterDataImageSize = image.size();
    const CUptiResult result = cuptiPmSamplingDecodeData(&p);
    REQUIRE(result == (p.overflow != 0 ? on_overflow : CUPTI_SUCCESS));
    auto info = params<CUpti_PmSampling_GetCounterDataInfo_Params>();
    info.pCounterDataImage = image.data();
    info.counterDataImageSize = image.size();
    REQUIRE(cuptiPmSamplingGetCounterDataInfo(&info) == CUPTI_SUCCESS);
    samples = info.numCompletedSamples;
    return p.overflow != 0;
  }

  std::size_t populated() const {
    auto info = params<CUpti_PmSampling_GetCounterDataInfo_Params>();
    info.pCounterDataImage = image.data();
    info.counterDataImageSize = image.size();
    REQUIRE(cuptiPmSamplingGetCounterDataInfo(&info) == CUPTI_SUCCESS);
    return info.numPopulatedSamples;
  }

  void empty() {
    auto p = params<CUpti_PmSampling_CounterDataImage_Initialize_Params>();
    p.pPmSamplingObject = object;
    p.counterDataSize = image.size();
    p.pCounterData = image.data();
    REQUIRE(cuptiPmSamplingCounterDataImageInitialize(&p) == CUPTI_SUCCESS);
  }

  std::pair<std::uint64_t, std::uint64_t> times(std::size_t sample) {
    auto p = params<CUpti_PmSampling_CounterData_GetSampleInfo_Params>();
    p.pPmSamplingObject = object;
    p.pCounterDataImage = image.data();
    p.counterDataImageSize = image.size();
    p.sampleIndex = sample;
    REQUIRE(cuptiPmSamplingCounterDataGetSampleInfo(&p) == CUPTI_SUCCESS);
    return {p.startTimestamp, p.endTimestamp};
  }

  double value(std::size_t sample) {
    double found = -1;
    REQUIRE(evaluate(metric, sample, &found) == CUPTI_SUCCESS);
    return found;
  }

  CUptiResult evaluate(const char* name, std::size_t sample = 0, double* found = nullptr) {
    double unused = 0;
    auto p = params<CUpti_Profiler_Host_EvaluateToGpuValues_Params>();
    p.pHostObject = host;
    p.pCounterDataImage = image.data();
    p.counterDataImageSize = image.size();
    p.rangeIndex = sample;
    p.ppMetricNames = &name;
    p.numMetrics = 1;
    p.pMetricValues = found != nullptr ? found : &unused;
    return cuptiProfilerHostEvaluateToGpuValues(&p);
  }

  void close() {
    REQUIRE(stop(object) == CUPTI_SUCCESS);
    REQUIRE(disable(object) == CUPTI_SUCCESS);
    auto p = params<CUpti_Profiler_Host_Deinitialize_Params>();
    p.pHostObject = host;
    cuptiProfilerHostDeinitialize(&p);
  }
};

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace

TEST_CASE("samples of a kernel that multiplies matrices, and of idle time") {
  cudasim_set_kernel_duration("sampled_gemm", 5'000'000);
  const cudaKernel_t kernel = test_kernel("sampled_gemm");
  const std::uint64_t before = cudasim_sampling_misuse();
  Client client;
  client.subscribe();
  REQUIRE(initialize() == CUPTI_SUCCESS);
  Sampling sampling;
  sampling.open();
  // Other tests leave kernels that never end.
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(launch(kernel, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  sleep_ms(3);
  std::size_t samples = 0;
  CHECK_FALSE(sampling.decode(samples));
  CHECK(samples >= 80);
  int busy = 0;
  int idle = 0;
  for (std::size_t i = 1; i < samples; ++i) {  // the first spans the set-up
    busy += sampling.value(i) == 90 ? 1 : 0;
    idle += sampling.value(i) == 0 ? 1 : 0;
  }
  CHECK((busy >= 48 && busy <= 50));
  CHECK(idle >= 20);
  sampling.close();
  REQUIRE(deinitialize() == CUPTI_SUCCESS);
  CHECK(cudasim_sampling_misuse() == before);
}

TEST_CASE("an overflow is for good") {
  Client client;
  prepare(client);
  Sampling sampling;
  sampling.open();
  cudasim_set_fault("pm_buffer", "10");
  sleep_ms(5);
  std::size_t samples = 0;
  CHECK(sampling.decode(samples));
  CHECK(samples == 0);
  CHECK(sampling.decode(samples));
  cudasim_set_fault("pm_buffer", "off");
  REQUIRE(stop(sampling.object) == CUPTI_SUCCESS);
  CHECK(sampling.decode(samples));
  REQUIRE(start(sampling.object) == CUPTI_SUCCESS);
  CHECK(sampling.decode(samples));
  sampling.close();
  deinitialize();
}

TEST_CASE("what an image has no room for is lost") {
  Client client;
  prepare(client);
  Sampling sampling;
  sampling.open();
  sleep_ms(25);
  std::size_t samples = 0;
  CHECK_FALSE(sampling.decode(samples));
  CHECK(samples == kMaxSamples);
  CHECK(sampling.times(kMaxSamples - 1).second > 0);
  sampling.empty();
  sampling.decode(samples);
  REQUIRE(samples >= 50);
  CHECK(sampling.times(0).first == sampling.times(0).second);
  // The next ones have theirs again, and the last one, after the end, no duration. On a busy machine the
  // image may have been full once more.
  for (int i = 0; i < 50 && samples == kMaxSamples; ++i) {
    sampling.empty();
    sampling.decode(samples);
  }
  sampling.empty();
  sleep_ms(1);
  REQUIRE(stop(sampling.object) == CUPTI_SUCCESS);
  sampling.decode(samples);
  REQUIRE(samples >= 2);
  CHECK(sampling.times(0).second > sampling.times(0).first);
  if (samples < kMaxSamples) CHECK(sampling.times(samples - 1).second == sampling.times(samples - 1).first);
  REQUIRE(start(sampling.object) == CUPTI_SUCCESS);
  sampling.close();
  deinitialize();
}

TEST_CASE("calls out of order are counted") {
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  const std::uint64_t before = cudasim_sampling_misuse();
  SECTION("after finalize, before anybody subscribes") {
    { const Client client; }
    CHECK(initialize() == CUPTI_ERROR_NOT_INITIALIZED);
    CHECK(cudasim_sampling_misuse() == before);
    CHECK(enable() == nullptr);
    CHECK(cudasim_sampling_misuse() == before + 1);
    Client client;
    client.subscribe();
    CHECK(initialize() == CUPTI_SUCCESS);
    CHECK(deinitialize() == CUPTI_SUCCESS);
    CHECK(cudasim_sampling_misuse() == before + 1);
  }
  SECTION("detached while sampling is on") {
    {
      Client client;
      client.subscribe();
      REQUIRE(initialize() == CUPTI_SUCCESS);
    }
    CHECK(cudasim_sampling_misuse() > before);
  }
  SECTION("disabled twice, or never") {
    Client client;
    client.subscribe();
    REQUIRE(initialize() == CUPTI_SUCCESS);
    CUpti_PmSampling_Object* object = enable();
    REQUIRE(object != nullptr);
    CHECK(enable() == nullptr);  // one at a time on a device
    CHECK(cudasim_sampling_misuse() == before);
    CHECK(deinitialize() != CUPTI_SUCCESS);
    CHECK(cudasim_sampling_misuse() == before + 1);
  }
  SECTION("initialised once and given up twice") {
    Client client;
    client.subscribe();
    REQUIRE(initialize() == CUPTI_SUCCESS);
    CHECK(deinitialize() == CUPTI_SUCCESS);
    CHECK(cudasim_sampling_misuse() == before);
    CHECK(deinitialize() != CUPTI_SUCCESS);
    CHECK(cudasim_sampling_misuse() == before + 1);
  }
}

TEST_CASE("parameters that the headers do not allow") {
  auto create = params<CUpti_Profiler_Host_Initialize_Params>();
  create.pChipName = "SIM100";
  create.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  CHECK(cuptiProfilerHostInitialize(&create) == CUPTI_ERROR_INVALID_PARAMETER);
  create.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  create.structSize = 0;
  CHECK(cuptiProfilerHostInitialize(&create) == CUPTI_ERROR_INVALID_PARAMETER);
  create.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE - 1;
  CHECK(cuptiProfilerHostInitialize(&create) == CUPTI_ERROR_INVALID_PARAMETER);
  create.structSize = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE;
  const std::uint8_t availability[16] = {};
  create.pCounterAvailabilityImage = availability;
  CHECK(cuptiProfilerHostInitialize(&create) == CUPTI_ERROR_INVALID_PARAMETER);
  create.pCounterAvailabilityImage = nullptr;
  create.pChipName = "GH100";
  CHECK(cuptiProfilerHostInitialize(&create) == CUPTI_ERROR_INVALID_CHIP_NAME);
  create.pChipName = "SIM100";
  REQUIRE(cuptiProfilerHostInitialize(&create) == CUPTI_SUCCESS);
  const char* unknown = "sm__nonsense.avg";
  auto add = params<CUpti_Profiler_Host_ConfigAddMetrics_Params>();
  add.pHostObject = create.pHostObject;
  add.ppMetricNames = &unknown;
  add.numMetrics = 1;
  CHECK(cuptiProfilerHostConfigAddMetrics(&add) == CUPTI_ERROR_INVALID_METRIC_NAME);
  auto end = params<CUpti_Profiler_Host_Deinitialize_Params>();
  end.pHostObject = create.pHostObject;
  CHECK(cuptiProfilerHostDeinitialize(&end) == CUPTI_SUCCESS);
}

TEST_CASE("a sample under way is populated, not completed, and comes whole later") {
  Client client;
  prepare(client);
  Sampling sampling;
  sampling.open();
  bool seen = false;
  // Once more where the image was full before the machine had a processor for us.
  for (int i = 0; i < 200 && !seen; ++i) {
    sampling.empty();
    sleep_ms(1);
    std::size_t samples = 0;
    REQUIRE_FALSE(sampling.decode(samples));
    if (sampling.populated() <= samples) continue;
    REQUIRE(sampling.populated() == samples + 1);
    const std::uint64_t begun = sampling.times(samples).first;
    CHECK(begun > 0);
    CHECK(sampling.times(samples).second == 0);
    const std::size_t before = samples;
    sleep_ms(2);
    REQUIRE_FALSE(sampling.decode(samples));
    if (samples == kMaxSamples) continue;
    seen = true;
    REQUIRE(samples > before);
    // What the clocks differ by is read again each time.
    const auto differs = [](std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; };
    CHECK(differs(sampling.times(before).first, begun) < 50'000);
    CHECK(differs(sampling.times(before).second, begun + 100'000) < 50'000);
  }
  CHECK(seen);
  sampling.close();
  deinitialize();
}

TEST_CASE("an overflow that only the flag tells of") {
  Client client;
  prepare(client);
  Sampling sampling;
  sampling.open();
  cudasim_set_fault("pm_overflow_flag", "on");
  cudasim_set_fault("pm_buffer", "10");
  sleep_ms(5);
  std::size_t samples = 0;
  CHECK(sampling.decode(samples, CUPTI_SUCCESS));
  CHECK(samples == 10);
  sleep_ms(2);
  CHECK(sampling.decode(samples, CUPTI_SUCCESS));
  CHECK(samples == 10);
  cudasim_set_fault("pm_buffer", "off");
  cudasim_set_fault("pm_overflow_flag", "off");
  sampling.close();
  deinitialize();
}

TEST_CASE("an overflow that nothing tells of") {
  Client client;
  prepare(client);
  Sampling sampling;
  sampling.open();
  cudasim_set_fault("pm_overflow_silent", "on");
  cudasim_set_fault("pm_buffer", "10");
  sleep_ms(5);
  std::size_t samples = 0;
  CHECK_FALSE(sampling.decode(samples));
  CHECK(samples == 10);
  cudasim_set_fault("pm_buffer", "1000");
  sleep_ms(5);
  CHECK_FALSE(sampling.decode(samples));
  REQUIRE(samples > 20);
  // What did not come is missing between them.
  CHECK(sampling.times(9).first - sampling.times(8).second == 0);
  CHECK(sampling.times(10).first - sampling.times(9).second >= 2'000'000);
  CHECK(sampling.times(11).first - sampling.times(10).second == 0);
  cudasim_set_fault("pm_buffer", "off");
  cudasim_set_fault("pm_overflow_silent", "off");
  sampling.close();
  deinitialize();
}

TEST_CASE("the hardware's buffer fills by samples and by time") {
  Client client;
  prepare(client);
  // 2,048 times what a sample takes: of those every 10 us 1,755, which is 18 ms, of those every 100 us 768,
  // which is 77 ms.
  for (const std::uint64_t interval : {10'000u, 100'000u}) {
    Sampling sampling;
    sampling.open(interval, std::size_t{16} << 20);
    const bool short_one = interval == 10'000;
    sleep_ms(30);
    std::size_t samples = 0;
    CHECK(sampling.decode(samples) == short_one);
    if (!short_one) {
      sleep_ms(110);
      CHECK(sampling.decode(samples));
    }
    sampling.close();
  }
  deinitialize();
}

TEST_CASE("only what has been configured has values") {
  Client client;
  prepare(client);
  Sampling sampling;
  sampling.open();
  sleep_ms(3);
  std::size_t samples = 0;
  REQUIRE_FALSE(sampling.decode(samples));
  REQUIRE(samples > 0);
  CHECK(sampling.evaluate("TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed") ==
        CUPTI_ERROR_INVALID_PARAMETER);
  CHECK(sampling.evaluate("sm__nonsense.avg") == CUPTI_ERROR_INVALID_METRIC_NAME);
  CHECK(sampling.evaluate(sampling.metric) == CUPTI_SUCCESS);
  // Nor is it asked for what is available while a device is sampled.
  auto availability = params<CUpti_PmSampling_GetCounterAvailability_Params>();
  CHECK(cuptiPmSamplingGetCounterAvailability(&availability) == CUPTI_ERROR_INVALID_OPERATION);
  sampling.close();
  CHECK(cuptiPmSamplingGetCounterAvailability(&availability) == CUPTI_SUCCESS);
  CHECK(availability.counterAvailabilityImageSize > 0);
  deinitialize();
}
