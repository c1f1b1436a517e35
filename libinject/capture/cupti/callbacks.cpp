// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/callbacks.h"

#include "libinject/base/mapping.h"
#include "libinject/capture/cupti/context_creation.h"
#include "libinject/capture/cupti/launch_observer.h"
#include "libinject/capture/cupti/launch_signs.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

constinit CallbackState callback_state;

namespace {

int status_of(const CUpti_CallbackData& data) noexcept {
  return data.functionReturnValue == nullptr ? 0 : *static_cast<const CUresult*>(data.functionReturnValue);
}

// Launches that may have no device record.
LaunchObserver::Work work_of(const DriverFunction& function, const void* parameters) noexcept {
  if (function.call == DriverCall::kGraphLaunch) {
    const void* graph =
        parameters == nullptr ? nullptr : static_cast<const cuGraphLaunch_params*>(parameters)->hGraph;
    std::uint16_t number = 0;
    if (const Core* core = Core::get_if_any(); core != nullptr) number = core->captured_graphs.number(graph);
    if (number == 0)
      number = static_cast<std::uint16_t>(hash_mix(reinterpret_cast<std::uint64_t>(graph) * kHashSeed) |
                                          CapturedGraphs::kNumbers);
    return {kCallGraph, number};
  }
  return {static_cast<std::uint8_t>(function.is_empty(parameters) ? kCallNoWork : 0), 0};
}

// A call whose other edge has not been seen, or belonged to another attachment, is not counted. `seen` is
// CUPTI's slot for the two edges of a call.
void count_profiler_call(bool enter, std::uint64_t& seen) noexcept {
  constexpr std::uint64_t kCounted = 1u << 16;
  const std::uint64_t counted = kCounted | current_generation.load(std::memory_order_acquire);
  if (enter) {
    seen = counted;
    callback_state.profiler_calls.fetch_add(1, std::memory_order_seq_cst);
  } else if (seen == counted) {
    callback_state.profiler_calls.fetch_sub(1, std::memory_order_release);
  }
}

// Calls that submit nothing, or nothing that CUPTI records.
void on_plain_call(CUpti_CallbackId cbid, const CUpti_CallbackData& data) noexcept {
  const bool enter = data.callbackSite == CUPTI_API_ENTER;
  if (cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart || cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop) {
    if (enter) count_profiler_call(enter, *data.correlationData);
    // One call is seen twice, nested, so we react to edges: opened on the way out, closed on the way in.
    if (!enter && cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart) callback_state.profiler.profiler_start();
    if (enter && cbid == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop) callback_state.profiler.profiler_stop();
    // Opening a window may wait for the session.
    if (!enter) count_profiler_call(enter, *data.correlationData);
  } else if (enter) {
    LaunchObserver::enter_plain(data.correlationData);
  } else {
    LaunchObserver::leave_plain(cbid, status_of(data), data.correlationData);
  }
}

void on_driver_call(CUpti_CallbackId cbid, const CUpti_CallbackData& data) noexcept {
  if (cbid >= CallbackState::kMaxFunctions) return;
  const DriverFunction& function = callback_state.functions[cbid];
  const DriverCall call = function.call;
  if (function.creates_context) {
    ContextHold::on_call(data.callbackSite == CUPTI_API_ENTER);
    if (!callback_state.all_calls.load(std::memory_order_relaxed)) return;
  }
  const void* parameters = data.functionParams;
  const bool unrecorded =
      (callback_state.unrecorded_calls.load(std::memory_order_relaxed) >> static_cast<unsigned>(call) & 1u) !=
      0;
  if (call == DriverCall::kOther || unrecorded || function.submits_nothing(parameters)) {
    on_plain_call(cbid, data);
    return;
  }
  if (!callback_state.saw_work.load(std::memory_order_relaxed))
    callback_state.saw_work.store(true, std::memory_order_relaxed);
  if (call == DriverCall::kGraphLaunch) callback_state.saw_graphs.store(true, std::memory_order_relaxed);
  if (data.callbackSite == CUPTI_API_ENTER) {
    if (iteration_watch.source.load(std::memory_order_relaxed) == SignSource::kCallbacks)
      emit_launch_sign(function, cbid, data);
    LaunchObserver::enter(call, data.correlationId, function.stream(parameters), data.correlationData);
  } else {
    const int status = status_of(data);
    // The arguments of a call that failed may be invalid memory.
    const bool submitted = status == 0 && *data.correlationData != 0;
    LaunchObserver::leave(submitted ? work_of(function, parameters) : LaunchObserver::Work{}, cbid,
                          data.correlationId, function.stream(parameters), status, data.correlationData);
  }
}

/// CUPTI's id of a graph's node, as in its kernel's records; 0 if there is none.
std::uint64_t node_id(CUgraphNode node) noexcept {
  std::uint64_t id = 0;
  auto* ask = callback_state.get_graph_node_id.load(std::memory_order_acquire);
  return ask != nullptr && node != nullptr && ask(node, &id) == CUPTI_SUCCESS ? id : 0;
}

void on_resource(CUpti_CallbackId cbid, const void* data) noexcept {
  if (cbid == CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED)
    callback_state.saw_graphs.store(true, std::memory_order_relaxed);
  if (cbid != CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED && cbid != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) return;
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  const auto* graph = static_cast<const CUpti_GraphData*>(resource.resourceDescriptor);
  const bool kernel = graph != nullptr && graph->nodeType == CU_GRAPH_NODE_TYPE_KERNEL;
  if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    LaunchObserver::graph_node_created();
    if (kernel && LaunchObserver::captures_kernel()) LaunchObserver::kernel_captured(node_id(graph->node));
  } else if (kernel) {
    LaunchObserver::graph_node_cloned(node_id(graph->node), node_id(graph->originalNode));
  }
}

}  // namespace

void CUPTIAPI on_cupti_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
      on_driver_call(cbid, *static_cast<const CUpti_CallbackData*>(data));
      break;
    case CUPTI_CB_DOMAIN_RESOURCE:
      on_resource(cbid, data);
      break;
    case CUPTI_CB_DOMAIN_STATE:
      if (cbid == CUPTI_CBID_STATE_FATAL_ERROR) {
        callback_state.failures.fetch_add(1, std::memory_order_release);
        callback_state.failed.store(true, std::memory_order_release);
      }
      break;
    default:
      break;
  }
}

}  // namespace inject
