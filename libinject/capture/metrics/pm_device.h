// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/capture/metrics/metric_host.h"
#include "libinject/capture/metrics/pm_api.h"

namespace inject {

/// CUPTI's PM sampling of one device, call by call, with what the vendor's functions need:
///   read_availability, enable, open, configure, make_image, start
///   → decode, image_state, times, evaluate, …, empty_image
///   → stop, disable
/// sampled_devices decides when to call them; sample_account decides which samples can be used.
class PmDevice {
 public:
  /// The buffer that the hardware writes to.
  static constexpr std::size_t kHardwareBuffer = std::size_t{32} << 20;

  PmDevice(const PmApi& api, std::uint32_t index, std::string chip);

  /// Null if CUPTI has no name for the device's chip.
  static CUptiResult chip_name(const PmApi& api, std::uint32_t index, const char*& name);

  std::uint32_t index() const { return index_; }
  const std::string& chip() const { return chip_; }
  MetricHost& host() { return host_; }
  bool enabled() const { return object_ != nullptr; }
  std::size_t image_bytes() const { return image_.size(); }

  /// Reads which of its chip's counters the board has, for the host side. CUPTI refuses it while the device
  /// is being sampled; sampling works without it.
  void read_availability();
  CUptiResult enable();
  /// The host side: open() prepares the configuration, configure() applies it to the device.
  CUptiResult open(const std::vector<std::string>& names);
  CUptiResult configure(Nanoseconds interval);
  /// The size of an image with room for `samples`.
  CUptiResult image_size(std::uint32_t samples, std::size_t& bytes);
  /// Only allocates; must be followed by empty_image().
  void make_image(std::size_t bytes) { image_.resize(bytes); }
  /// Takes some ten microseconds for each sample that the image can hold, however few it holds.
  CUptiResult empty_image();
  CUptiResult start();

  struct Decoded {
    CUptiResult result = CUPTI_SUCCESS;
    bool overflow = false;  ///< the hardware's buffer was full: no more samples arrive
    bool full = false;      ///< the image is full: there is more to decode
  };
  Decoded decode();

  struct ImageState {
    std::size_t room = 0;
    std::size_t populated = 0;
    std::size_t completed = 0;
  };
  CUptiResult image_state(ImageState& state);
  /// A sample's times, on CUPTI's clock; if the call fails, those that are known.
  CUptiResult times(std::size_t sample, Nanoseconds& start, Nanoseconds& end);
  /// The values of open()'s metrics in a sample.
  CUptiResult evaluate(std::size_t sample, std::span<double> values) {
    return host_.evaluate(image_, sample, values);
  }

  /// False if it can't be stopped.
  bool stop() noexcept;
  /// False if CUPTI refuses to switch the sampling off. Finalizing CUPTI with its sampling on ends the
  /// program.
  bool disable() noexcept;
  /// disable() without a call: CUPTI is gone, or must be left alone.
  void forget() noexcept;

 private:
  const PmApi& api_;
  std::uint32_t index_;
  std::string chip_;
  MetricHost host_;
  CUpti_PmSampling_Object* object_ = nullptr;
  std::vector<std::uint8_t> config_;
  std::vector<std::uint8_t> image_;
};

}  // namespace inject
