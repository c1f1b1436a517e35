// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/pm_device.h"

#include <algorithm>
#include <utility>

#include "libinject/base/log.h"
#include "libinject/capture/driver.h"

namespace inject {

namespace {

// Chips without a timer for sampling: the system clock's cycles are used instead, whose frequency may vary.
bool lacks_timer(const std::string& chip) {
  return chip.rfind("TU", 0) == 0 || chip == "GA100";
}

std::uint64_t clock_cycles(Nanoseconds interval, std::uint32_t device) {
  constexpr std::uint64_t kUsualKhz = 1'500'000;
  std::uint64_t khz = kUsualKhz;
  for (const DeviceInfo& info : devices()) {
    if (info.id == device && info.clock_khz > 0) khz = static_cast<std::uint64_t>(info.clock_khz);
  }
  return std::max<std::uint64_t>(interval * khz / 1'000'000, 1);
}

}  // namespace

PmDevice::PmDevice(const PmApi& api, std::uint32_t index, std::string chip)
    : api_(api), index_(index), chip_(std::move(chip)), host_(api, chip_) {}

CUptiResult PmDevice::chip_name(const PmApi& api, std::uint32_t index, const char*& name) {
  INJECT_PM_PARAMS(params, CUpti_Device_GetChipName);
  params.deviceIndex = index;
  const CUptiResult result = api.DeviceGetChipName(&params);
  name = result == CUPTI_SUCCESS ? params.pChipName : nullptr;
  return result;
}

void PmDevice::read_availability() {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  if (api_.PmSamplingGetCounterAvailability == nullptr) return;
  INJECT_PM_PARAMS(params, CUpti_PmSampling_GetCounterAvailability);
  params.deviceIndex = index_;
  if (api_.PmSamplingGetCounterAvailability(&params) != CUPTI_SUCCESS ||
      params.counterAvailabilityImageSize == 0 || params.counterAvailabilityImageSize > kMaxBytes) {
    return;
  }
  std::vector<std::uint8_t> available(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = available.data();
  if (api_.PmSamplingGetCounterAvailability(&params) == CUPTI_SUCCESS)
    host_.availability(std::move(available));
}

CUptiResult PmDevice::enable() {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_Enable);
  params.deviceIndex = index_;
  const CUptiResult result = api_.PmSamplingEnable(&params);
  if (result == CUPTI_SUCCESS) object_ = params.pPmSamplingObject;
  return result;
}

CUptiResult PmDevice::open(const std::vector<std::string>& names) {
  return host_.open(names, config_);
}

CUptiResult PmDevice::configure(Nanoseconds interval) {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_SetConfig);
  params.pPmSamplingObject = object_;
  params.configSize = config_.size();
  params.pConfig = config_.data();
  params.hardwareBufferSize = kHardwareBuffer;
  // The other mode is not available on all chips, and keeps the newest samples, so that a gap would be in the
  // middle of a window instead of at its end.
  params.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  if (!lacks_timer(chip_)) {
    params.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    params.samplingInterval = interval;
    const CUptiResult result = api_.PmSamplingSetConfig(&params);
    if (result != CUPTI_ERROR_NOT_SUPPORTED) return result;
    Log::debug(chip_ + " has no timer for sampling: its system clock's cycles are counted");
  }
  params.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL;
  params.samplingInterval = clock_cycles(interval, index_);
  return api_.PmSamplingSetConfig(&params);
}

CUptiResult PmDevice::image_size(std::uint32_t samples, std::size_t& bytes) {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_GetCounterDataSize);
  params.pPmSamplingObject = object_;
  params.pMetricNames = host_.names().data();
  params.numMetrics = host_.names().size();
  params.maxSamples = samples;
  const CUptiResult result = api_.PmSamplingGetCounterDataSize(&params);
  bytes = params.counterDataSize;
  return result;
}

CUptiResult PmDevice::empty_image() {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_CounterDataImage_Initialize);
  params.pPmSamplingObject = object_;
  params.counterDataSize = image_.size();
  params.pCounterData = image_.data();
  return api_.PmSamplingCounterDataImageInitialize(&params);
}

CUptiResult PmDevice::start() {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_Start);
  params.pPmSamplingObject = object_;
  return api_.PmSamplingStart(&params);
}

PmDevice::Decoded PmDevice::decode() {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_DecodeData);
  params.pPmSamplingObject = object_;
  params.pCounterDataImage = image_.data();
  params.counterDataImageSize = image_.size();
  const CUptiResult result = api_.PmSamplingDecodeData(&params);
  return {result, result == CUPTI_ERROR_OUT_OF_MEMORY || params.overflow != 0,
          params.decodeStopReason == CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL};
}

CUptiResult PmDevice::image_state(ImageState& state) {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_GetCounterDataInfo);
  params.pCounterDataImage = image_.data();
  params.counterDataImageSize = image_.size();
  const CUptiResult result = api_.PmSamplingGetCounterDataInfo(&params);
  state = {params.numTotalSamples, params.numPopulatedSamples, params.numCompletedSamples};
  return result;
}

CUptiResult PmDevice::times(std::size_t sample, Nanoseconds& start, Nanoseconds& end) {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_CounterData_GetSampleInfo);
  params.pPmSamplingObject = object_;
  params.pCounterDataImage = image_.data();
  params.counterDataImageSize = image_.size();
  params.sampleIndex = sample;
  const CUptiResult result = api_.PmSamplingCounterDataGetSampleInfo(&params);
  start = params.startTimestamp;
  end = params.endTimestamp;
  return result;
}

// Twice, as in disable(): sampling that goes on is worse than a superfluous call.
bool PmDevice::stop() noexcept {
  INJECT_PM_PARAMS(params, CUpti_PmSampling_Stop);
  params.pPmSamplingObject = object_;
  return api_.PmSamplingStop(&params) == CUPTI_SUCCESS || api_.PmSamplingStop(&params) == CUPTI_SUCCESS;
}

bool PmDevice::disable() noexcept {
  host_.close();
  if (object_ == nullptr) return true;
  INJECT_PM_PARAMS(params, CUpti_PmSampling_Disable);
  params.pPmSamplingObject = std::exchange(object_, nullptr);
  return api_.PmSamplingDisable(&params) == CUPTI_SUCCESS || api_.PmSamplingDisable(&params) == CUPTI_SUCCESS;
}

void PmDevice::forget() noexcept {
  host_.forget();
  object_ = nullptr;
}

}  // namespace inject
