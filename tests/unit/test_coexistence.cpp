// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Other users of CUPTI, and when libinject may use it.
#include <dlfcn.h>

#include <map>
#include <string>
#include <vector>

#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/cupti/holder.h"
#include "libinject/capture/metrics/counter_holder.h"
#include "libinject/pipeline/window_log.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

int registrations = 0;
int clocks = 0;

CUptiResult CUPTIAPI register_buffers(CUpti_BuffersCallbackRequestFunc,
                                      CUpti_BuffersCallbackCompleteFunc completed) {
  if (completed != nullptr) ++registrations;
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI register_clock(CUpti_TimestampCallbackFunc clock) {
  if (clock != nullptr) ++clocks;
  return CUPTI_SUCCESS;
}
void CUPTIAPI request(std::uint8_t**, std::size_t*, std::size_t*) {}
void CUPTIAPI complete(CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) {}
std::uint64_t CUPTIAPI clock_of_its_own() {
  return 1;
}

void trace(ForeignClient& client) {
  client.registered(&register_buffers, &request, &complete);
  client.enabled(CUPTI_ACTIVITY_KIND_MEMCPY);
  client.enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
}

std::string holder(const std::map<std::string, std::string>& variables,
                   const std::vector<std::string>& libraries = {}) {
  return likely_holder(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      libraries, "/opt/inject/libinject.so");
}

std::string others(const char* injection, const std::vector<std::string>& copies) {
  return others_in_place(
      [&](const char* name) { return std::string(name) == "CUDA_INJECTION64_PATH" ? injection : nullptr; },
      copies);
}

}  // namespace

TEST_CASE("A client that nobody knows of stands in nobody's way", "[coexistence]") {
  const ForeignClient client;
  CHECK(client.lets_attach());
  CHECK_FALSE(client.minds_finalize());
  CHECK(client.name().empty());
}

TEST_CASE("While a client's call is under way nobody attaches", "[coexistence]") {
  ForeignClient client;
  client.arrive();
  client.arrive();
  CHECK_FALSE(client.lets_attach());
  client.arrived();
  CHECK_FALSE(client.lets_attach());
  client.arrived();
  CHECK(client.lets_attach());
}

TEST_CASE("Of a subscriber CUPTI decides; but it is not finalized", "[coexistence]") {
  ForeignClient client;
  client.subscribed();
  CHECK(client.has_subscriber());
  CHECK(client.lets_attach());
  CHECK(client.minds_finalize());
  client.unsubscribed();
  CHECK_FALSE(client.has_subscriber());
  CHECK_FALSE(client.minds_finalize());
  client.unsubscribed();  // a subscription that was not seen
  client.subscribed();
  CHECK(client.has_subscriber());
}

TEST_CASE("A client's buffers are its own until all is off and flushed", "[coexistence]") {
  ForeignClient client;
  SECTION("registered, and nothing more") {
    client.registered(&register_buffers, &request, &complete);
    CHECK_FALSE(client.lets_attach());
    client.finalized();
    CHECK(client.lets_attach());
    CHECK_FALSE(client.has_registered());
  }
  SECTION("a trace") {
    trace(client);
    client.flushed();
    CHECK_FALSE(client.lets_attach());
    client.disabled(CUPTI_ACTIVITY_KIND_MEMCPY);
    client.flushed();
    CHECK_FALSE(client.lets_attach());
    client.disabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    CHECK_FALSE(client.lets_attach());
    CHECK(client.minds_finalize());
    client.flushed();
    CHECK(client.lets_attach());
    CHECK_FALSE(client.minds_finalize());
    CHECK(client.has_registered());
    client.enabled(CUPTI_ACTIVITY_KIND_MEMSET);
    CHECK_FALSE(client.lets_attach());
    // The kind of the other one was disabled before.
    client.disabled(CUPTI_ACTIVITY_KIND_MEMCPY);
    client.flushed();
    CHECK_FALSE(client.lets_attach());
  }
  SECTION("activity without buffers comes to nobody") {
    client.enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    CHECK(client.lets_attach());
    client.registered(&register_buffers, &request, &complete);
    client.flushed();
    CHECK_FALSE(client.lets_attach());
  }
  SECTION("every kind there can be") {
    client.registered(&register_buffers, &request, &complete);
    for (int kind = 1; kind < CUPTI_ACTIVITY_KIND_COUNT; ++kind) {
      client.enabled(static_cast<CUpti_ActivityKind>(kind));
      client.flushed();
      CHECK_FALSE(client.lets_attach());
      client.disabled(static_cast<CUpti_ActivityKind>(kind));
      client.flushed();
      CHECK(client.lets_attach());
    }
    client.enabled(CUPTI_ACTIVITY_KIND_FORCE_INT);  // not a kind, and has no bit in the table
  }
}

TEST_CASE("What a client had registered is put back once it has been displaced", "[coexistence]") {
  ForeignClient client;
  registrations = clocks = 0;
  client.restore();
  trace(client);
  client.registered_clock(&register_clock, &clock_of_its_own);
  client.restore();
  CHECK((registrations == 0 && clocks == 0));
  client.displace();
  client.restore();
  client.restore();
  CHECK((registrations == 1 && clocks == 1));
  // It has registered again, or finalized: there is nothing to restore.
  client.displace();
  client.registered(&register_buffers, &request, &complete);
  client.restore();
  client.displace();
  client.finalized();
  client.restore();
  CHECK((registrations == 1 && clocks == 1));
}

TEST_CASE("CUPTI's profiler minds cuptiFinalize as well", "[coexistence]") {
  ForeignClient client;
  client.profiler(true);
  CHECK(client.minds_finalize());
  CHECK(client.lets_attach());
  client.profiler(false);
  CHECK_FALSE(client.minds_finalize());
}

TEST_CASE("A client's name, as long as there is room", "[coexistence]") {
  ForeignClient client;
  client.note_caller("Proton (libproton.so)");
  CHECK(client.name() == "Proton (libproton.so)");
  client.note_caller(std::string(1000, 'x'));
  CHECK(client.name() == std::string(127, 'x'));
  client.note_caller("");
  CHECK(client.name().empty());
}

TEST_CASE("Tools are known by their libraries", "[coexistence]") {
  CHECK(tool_of_library("/opt/nsys/target-linux-x64/libToolsInjection64.so") == "Nsight Systems");
  CHECK(tool_of_library("libcuda-injection.so") == "Nsight Compute");
  CHECK(tool_of_library("/x/libToolsInjection64.so/libmine.so").empty());
  CHECK(tool_of_library("/x/mylibtorch_cpu.so").empty());
  CHECK(tool_of_library("").empty());
  CHECK(describe_library("/usr/lib/libtorch_cpu.so") == "torch.profiler (libtorch_cpu.so)");
  CHECK(describe_library("/usr/lib/libmine.so.3") == "libmine.so.3");
  CHECK(describe_library("").empty());
}

TEST_CASE("The likely holder, by environment and by loaded libraries", "[coexistence]") {
  CHECK(holder({}).empty());
  CHECK(holder({{"CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so"}}) ==
        "Nsight Systems (CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so)");
  CHECK(holder({{"CUDA_INJECTION64_PATH", "/opt/mine.so"}}) == "CUDA_INJECTION64_PATH=/opt/mine.so");
  CHECK(holder({{"NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so"}}) ==
        "Nsight Systems (NVTX_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so)");
  CHECK(holder({{"CUDA_INJECTION64_PATH", "/opt/mine.so"}, {"NSYS_PROFILING_SESSION_ID", "1"}}) ==
        "CUDA_INJECTION64_PATH=/opt/mine.so");
  SECTION("not we ourselves, nor another copy of us, nor who is there for NVTX alone") {
    CHECK(holder({{"CUDA_INJECTION64_PATH", "/opt/inject/libinject.so"}}).empty());
    CHECK(holder({{"CUDA_INJECTION64_PATH", "/home/me/libinject.so"}}).empty());
    CHECK(holder({{"CUDA_INJECTION64_PATH", ""}}).empty());
    CHECK(holder({{"NVTX_INJECTION64_PATH", "/opt/ranges.so"}}).empty());
  }
  CHECK(holder({{"NSYS_PROFILING_SESSION_ID", "1"}}) == "Nsight Systems (NSYS_PROFILING_SESSION_ID is set)");
  CHECK(holder({}, {"/usr/lib/libc.so.6", "/opt/libsanitizer-collection.so"}) ==
        "compute-sanitizer (libsanitizer-collection.so)");
  // A framework that could profile, but must not.
  CHECK(holder({}, {"/usr/lib/libtorch_cpu.so"}).empty());
}

TEST_CASE("A process is told of others in its place", "[coexistence]") {
  CHECK(others(nullptr, {"/a/libinject.so"}).empty());
  CHECK(others("", {"/a/libinject.so"}).empty());
  CHECK(others("/a/libinject.so", {"/a/libinject.so"}).empty());
  CHECK(others("/a/libinject.so", {"/a/libinject.so", "/b/libinject.so"}) ==
        "libinject is loaded more than once: /a/libinject.so is active, /b/libinject.so does nothing");
  CHECK(others("/x/tool.so", {"/a/libinject.so"}).find("CUDA_INJECTION64_PATH is left to /x/tool.so:") == 0);
  CHECK(others("/x/libcuda-injection.so", {"/a/libinject.so"})
            .find("is left to Nsight Compute, /x/libcuda-injection.so:") != std::string::npos);
  CHECK(others("/x/tool.so", {}).empty());
}

TEST_CASE("Who is likely to use the counters, and what helps", "[coexistence]") {
  CHECK(counter_holder("Nsight Systems (NSYS_PROFILING_SESSION_ID is set)", {"nv-hostengine"}) ==
        ", likely Nsight Systems (NSYS_PROFILING_SESSION_ID is set)");
  CHECK(counter_holder("", {"bash", "nv-hostengine"})
            .find(", likely DCGM (nv-hostengine runs here): `dcgmi ") == 0);
  CHECK(counter_holder("", {"ncu"}).find(", likely Nsight Compute") == 0);
  for (const std::vector<std::string>& nobody : {std::vector<std::string>{}, {"bash", "ncu-ui", "my-nsys"}}) {
    const std::string text = counter_holder("", nobody);
    CHECK(text.find(": Nsight Systems or Compute, ") == 0);
    CHECK(text.find("`dcgmi profile --pause`") != std::string::npos);
  }
}

TEST_CASE("The object that an address lies in", "[coexistence]") {
  Dl_info info;
  REQUIRE(dladdr(dlsym(RTLD_DEFAULT, "getenv"), &info) != 0);
  CHECK(object_containing(dlsym(RTLD_DEFAULT, "getenv")) == info.dli_fname);
  int on_the_stack = 0;
  CHECK(object_containing(&on_the_stack).empty());
}

TEST_CASE("A window notes who ended it, and why it has no device activity", "[coexistence]") {
  WindowLog log;
  const std::uint32_t first = log.open("api", 10);
  log.note_ended_by(first, "a tool subscribes to CUPTI");
  log.end(first, 20);
  const std::uint32_t second = log.open("api", 30);
  log.note_untraced(second, "another profiler is attached");
  log.note_ended_by(77, "nobody");
  log.note_untraced(0, "nothing");
  const std::vector<WindowInfo> windows = log.copy();
  CHECK((windows[0].ended_by == "a tool subscribes to CUPTI" && windows[0].untraced.empty()));
  CHECK((windows[1].ended_by.empty() && windows[1].untraced == "another profiler is attached"));
}
