// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Control of the simulated CUDA from inside a process that runs on it (libcudasim.so). Every setting can be
// given from outside as well, by environment variables read when the library is first used:
//
//   CUDASIM_DEVICES=N          number of devices (2)
//   CUDASIM_KERNEL_NS=N        duration of a kernel (10000)
//   CUDASIM_KERNELS=a=N,b=N    durations of the kernels whose (mangled) name contains a, b; the first match
//   counts CUDASIM_LAUNCH_NS=N        from the launch call to the kernel's earliest start (2000)
//   CUDASIM_RATES=h2d=N,d2h=N,d2d=N,p2p=N,memset=N   bytes per microsecond (10000, 10000, 1000000, 100000,
//   1000000)
//   CUDASIM_POWER=NAME=N,...   NVML tells of power, energy and clocks, which it does not otherwise: step_us
//   (the energy counter moves so often, 20000), idle_mw and busy_mw (without and with a kernel, 100000 and
//   500000), limit_mw (700000), sm_mhz (1755), max_sm_mhz (1980), memory_mhz (2619), celsius (45),
//   energy_cost_us (processor time of a call that reads the counter, 0)
//   CUDASIM_FAULTS=name[=value],...                  see cudasim_set_fault CUDASIM_CONFIG=FILE lines
//   NAME=VALUE of the variables above; the environment wins CUDASIM_REPORT=FILE        at exit: what ran, see
//   cudasim_write_report; %p is the process id
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Kernels whose name contains `name_part` take `nanoseconds` from now on. The latest setting wins.
void cudasim_set_kernel_duration(const char* name_part, uint64_t nanoseconds);

/// Switches a fault on (value may be "" or NULL) or, with `value` == "off", off. Returns 0, or -1 for an
/// unknown name.
///   late=MS                   activity records become complete MS milliseconds after the work itself
///   drop=N                    the next N activity records are dropped and counted as such
///   repeat=N                  the next N activity records are delivered twice
///   zero_time=N               the next N activity records have zero timestamps
///   overwritten_end=N         the records of the next N kernels of CUDA graphs are read once their nodes
///   have run again, and have the end of that out_of_order              the records of each buffer are
///   delivered last first finalize_keeps_nothing    cuptiFinalize leaves no device memory behind
///   no_attach_wait            enabling kernel activity does not wait for the kernels that run at that time
///   attach_ms=MS              cuptiSubscribe takes that long
///   detach_ms=MS              cuptiUnsubscribe takes that long
///   enable_ms=MS              enabling kernel activity takes that long
///   finalize_ms=MS            cuptiFinalize takes that long
///   init_ms=MS                the first cuInit takes that long, once the injected library has been called
///   nvml_ms=MS                nvmlInit holds its lock, which is cuInit's, that long, …
///   nvml_wait_ms=MS           … and takes it that long after it has been called
///   profiler_stop_ms=MS       CUPTI takes that long over cuProfilerStop, before and after the call itself
///   context_ms=MS             creating a device's primary context takes that long
///   subscriber_taken[=NAME]   another tool holds the subscriber slot, under that name
///   fatal_error               at the next record CUPTI reports a fatal error (state domain) and is finalized
///   cupti_version=V           cuptiGetVersion reports V
///   pm_enable_ms=MS           enabling the sampling of hardware counters takes that long
///   pm_decode_ms=MS           decoding them takes that long
///   pm_load_ms=MS             loading what knows the metrics takes that long, inside the loader
///   pm_buffer=N               the hardware's buffer holds N samples, whatever is asked for
///   pm_overflow_flag          once that has overflowed, decoding succeeds and only sets the flag
///   pm_overflow_silent        once that is full, what comes until it is decoded is lost, and nothing says so
///   pm_wall_clock             samples are on CLOCK_REALTIME, whatever clock the records have
///   pm_contrary=N             of the next N samples the SMs' activity is counted a hundred times too low
///   pm_retimed=N              by each of the next N decodes what the image holds becomes 1,100 ns later
///   pm_no_timer               there is no timer for sampling, only the system clock's cycles
///   pm_no_pcie                the board's counters of PCIe can't be used; its availability image says so
///   pm_silent_pcie            … are said to be there, and tell nothing: no sample with them is ever complete
///   pm_unsupported=WHY        sampling is not supported: architecture, sli, vgpu, vgpu_disabled, wsl
///   energy_reset              NVML's energy counter begins anew
///   clock_reasons=BITS        NVML's reasons for which clocks are held down
///   sm_clock=MHZ              the SM clock
///   cupti_fail=FUNCTION:CODE[:FROM[:COUNT]]   that CUPTI function returns CODE: from its FROMth call on (1),
///   COUNT times api_fail=FUNCTION:CODE[:FROM[:COUNT]]     the same for any other function of the simulation
///   cupti_hang=FUNCTION       that CUPTI function never returns
///   hang=NAME_PART            kernels so named never finish
///   wait_for=WAITER/SETTER    a kernel named like WAITER ends only once one named like SETTER has started
int cudasim_set_fault(const char* name, const char* value);

/// Calls of a function so far: "cudaMalloc" over all libraries, or "libcudart.so.12!cudaMalloc". Driver
/// functions that the simulated runtime calls internally count as "libcuda.so.1!...".
uint64_t cudasim_call_count(const char* function);

/// Device work submitted so far whose kind is `kind` ("kernel", "memcpy", "memcpy_peer", "memset") and whose
/// name contains `name_part` (NULL: any). `total_ns` (may be NULL) gets the sum of their durations. Needs
/// CUDASIM_REPORT or cudasim_record_work(1), which start the list.
uint64_t cudasim_work_count(const char* kind, const char* name_part, uint64_t* total_ns);
void cudasim_record_work(int enable);

/// Writes the report: CSV lines `call,LIBRARY,FUNCTION,COUNT`, `calls_in_callbacks,COUNT`,
/// `cupti_misuse,COUNT`, `sampling_misuse,COUNT`, one each time that a device's counters were sampled
/// `sampling,DEVICE,INTERVAL_NS,ENABLED_NS,STARTED_NS,STOPPED_NS,DISABLED_NS,SAMPLES` (0 for what did not
/// come about; samples that the client was given, but for the first, which spans the set-up) and, one per
/// piece of device work in order of submission,
/// `work,KIND,NAME,DEVICE,CONTEXT,STREAM,CORRELATION,HOST_NS,START_NS,END_NS,BYTES` (CLOCK_MONOTONIC; start
/// and end are 0 for work that has not finished). Returns 0 or -1.
int cudasim_write_report(const char* path);

/// CUPTI's own account: records handed to the client, and records still waiting for their work or for a
/// flush.
uint64_t cudasim_records_delivered(void);
uint64_t cudasim_records_pending(void);

/// CUDA calls that were made from inside a CUPTI callback, which CUPTI forbids: 0 for a well-behaved tool.
uint64_t cudasim_calls_in_callbacks(void);

/// Calls for sampling hardware counters that came out of order, where the real CUPTI ends the program, and
/// detachments while it was still on: 0 likewise.
uint64_t cudasim_sampling_misuse(void);

/// How often CUPTI was finalized while another thread was flushing it or was inside a callback, or was made
/// to record kernels while a context was being created: 0 likewise.
uint64_t cudasim_cupti_misuse(void);

#ifdef __cplusplus
}
#endif
