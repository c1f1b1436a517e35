// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What CUPTI is attached for, level by level, without a session.
#include "libinject/capture/cupti/tracer.h"

#include <map>
#include <string>

#include "libinject/record/control.h"
#include "tests/unit/catch.h"
#include "tests/unit/fake_cupti.h"
#include "tests/unit/session_program.h"

using namespace inject;

namespace {

/// Objects of which a process has only one, so each test runs in a process of its own.
struct Attachment {
  Attachment() { FakeCupti::get().present = true; }

  FakeCupti& cupti = FakeCupti::get();
  ActivityBuffers buffers{std::size_t{16} << 20};
  Tracer tracer{buffers, {[]() noexcept {}, []() noexcept {}}};
  std::string error;

  bool raise(TracerLevel level) { return tracer.raise(level, false, error); }
};

void in_child(void (*test)(Attachment&)) {
  check_end(play(std::map<std::string, std::string>{}, [test] {
    // Lives until the process exits, as CUPTI's buffers do.
    static auto* const attachment = new Attachment;
    test(*attachment);
  }));
}

}  // namespace

TEST_CASE("The tracer goes up to a level, and down by what is no longer wanted", "[session]") {
  in_child([](Attachment& a) {
    EXPECT(a.raise(TracerLevel::kProfilerCalls));
    EXPECT(a.tracer.level() == TracerLevel::kProfilerCalls);
    EXPECT(!a.cupti.records_kernels());
    EXPECT(a.raise(TracerLevel::kActivity));
    EXPECT(a.cupti.count("Subscribe") == 1);
    EXPECT(a.cupti.records_kernels());
    EXPECT(collecting_activity);
    EXPECT(a.raise(TracerLevel::kLaunches));  // levels never decrease
    EXPECT(a.tracer.level() == TracerLevel::kActivity);

    a.tracer.stop_activity();
    EXPECT(!a.cupti.records_kernels());
    EXPECT(!a.tracer.activity_on());
    a.tracer.resume_activity();
    EXPECT(a.cupti.records_kernels());
    EXPECT(a.cupti.count("ActivityRegisterCallbacks") == 1);

    a.tracer.keep_launches();
    EXPECT(a.tracer.level() == TracerLevel::kLaunches);
    EXPECT(!collecting_activity);
    EXPECT(a.cupti.subscribed());
    a.tracer.detach(true);
    EXPECT(a.tracer.level() == TracerLevel::kDetached);
    EXPECT(a.tracer.finalized());
    EXPECT(!a.cupti.subscribed());
  });
}

TEST_CASE("CUPTI is not finalized after graphs or a fatal error", "[session]") {
  in_child([](Attachment& a) {
    EXPECT(a.raise(TracerLevel::kActivity));
    a.cupti.launch_graph();
    EXPECT(Tracer::saw_graphs());
    a.tracer.detach(true);
    EXPECT(!a.tracer.finalized());
    EXPECT(a.cupti.count("Finalize") == 0);
    EXPECT(a.cupti.count("Unsubscribe") == 1);
  });
  in_child([](Attachment& a) {
    EXPECT(a.raise(TracerLevel::kActivity));
    a.cupti.fail();
    EXPECT(Tracer::failed());
    EXPECT(Tracer::failures() == 1);
    a.tracer.detach(true);
    EXPECT(a.cupti.count("Finalize") == 0);
    EXPECT(a.raise(TracerLevel::kLaunches));
    EXPECT(!Tracer::failed());
    EXPECT(Tracer::failures() == 1);
  });
}

TEST_CASE("What CUPTI refuses leaves the tracer detached, with the reason", "[session]") {
  in_child([](Attachment& a) {
    EXPECT(a.cupti.other_subscribes() == CUPTI_SUCCESS);
    EXPECT(!a.raise(TracerLevel::kActivity));
    EXPECT(a.error.starts_with("another profiler is attached to this process: another tool (error "));
    EXPECT(a.tracer.level() == TracerLevel::kDetached);
    a.cupti.other_unsubscribes();
    EXPECT(a.raise(TracerLevel::kActivity));
  });
  in_child([](Attachment& a) {
    a.cupti.answer("ActivityEnable", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    EXPECT(!a.raise(TracerLevel::kActivity));
    EXPECT(a.error == "kernel activity can't be enabled: error 35");
    EXPECT(!a.cupti.subscribed());
    EXPECT(!collecting_activity);
  });
}

TEST_CASE("CUPTI is not finalized under a client that has come since", "[session]") {
  in_child([](Attachment& a) {
    EXPECT(a.raise(TracerLevel::kActivity));
    a.cupti.answer("Subscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    a.tracer.detach(true);
    EXPECT(a.cupti.count("Finalize") == 0);
    EXPECT(!a.cupti.subscribed());
  });
}

TEST_CASE("A subscription that somebody has ended is made anew", "[session]") {
  in_child([](Attachment& a) {
    EXPECT(a.raise(TracerLevel::kLaunches));
    const auto generation = current_generation.load();
    a.cupti.answer("ActivityRegisterCallbacks", CUPTI_ERROR_NOT_INITIALIZED);
    EXPECT(a.raise(TracerLevel::kActivity));
    EXPECT(a.error.empty());
    EXPECT(a.cupti.attachments() == 2);
    EXPECT(current_generation == generation + 1);
    EXPECT(a.tracer.holds());
    a.cupti.finalize();
    EXPECT(!a.tracer.holds());
    a.tracer.forget();
    EXPECT(a.tracer.level() == TracerLevel::kDetached);
  });
}
