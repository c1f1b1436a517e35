// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a program may hand to NVTX: any text, attributes that claim any size, handles that were never given,
// ranges ended twice or by nobody.
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cwchar>
#include <string>
#include <vector>

#include "libinject/capture/nvtx/injection.h"
#include "libinject/record/core.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;

namespace {

template <std::size_t N>
struct Module {
  std::array<NvtxFunctionPointer, N> functions{};
  std::array<NvtxFunctionPointer*, N + 1> table{};

  Module() {
    for (std::size_t i = 0; i < N; ++i) table[i] = &functions[i];
  }
  template <typename Function>
  Function get(std::size_t id) const {
    return reinterpret_cast<Function>(functions[id]);
  }
};
Module<NVTX_CBID_CORE_SIZE> core;
Module<NVTX_CBID_CORE2_SIZE> core2;

int module_table(NvtxCallbackModule module, NvtxFunctionTable* out, unsigned int* size) {
  if (module == NVTX_CB_MODULE_CORE) {
    *out = core.table.data();
    *size = NVTX_CBID_CORE_SIZE;
  } else if (module == NVTX_CB_MODULE_CORE2) {
    *out = core2.table.data();
    *size = NVTX_CBID_CORE2_SIZE;
  } else {
    return 0;
  }
  return 1;
}

const void* export_table(std::uint32_t id) {
  static const NvtxExportTableCallbacks callbacks{sizeof callbacks, &module_table};
  return id == NVTX_ETID_CALLBACKS ? &callbacks : nullptr;
}

bool attach() {
  return nvtx_attach(&export_table) == 1;
}

struct Text {
  std::string narrow;
  std::wstring wide;

  explicit Text(fuzz::Input& input) : narrow(input.until('\0')) {
    for (std::size_t i = 0; i + 1 < narrow.size(); i += 2) {
      const std::uint32_t low = static_cast<unsigned char>(narrow[i]);
      const std::uint32_t high = static_cast<unsigned char>(narrow[i + 1]);
      wide += static_cast<wchar_t>(low * 0x01010101u ^ high << 8);
    }
  }
};

nvtxEventAttributes_t attributes_of(fuzz::Input& input, const Text& text) {
  nvtxEventAttributes_t attributes{};
  attributes.version = input.number<std::uint16_t>();
  attributes.size = input.flag() ? NVTX_EVENT_ATTRIB_STRUCT_SIZE : input.number<std::uint16_t>();
  attributes.payloadType = input.number<std::int32_t>();
  attributes.payload.ullValue = input.number<std::uint64_t>();
  switch (input.below(4)) {
    case 0:
      attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
      attributes.message.ascii = input.flag() ? text.narrow.c_str() : nullptr;
      break;
    case 1:
      attributes.messageType = NVTX_MESSAGE_TYPE_UNICODE;
      attributes.message.unicode = input.flag() ? text.wide.c_str() : nullptr;
      break;
    case 2:
      attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
      attributes.message.registered = reinterpret_cast<nvtxStringHandle_t>(input.number<std::uintptr_t>());
      break;
    default:
      // No text is behind a type that we do not know.
      attributes.messageType = 4 + static_cast<std::int32_t>(input.number<std::uint8_t>());
      attributes.message.ascii = reinterpret_cast<const char*>(input.number<std::uintptr_t>());
  }
  return attributes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool attached = attach();
  fuzz::require(attached, "the client's tables are filled");
  fuzz::Input input(data, size);
  std::vector<nvtxRangeId_t> open;
  std::vector<nvtxDomainHandle_t> domains{nullptr};
  std::vector<nvtxDomainHandle_t> pushed{nullptr};
  int depth = 0;  // in the default domain
  const auto check_depth = [&](int told) {
    // A path that no longer fits into the tree, which all inputs share, is its parent.
    fuzz::require(told == depth++ || Core::get()->ranges.overflows() != 0, "a push tells its depth");
  };

  const auto domain = [&] {
    return input.flag() ? domains[input.below(static_cast<std::uint32_t>(domains.size()))]
                        : reinterpret_cast<nvtxDomainHandle_t>(input.number<std::uintptr_t>());
  };
  for (int steps = 0; !input.empty() && steps < 200; ++steps) {
    const std::uint8_t what = input.number<std::uint8_t>() % 10;
    const Text text(input);
    const nvtxEventAttributes_t attributes = attributes_of(input, text);
    switch (what) {
      case 0:
        check_depth(core.get<int (*)(const char*)>(NVTX_CBID_CORE_RangePushA)(text.narrow.c_str()));
        break;
      case 1:
        check_depth(core.get<int (*)(const wchar_t*)>(NVTX_CBID_CORE_RangePushW)(text.wide.c_str()));
        break;
      case 2:
        check_depth(core.get<int (*)(const nvtxEventAttributes_t*)>(NVTX_CBID_CORE_RangePushEx)(&attributes));
        break;
      case 3:
        core.get<int (*)()>(NVTX_CBID_CORE_RangePop)();
        if (depth != 0) --depth;
        break;
      case 4:
        open.push_back(core.get<nvtxRangeId_t (*)(const nvtxEventAttributes_t*)>(NVTX_CBID_CORE_RangeStartEx)(
            &attributes));
        break;
      case 5:
        core.get<void (*)(nvtxRangeId_t)>(NVTX_CBID_CORE_RangeEnd)(
            input.flag() && !open.empty() ? open[input.below(static_cast<std::uint32_t>(open.size()))]
                                          : input.number<nvtxRangeId_t>());
        break;
      case 6:
        domains.push_back(core2.get<nvtxDomainHandle_t (*)(const char*)>(NVTX_CBID_CORE2_DomainCreateA)(
            input.flag() ? text.narrow.c_str() : nullptr));
        break;
      case 7:
        pushed.push_back(domain());
        core2.get<int (*)(nvtxDomainHandle_t, const nvtxEventAttributes_t*)>(
            NVTX_CBID_CORE2_DomainRangePushEx)(pushed.back(), input.flag() ? &attributes : nullptr);
        break;
      case 8:
        core2.get<int (*)(nvtxDomainHandle_t)>(NVTX_CBID_CORE2_DomainRangePop)(domain());
        break;
      default:
        core2.get<nvtxStringHandle_t (*)(nvtxDomainHandle_t, const wchar_t*)>(
            NVTX_CBID_CORE2_DomainRegisterStringW)(domain(), text.wide.c_str());
    }
    if (what >= 7 && what <= 8) depth = -1;  // the domain may have been the default one
    if (depth < 0) break;
  }
  // As the next input expects it.
  for (const nvtxRangeId_t id : open) core.get<void (*)(nvtxRangeId_t)>(NVTX_CBID_CORE_RangeEnd)(id);
  for (const nvtxDomainHandle_t used : pushed) {
    while (core2.get<int (*)(nvtxDomainHandle_t)>(NVTX_CBID_CORE2_DomainRangePop)(used) >= 0) {
    }
  }
  return 0;
}
