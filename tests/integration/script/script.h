// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Programs for the tests, controlled by their command line: each word is an operation with its arguments,
// `kernel:NAME:5`, and a list of them between brackets is a block. This way a test shows in one place what a
// program does and what is expected of its tables.
//
//   loop:N [ ... ]        the block N times
//   threads:N [ ... ]     N threads run the block, and are joined at its end
//   background [ ... ]    another thread runs the block; `join` waits for all of these
//   while_open [ ... ]    repeats the block until no window is open
//   signal:FLAG wait:FLAG between threads
//   meet:NAME:COUNT       waits until COUNT threads have come here
//   busy:US               the thread uses US microseconds of CPU time
//   sleep:MS  print:TEXT  name:THREAD  exit:CODE  quick_exit:CODE  return:CODE  chdir:PATH
//   progress:FILE         from here on kernel, copy and memset keep two numbers of eight bytes there: calls
//                         begun and calls returned, to be read after the program has been killed
//   crash:SIGNAL          sends itself SEGV, ABRT or KILL
//   linger:MS             at the end, after all exit handlers that are registered later, takes MS ms
//   count_costs costs:TEXT                   prints this thread's cost since `count_costs`: page faults as
//                                            TEXT_faults, voluntary context switches as TEXT_waits, CPU
//                                            microseconds as TEXT_us
//   warm_heap:BYTES                          touches that much of the heap, and keeps it for the program
//   mark within:MS        prints "late" if more than MS milliseconds have passed since `mark`
//   fault:NAME:VALUE  duration:KERNEL:NS     see tests/sim/cudasim.h
//   open close flush is_open                 include/inject/inject.h; prints what they return
//   units:N                                  inject_units(), and prints its result
//   payload:HOW:NAME:TYPE:VALUE[:DOMAIN]     NVTX, with a number: open, push, start, mark or registered
//   push:NAME pop  wide:NAME  registered:NAME  domain_push:DOMAIN:NAME domain_pop:DOMAIN
//   range_start:KEY:NAME range_end:KEY  domain_start:KEY:DOMAIN:NAME
//   push_null  names:PREFIX:COUNT            NVTX; the last makes COUNT ranges, each with a new name
//
// If libinject's own thread has to do something first, a program waits for it, however long a busy machine
// takes; without libinject, it continues at once:
//
//   until_open until_closed        a window has opened or closed
//   until_calls:FUNCTION:COUNT     the simulated function has been called COUNT times (cuptiFinalize: an
//                                  attachment ended)
//   until_more_calls:FUNCTION:COUNT  … from now on
//   until_sampling[:DEVICES]       hardware metrics of that many devices are being sampled
//   until_delivered[:MOST]         CUPTI has delivered all records, or all but MOST
//   until_text:FILE:TEXT           the file contains the text
//   looks:COUNT                    libinject's threads have checked COUNT times what there is to do
//
//   raise:SIGNAL                             USR1, USR2, HUP or RTMIN+3, sent to the process
//   handle:SIGNAL:HOW  handled               HOW: plain, siginfo, once, chain, ignore, default; prints how
//                                            often
//   child:SIGNAL                             prints what the signal does in a forked child
//   subscribe unsubscribe finalize take_buffers client_records initialize_profiler end_profiler
//                                            the program's own CUPTI client (client.cpp)
//   client:FUNCTION                          any of its functions; after client:hide it gets CUPTI's by
//                                            dlsym
//
// cuda.cpp and driver.cpp add their own operations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace script {

/// An operation's arguments; a missing one reads as empty, or as the default given by the operation.
class Arguments {
 public:
  explicit Arguments(std::string_view word);
  const std::string& name() const { return parts_.front(); }
  std::string text(std::size_t index) const { return index < parts_.size() ? parts_[index] : std::string(); }
  std::uint64_t number(std::size_t index, std::uint64_t otherwise = 0) const;
  bool has(std::size_t index) const { return index < parts_.size() && !parts_[index].empty(); }

 private:
  std::vector<std::string> parts_;
};

using Operations = std::map<std::string, std::function<void(const Arguments&)>>;

/// Encloses a call that submits device work: see `progress`.
class Submission {
 public:
  Submission();
  ~Submission();
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
};

/// Prints a non-zero status as "OPERATION: STATUS": a test compares a program's output with and without the
/// preload.
void report(const char* operation, int status);

/// Runs the command line; returns the program's exit code.
int run(int argc, char** argv, const Operations& operations);

}  // namespace script
