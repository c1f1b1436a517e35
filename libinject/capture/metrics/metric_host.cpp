// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/metric_host.h"

#include <utility>

namespace inject {

namespace {

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> list;
  list.reserve(texts.size());
  for (const std::string& text : texts) list.push_back(text.c_str());
  return list;
}

}  // namespace

CUptiResult MetricHost::make(CUpti_Profiler_Host_Object*& object) const {
  INJECT_PM_PARAMS(params, CUpti_Profiler_Host_Initialize);
  params.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
  params.pChipName = chip_.c_str();
  params.pCounterAvailabilityImage = availability_.empty() ? nullptr : availability_.data();
  CUptiResult result = api_.ProfilerHostInitialize(&params);
  if (result != CUPTI_SUCCESS && !availability_.empty()) {
    // The availability image is optional.
    params.pCounterAvailabilityImage = nullptr;
    result = api_.ProfilerHostInitialize(&params);
  }
  object = result == CUPTI_SUCCESS ? params.pHostObject : nullptr;
  return result == CUPTI_SUCCESS && object == nullptr ? CUPTI_ERROR_UNKNOWN : result;
}

void MetricHost::release(CUpti_Profiler_Host_Object* object) const noexcept {
  if (object == nullptr) return;
  INJECT_PM_PARAMS(params, CUpti_Profiler_Host_Deinitialize);
  params.pHostObject = object;
  api_.ProfilerHostDeinitialize(&params);
}

CUptiResult MetricHost::base_names(std::vector<std::string>& names) {
  CUpti_Profiler_Host_Object* object = nullptr;
  if (const CUptiResult result = make(object); result != CUPTI_SUCCESS) return result;
  CUptiResult result = CUPTI_SUCCESS;
  for (int type = 0; type < CUPTI_METRIC_TYPE__COUNT && result == CUPTI_SUCCESS; ++type) {
    INJECT_PM_PARAMS(params, CUpti_Profiler_Host_GetBaseMetrics);
    params.pHostObject = object;
    params.metricType = static_cast<CUpti_MetricType>(type);
    result = api_.ProfilerHostGetBaseMetrics(&params);
    for (std::size_t i = 0; result == CUPTI_SUCCESS && i < params.numMetrics; ++i)
      names.emplace_back(params.ppMetricNames[i]);
  }
  release(object);
  return result;
}

CUptiResult MetricHost::configure(CUpti_Profiler_Host_Object* object, std::vector<const char*>& names,
                                  std::vector<std::uint8_t>& config) const {
  INJECT_PM_PARAMS(add, CUpti_Profiler_Host_ConfigAddMetrics);
  add.pHostObject = object;
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  if (const CUptiResult result = api_.ProfilerHostConfigAddMetrics(&add); result != CUPTI_SUCCESS)
    return result;
  INJECT_PM_PARAMS(size, CUpti_Profiler_Host_GetConfigImageSize);
  size.pHostObject = object;
  if (const CUptiResult result = api_.ProfilerHostGetConfigImageSize(&size); result != CUPTI_SUCCESS)
    return result;
  config.assign(size.configImageSize, 0);
  INJECT_PM_PARAMS(image, CUpti_Profiler_Host_GetConfigImage);
  image.pHostObject = object;
  image.configImageSize = config.size();
  image.pConfigImage = config.data();
  return api_.ProfilerHostGetConfigImage(&image);
}

// With a new object each time, because metrics that have been added to one can't be removed.
std::size_t MetricHost::passes(const std::vector<std::string>& names) {
  CUpti_Profiler_Host_Object* object = nullptr;
  result_of_passes_ = make(object);
  if (result_of_passes_ != CUPTI_SUCCESS) return 0;
  std::vector<const char*> list = pointers(names);
  std::vector<std::uint8_t> config;
  CUptiResult result = configure(object, list, config);
  INJECT_PM_PARAMS(params, CUpti_Profiler_Host_GetNumOfPasses);
  if (result == CUPTI_SUCCESS) {
    params.configImageSize = config.size();
    params.pConfigImage = config.data();
    result = api_.ProfilerHostGetNumOfPasses(&params);
  }
  release(object);
  result_of_passes_ = result;
  return result == CUPTI_SUCCESS ? params.numOfPasses : 0;
}

CUptiResult MetricHost::open(const std::vector<std::string>& names, std::vector<std::uint8_t>& config) {
  close();
  if (const CUptiResult result = make(object_); result != CUPTI_SUCCESS) return result;
  texts_ = names;
  names_ = pointers(texts_);
  return configure(object_, names_, config);
}

CUptiResult MetricHost::evaluate(std::span<const std::uint8_t> image, std::size_t sample,
                                 std::span<double> values) {
  if (values.size() != names_.size()) return CUPTI_ERROR_INVALID_PARAMETER;
  INJECT_PM_PARAMS(params, CUpti_Profiler_Host_EvaluateToGpuValues);
  params.pHostObject = object_;
  params.pCounterDataImage = image.data();
  params.counterDataImageSize = image.size();
  params.rangeIndex = sample;
  params.ppMetricNames = names_.data();
  params.numMetrics = names_.size();
  params.pMetricValues = values.data();
  return api_.ProfilerHostEvaluateToGpuValues(&params);
}

void MetricHost::close() noexcept {
  release(std::exchange(object_, nullptr));
}

ChipMetrics chip_metrics(MetricHost& host, std::vector<std::string> base_names) {
  return {std::move(base_names),
          [&host](const std::vector<std::string>& names) { return host.passes(names); }, nullptr};
}

}  // namespace inject
