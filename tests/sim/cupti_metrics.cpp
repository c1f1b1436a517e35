// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcupti.so.13's functions for hardware metrics: the host side, which knows the metrics of one simulated
// chip, and PM sampling over core/counters. A metric may stand in a group of counters that fit into one pass;
// outside of groups there are four counters in a pass, and groups share theirs with none.
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <link.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/sim/core/counters.h"
#include "tests/sim/core/device.h"

using namespace inject::sim;

// What the client holds for us.
struct CUpti_Profiler_Host_Object {
  std::vector<std::string> metrics;
  bool pcie = true;  // to its knowledge
};
struct CUpti_PmSampling_Object {
  counters::Object* counters = nullptr;
  std::string config;
};

namespace {

constexpr const char* kLibrary = "libcupti.so.13";
constexpr const char* kChip = "SIM100";
constexpr std::size_t kPlainInAPass = 4;
// As large as what a sample takes on the hardware, roughly: in its buffer once, and once more each time so
// much of it has passed.
constexpr std::size_t kBytesInBuffer = 8192;
constexpr Nanoseconds kBytesRepeat = 60'000;
constexpr std::size_t kBytesInImage = 32768;
// Of what the SMs count in a sample, that which comes after the rest of it.
constexpr double kTornPart = 1.0 / 32;
constexpr char kAvailability[] = "all counters";
constexpr char kWithoutPcie[] = "all but pcie";
static_assert(sizeof kAvailability == sizeof kWithoutPcie);
bool is_of_pcie(std::string_view metric) {
  return metric.find("pcie") != metric.npos;
}
constexpr std::uint64_t kImageMark = 0x696d616765;
constexpr std::uint64_t kClockKhz = 1'980'000;

// The size tells what the caller knows of a structure: all of these have been as long since they came.
template <typename Params>
bool well_formed(const Params* params, std::size_t size) {
  return params != nullptr && params->structSize >= size && params->pPriv == nullptr;
}

#define CUPTI_FUNCTION(name, type)                                          \
  static constinit FunctionSlot slot;                                       \
  Function& function = slot.get(kLibrary, #name, Domain::kCupti);           \
  if (int fault = function.enter()) return static_cast<CUptiResult>(fault); \
  if (!well_formed(params, type##_Params_STRUCT_SIZE)) return CUPTI_ERROR_INVALID_PARAMETER

// A call that is out of order where the profiler has not been initialised.
#define PM_FUNCTION(name, type) \
  CUPTI_FUNCTION(name, type);   \
  if (CUptiResult wrong = counters::enter()) return wrong

struct Base {
  const char* name;
  CUpti_MetricType type;
  // Of the peak, in percent, while a kernel of that part runs; or so many a second, or a cycle.
  counters::Part part;
  double percent;
  double per_second;
  double per_cycle;
};

constexpr Base kBases[] = {
    {"TPC.TriageCompute.sm__cycles_active", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 100, 1e9, 1},
    {"TPC.TriageCompute.sm__inst_executed_realtime", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 50, 2e9, 2},
    {"TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime", CUPTI_METRIC_TYPE_COUNTER, counters::kOther, 40,
     1e9, 1},
    {"TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime", CUPTI_METRIC_TYPE_COUNTER, counters::kDouble,
     80, 1e9, 1},
    {"TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime", CUPTI_METRIC_TYPE_COUNTER, counters::kMatrix,
     90, 1e9, 1},
    {"PCI.TriageCompute.pcie__read_bytes", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 10, 2e9, 2},
    {"PCI.TriageCompute.pcie__write_bytes", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 5, 1e9, 1},
    {"sm__cycles_active", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 100, 1e9, 1},
    {"sm__inst_executed", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 50, 2e9, 2},
    {"sm__warps_active_realtime", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 50, 1e9, 32},
    {"sm__warps_active", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 50, 1e9, 32},
    {"sm__pipe_tensor_cycles_active", CUPTI_METRIC_TYPE_COUNTER, counters::kMatrix, 90, 1e9, 1},
    {"sm__pipe_fp64_cycles_active", CUPTI_METRIC_TYPE_COUNTER, counters::kDouble, 80, 1e9, 1},
    {"nvlrx__bytes", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 0, 0, 0},
    {"nvltx__bytes", CUPTI_METRIC_TYPE_COUNTER, counters::kAny, 0, 0, 0},
    {"sm__average_thread_inst_executed", CUPTI_METRIC_TYPE_RATIO, counters::kAny, 0, 0, 32},
    {"FBSP.TriageCompute.dramc__read_throughput", CUPTI_METRIC_TYPE_THROUGHPUT, counters::kAny, 30, 0, 0},
    {"FBSP.TriageCompute.dramc__write_throughput", CUPTI_METRIC_TYPE_THROUGHPUT, counters::kAny, 10, 0, 0},
    {"LTS.TriageCompute.lts__throughput", CUPTI_METRIC_TYPE_THROUGHPUT, counters::kAny, 20, 0, 0},
};

enum class Rollup { kNone, kPercent, kPerSecond, kPerCycle, kPerActiveCycle };

struct Metric {
  const Base* base = nullptr;
  Rollup rollup = Rollup::kNone;
};

Metric find_metric(std::string_view name) {
  for (const Base& base : kBases) {
    const std::string_view known = base.name;
    if (name.substr(0, known.size()) != known) continue;
    const std::string_view rest = name.substr(known.size());
    if (rest == ".avg.pct_of_peak_sustained_elapsed") return {&base, Rollup::kPercent};
    if (base.type != CUPTI_METRIC_TYPE_COUNTER) continue;
    if (rest == ".sum.per_second") return {&base, Rollup::kPerSecond};
    if (rest == ".avg.per_cycle_elapsed") return {&base, Rollup::kPerCycle};
    if (rest == ".avg.per_cycle_active") return {&base, Rollup::kPerActiveCycle};
  }
  return {};
}

double value_of(const Metric& metric, const counters::Sample& sample) {
  const bool of_sm = std::string_view(metric.base->name).substr(0, 4) == "TPC.";
  double part = sample.parts[metric.base->part] * (sample.torn && of_sm ? kTornPart : 1);
  if (sample.contrary && std::string_view(metric.base->name) == kBases[0].name) part /= 100;
  switch (metric.rollup) {
    case Rollup::kPercent:
      return metric.base->percent * part;
    case Rollup::kPerSecond:
      return metric.base->per_second * part;
    case Rollup::kPerCycle:
      return metric.base->per_cycle * part;
    case Rollup::kPerActiveCycle:
      return sample.parts[counters::kAny] > 0 ? metric.base->per_cycle
                                              : std::numeric_limits<double>::quiet_NaN();
    default:
      return 0;
  }
}

// With others of its kind in one pass.
bool grouped(std::string_view name) {
  return name.find(".Triage") != std::string_view::npos || name.find("_realtime.") != std::string_view::npos;
}

std::string config_of(const CUpti_Profiler_Host_Object& host) {
  std::string config;
  for (const std::string& metric : host.metrics) config += metric + '\n';
  return config;
}

bool is_in(std::string_view config, const char* metric) {
  return ('\n' + std::string(config)).find('\n' + std::string(metric) + '\n') != std::string::npos;
}

std::size_t passes_of(std::string_view config) {
  std::size_t plain = 0;
  bool groups = false;
  while (!config.empty()) {
    const std::size_t end = config.find('\n');
    if (end == std::string_view::npos) break;
    if (grouped(config.substr(0, end)))
      groups = true;
    else
      ++plain;
    config.remove_prefix(end + 1);
  }
  return (groups ? 1 : 0) + (plain + kPlainInAPass - 1) / kPlainInAPass;
}

// A counter data image.
struct Image {
  std::uint64_t mark = 0;
  std::uint64_t room = 0;
  std::uint64_t count = 0;
  std::uint64_t partial = 0;  // 1: beyond these there is a sample that is not completed yet
  std::uint64_t silent = 0;   // 1: nor are these, ever
};

Image* image_of(std::uint8_t* data, std::size_t size) {
  auto* image = reinterpret_cast<Image*>(data);
  return data != nullptr && size >= sizeof(Image) && image->mark == kImageMark ? image : nullptr;
}
const Image* image_of(const std::uint8_t* data, std::size_t size) {
  return image_of(const_cast<std::uint8_t*>(data), size);
}

std::uint8_t* place_of(std::uint8_t* data, std::size_t index) {
  return data + sizeof(Image) + index * kBytesInImage;
}

// With the loader's lock held, once, as while libnvperf_host is loaded.
void load_host_library() {
  static const int loaded = dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void*) {
        std::this_thread::sleep_for(std::chrono::milliseconds(faults().pm_load_ms.load()));
        return 1;
      },
      nullptr);
  static_cast<void>(loaded);
}

bool sample_of(const std::uint8_t* data, std::size_t size, std::size_t index, counters::Sample& sample) {
  const Image* image = image_of(data, size);
  if (image == nullptr || index >= image->count + image->partial) return false;
  std::memcpy(&sample, place_of(const_cast<std::uint8_t*>(data), index), sizeof sample);
  return true;
}

}  // namespace

extern "C" {

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* params) {
  CUPTI_FUNCTION(cuptiDeviceGetChipName, CUpti_Device_GetChipName);
  if (params->deviceIndex >= static_cast<std::size_t>(settings().devices)) return CUPTI_ERROR_INVALID_DEVICE;
  params->pChipName = kChip;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerInitialize, CUpti_Profiler_Initialize);
  return counters::initialize();
}

CUptiResult cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerDeInitialize, CUpti_Profiler_DeInitialize);
  return counters::deinitialize();
}

CUptiResult cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params* params) {
  PM_FUNCTION(cuptiProfilerDeviceSupported, CUpti_Profiler_DeviceSupported);
  params->isSupported = params->architecture = params->sli = params->vGpu = params->confidentialCompute =
      params->cmp = params->wsl = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  CUpti_Profiler_Support_Level* const levels[] = {nullptr,       &params->architecture, &params->sli,
                                                  &params->vGpu, &params->vGpu,         &params->wsl};
  if (const std::uint32_t reason = faults().pm_unsupported.load(); reason != 0) {
    params->isSupported = CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
    *levels[reason] =
        reason == 4 ? CUPTI_PROFILER_CONFIGURATION_DISABLED : CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostInitialize, CUpti_Profiler_Host_Initialize);
  load_host_library();
  if (params->pChipName == nullptr || params->profilerType != CUPTI_PROFILER_TYPE_PM_SAMPLING)
    return CUPTI_ERROR_INVALID_PARAMETER;
  if (std::string_view(params->pChipName) != kChip) return CUPTI_ERROR_INVALID_CHIP_NAME;
  const auto is_available = [&](const char* image) {
    return std::memcmp(params->pCounterAvailabilityImage, image, sizeof kAvailability) == 0;
  };
  bool pcie = true;
  if (params->pCounterAvailabilityImage != nullptr) {
    pcie = !is_available(kWithoutPcie);
    if (pcie && !is_available(kAvailability)) return CUPTI_ERROR_INVALID_PARAMETER;
  }
  params->pHostObject = new CUpti_Profiler_Host_Object{{}, pcie};
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostDeinitialize, CUpti_Profiler_Host_Deinitialize);
  delete params->pHostObject;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetBaseMetrics(CUpti_Profiler_Host_GetBaseMetrics_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostGetBaseMetrics, CUpti_Profiler_Host_GetBaseMetrics);
  // Without PCIe and with it.
  static std::array<std::vector<const char*>, CUPTI_METRIC_TYPE__COUNT> lists[2];
  static const bool filled = [] {
    for (const Base& base : kBases) {
      lists[1][base.type].push_back(base.name);
      if (!is_of_pcie(base.name)) lists[0][base.type].push_back(base.name);
    }
    return true;
  }();
  if (!filled || params->pHostObject == nullptr || params->metricType >= CUPTI_METRIC_TYPE__COUNT)
    return CUPTI_ERROR_INVALID_PARAMETER;
  std::vector<const char*>& list = lists[params->pHostObject->pcie ? 1 : 0][params->metricType];
  params->ppMetricNames = list.data();
  params->numMetrics = list.size();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostConfigAddMetrics, CUpti_Profiler_Host_ConfigAddMetrics);
  if (params->pHostObject == nullptr || params->ppMetricNames == nullptr)
    return CUPTI_ERROR_INVALID_PARAMETER;
  for (std::size_t i = 0; i < params->numMetrics; ++i) {
    if (find_metric(params->ppMetricNames[i]).base == nullptr ||
        (is_of_pcie(params->ppMetricNames[i]) && !params->pHostObject->pcie))
      return CUPTI_ERROR_INVALID_METRIC_NAME;
    params->pHostObject->metrics.emplace_back(params->ppMetricNames[i]);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostGetConfigImageSize, CUpti_Profiler_Host_GetConfigImageSize);
  params->configImageSize = config_of(*params->pHostObject).size();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostGetConfigImage, CUpti_Profiler_Host_GetConfigImage);
  const std::string config = config_of(*params->pHostObject);
  if (params->configImageSize < config.size()) return CUPTI_ERROR_INVALID_PARAMETER;
  std::memcpy(params->pConfigImage, config.data(), config.size());
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostGetNumOfPasses, CUpti_Profiler_Host_GetNumOfPasses);
  params->numOfPasses =
      passes_of({reinterpret_cast<const char*>(params->pConfigImage), params->configImageSize});
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* params) {
  CUPTI_FUNCTION(cuptiProfilerHostEvaluateToGpuValues, CUpti_Profiler_Host_EvaluateToGpuValues);
  counters::Sample sample;
  if (params->pHostObject == nullptr || params->ppMetricNames == nullptr ||
      params->pMetricValues == nullptr ||
      !sample_of(params->pCounterDataImage, params->counterDataImageSize, params->rangeIndex, sample))
    return CUPTI_ERROR_INVALID_PARAMETER;
  const std::string configured = config_of(*params->pHostObject);
  for (std::size_t i = 0; i < params->numMetrics; ++i) {
    const Metric metric = find_metric(params->ppMetricNames[i]);
    if (metric.base == nullptr) return CUPTI_ERROR_INVALID_METRIC_NAME;
    // What has not been counted has no value.
    if (!is_in(configured, params->ppMetricNames[i])) return CUPTI_ERROR_INVALID_PARAMETER;
    params->pMetricValues[i] = value_of(metric, sample);
  }
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterAvailability(CUpti_PmSampling_GetCounterAvailability_Params* params) {
  PM_FUNCTION(cuptiPmSamplingGetCounterAvailability, CUpti_PmSampling_GetCounterAvailability);
  if (params->deviceIndex >= static_cast<std::size_t>(settings().devices)) return CUPTI_ERROR_INVALID_DEVICE;
  if (counters::enabled(static_cast<int>(params->deviceIndex))) return CUPTI_ERROR_INVALID_OPERATION;
  if (params->pCounterAvailabilityImage != nullptr) {
    if (params->counterAvailabilityImageSize < sizeof kAvailability) return CUPTI_ERROR_INVALID_PARAMETER;
    std::memcpy(params->pCounterAvailabilityImage, faults().pm_no_pcie.load() ? kWithoutPcie : kAvailability,
                sizeof kAvailability);
  }
  params->counterAvailabilityImageSize = sizeof kAvailability;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* params) {
  PM_FUNCTION(cuptiPmSamplingEnable, CUpti_PmSampling_Enable);
  if (params->deviceIndex >= static_cast<std::size_t>(settings().devices)) return CUPTI_ERROR_INVALID_DEVICE;
  if (faults().pm_unsupported.load() != 0) return CUPTI_ERROR_NOT_SUPPORTED;
  counters::Object* object = nullptr;
  const CUptiResult result = counters::enable(static_cast<int>(params->deviceIndex), object);
  if (result == CUPTI_SUCCESS) params->pPmSamplingObject = new CUpti_PmSampling_Object{object, {}};
  return result;
}

CUptiResult cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params* params) {
  PM_FUNCTION(cuptiPmSamplingDisable, CUpti_PmSampling_Disable);
  const CUptiResult result = counters::disable(params->pPmSamplingObject->counters);
  if (result == CUPTI_SUCCESS) delete params->pPmSamplingObject;
  return result;
}

CUptiResult cuptiPmSamplingSetConfig(CUpti_PmSampling_SetConfig_Params* params) {
  PM_FUNCTION(cuptiPmSamplingSetConfig, CUpti_PmSampling_SetConfig);
  if (params->pPmSamplingObject == nullptr || params->pConfig == nullptr ||
      params->triggerMode >= CUPTI_PM_SAMPLING_TRIGGER_MODE_COUNT)
    return CUPTI_ERROR_INVALID_PARAMETER;
  std::string config(reinterpret_cast<const char*>(params->pConfig), params->configSize);
  if (passes_of(config) != 1) return CUPTI_ERROR_NOT_SUPPORTED;
  // The board's units are not there to be set up, whatever the host side was told.
  if (faults().pm_no_pcie.load() && config.find("pcie") != config.npos) return CUPTI_ERROR_INVALID_PARAMETER;
  Nanoseconds interval = params->samplingInterval;
  if (params->triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL)
    interval = interval * 1'000'000 / kClockKhz;
  else if (faults().pm_no_timer.load())
    return CUPTI_ERROR_NOT_SUPPORTED;
  const CUptiResult result = counters::configure(
      params->pPmSamplingObject->counters, interval,
      params->hardwareBufferSize * kBytesRepeat / (kBytesInBuffer * (interval + kBytesRepeat)),
      faults().pm_silent_pcie.load() && is_of_pcie(config));
  if (result == CUPTI_SUCCESS) params->pPmSamplingObject->config = std::move(config);
  return result;
}

CUptiResult cuptiPmSamplingStart(CUpti_PmSampling_Start_Params* params) {
  PM_FUNCTION(cuptiPmSamplingStart, CUpti_PmSampling_Start);
  return counters::start(params->pPmSamplingObject->counters);
}

CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params* params) {
  PM_FUNCTION(cuptiPmSamplingStop, CUpti_PmSampling_Stop);
  return counters::stop(params->pPmSamplingObject->counters);
}

CUptiResult cuptiPmSamplingGetCounterDataSize(CUpti_PmSampling_GetCounterDataSize_Params* params) {
  PM_FUNCTION(cuptiPmSamplingGetCounterDataSize, CUpti_PmSampling_GetCounterDataSize);
  if (params->pPmSamplingObject == nullptr || params->maxSamples == 0) return CUPTI_ERROR_INVALID_PARAMETER;
  for (std::size_t i = 0; i < params->numMetrics; ++i)
    if (!is_in(params->pPmSamplingObject->config, params->pMetricNames[i]))
      return CUPTI_ERROR_INVALID_PARAMETER;
  params->counterDataSize = sizeof(Image) + params->maxSamples * kBytesInImage;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingCounterDataImageInitialize(
    CUpti_PmSampling_CounterDataImage_Initialize_Params* params) {
  PM_FUNCTION(cuptiPmSamplingCounterDataImageInitialize, CUpti_PmSampling_CounterDataImage_Initialize);
  if (params->counterDataSize < sizeof(Image)) return CUPTI_ERROR_INVALID_PARAMETER;
  // As on the hardware: what is told of a sample later finds none that it belongs to, and begins one.
  if (const Image* before = image_of(params->pCounterData, params->counterDataSize);
      before != nullptr && before->count + before->partial != 0)
    counters::tear(params->pPmSamplingObject->counters);
  const Image image{kImageMark, (params->counterDataSize - sizeof(Image)) / kBytesInImage, 0, 0, 0};
  std::memcpy(params->pCounterData, &image, sizeof image);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* params) {
  PM_FUNCTION(cuptiPmSamplingDecodeData, CUpti_PmSampling_DecodeData);
  Image* image = image_of(params->pCounterDataImage, params->counterDataImageSize);
  if (image == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::vector<counters::Sample> samples;
  counters::Decoded decoded;
  const CUptiResult result =
      counters::decode(params->pPmSamplingObject->counters, image->room - image->count, samples, decoded);
  params->overflow = decoded.overflow ? 1 : 0;
  if (result != CUPTI_SUCCESS) return result;
  // As if the clocks had been compared anew.
  if (image->count != 0 && Faults::take(faults().pm_retimed)) {
    for (std::size_t i = 0; i < image->count; ++i) {
      counters::Sample sample;
      std::uint8_t* const place = place_of(params->pCounterDataImage, i);
      std::memcpy(&sample, place, sizeof sample);
      sample.start += 1100;
      sample.end += 1100;
      std::memcpy(place, &sample, sizeof sample);
    }
  }
  image->partial = 0;
  image->silent = faults().pm_silent_pcie.load() && is_of_pcie(params->pPmSamplingObject->config) ? 1 : 0;
  for (const counters::Sample& sample : samples)
    std::memcpy(place_of(params->pCounterDataImage, image->count++), &sample, sizeof sample);
  // The one under way takes a place as well: its end is not known, nor is all that is counted.
  if (decoded.begun != 0 && image->count < image->room) {
    counters::Sample partial;
    partial.start = decoded.begun;
    std::memcpy(place_of(params->pCounterDataImage, image->count), &partial, sizeof partial);
    image->partial = 1;
  }
  params->decodeStopReason = decoded.more ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL
                                          : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* params) {
  PM_FUNCTION(cuptiPmSamplingGetCounterDataInfo, CUpti_PmSampling_GetCounterDataInfo);
  const Image* image = image_of(params->pCounterDataImage, params->counterDataImageSize);
  if (image == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  params->numTotalSamples = image->room;
  params->numCompletedSamples = image->silent != 0 ? 0 : image->count;
  params->numPopulatedSamples = image->count + image->partial;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(
    CUpti_PmSampling_CounterData_GetSampleInfo_Params* params) {
  PM_FUNCTION(cuptiPmSamplingCounterDataGetSampleInfo, CUpti_PmSampling_CounterData_GetSampleInfo);
  counters::Sample sample;
  if (!sample_of(params->pCounterDataImage, params->counterDataImageSize, params->sampleIndex, sample))
    return CUPTI_ERROR_INVALID_PARAMETER;
  params->startTimestamp = sample.start;
  params->endTimestamp = sample.end;
  return CUPTI_SUCCESS;
}
}
