// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/session_parts.h"

#include "libinject/base/clock.h"

namespace inject {

SessionParts::SessionParts(Core& core_state, const Callbacks& called)
    : core(core_state),
      options(core.configuration.options),
      base(now()),
      base_utc(realtime()),
      trigger_text(to_string(options.window)),
      callbacks(called),
      cupti(options, state, once, profiled, callbacks.profiler_calls, callbacks.register_exit_handler),
      devices(log),
      trigger(make_trigger(options.window)),
      worker(*this),
      windows(*this),
      launches(*this),
      iterations(*this),
      arbiter(*this),
      collector(*this),
      pipeline(options,
               {core, log, profiled, cupti.buffers(), cupti.tracer(), cupti.sampler(),
                [this] { launches.note(); }, [this](RunInfo& run) { collector.complete_run_info(run); },
                [this] { return iterations.source_name(); }},
               {base, base_utc}) {}

}  // namespace inject
