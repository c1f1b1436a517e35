// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Programs for the tests, told on their command line what to do: each word is an operation with its
// arguments, `kernel:NAME:5`, and a list of them between brackets is a block. So that a test shows in one
// place what a program does and what is expected of its tables.
//
//   loop:N [ ... ]        the block N times
//   threads:N [ ... ]     N threads run the block, and have ended when it is over
//   background [ ... ]    one more thread runs the block; `join` waits for all of these
//   while_open [ ... ]    the block until no window is open
//   signal:FLAG wait:FLAG between threads
//   meet:NAME:COUNT       waits until so many threads have come here
//   busy:US               the thread takes so much of a processor's time
//   sleep:MS  print:TEXT  name:THREAD  exit:CODE  quick_exit:CODE  return:CODE  chdir:PATH
//   progress:FILE         from here on kernel, copy and memset keep two numbers there, of eight bytes: how
//   many calls
//                         have begun, and how many have returned; for whoever looks when the program has been
//                         killed
//   crash:SIGNAL          SEGV, ABRT or KILL, to itself
//   linger:MS             at the end, after all exit handlers that are registered later, takes so long
//   count_costs costs:TEXT                   prints what this thread has cost since `count_costs`: page
//                                            faults as TEXT_faults, how often it gave up the processor by
//                                            itself as TEXT_waits, microseconds of a processor as TEXT_us
//   warm_heap:BYTES                          so much of the heap has been touched, and stays the program's
//   mark within:MS        prints "late" if more than MS milliseconds have passed since `mark`
//   fault:NAME:VALUE  duration:KERNEL:NS     see tests/sim/cudasim.h
//   open close flush is_open                 include/inject/inject.h; prints what they return
//   units:N                                  inject_units(), and prints what it returns
//   payload:HOW:NAME:TYPE:VALUE[:DOMAIN]     NVTX, with a number: open, push, start, mark or registered
//   push:NAME pop  wide:NAME  registered:NAME  domain_push:DOMAIN:NAME domain_pop:DOMAIN
//   range_start:KEY:NAME range_end:KEY  domain_start:KEY:DOMAIN:NAME
//   push_null  names:PREFIX:COUNT            NVTX; the last makes as many ranges, each of a new name
//
// Where libinject's own thread has something to do first, a program waits until it has, however long a busy
// machine takes; where there is no libinject, it goes on at once:
//
//   until_open until_closed        a window has opened or closed
//   until_calls:FUNCTION:COUNT     the simulation has been called so often: cuptiFinalize ends an attachment
//   until_more_calls:FUNCTION:COUNT  … since now
//   until_sampling[:DEVICES]       so many devices' hardware metrics are sampled
//   until_delivered[:MOST]         CUPTI has handed over all records, or all but so many
//   until_text:FILE:TEXT           the file has the text in it
//   looks:COUNT                    libinject's threads have looked so often at what there is to do
//
//   raise:SIGNAL                             USR1, USR2, HUP or RTMIN+3, sent to the process
//   handle:SIGNAL:HOW  handled               HOW: plain, siginfo, once, chain, ignore, default; prints how
//                                            often
//   child:SIGNAL                             prints what the signal does in a forked child
//   subscribe unsubscribe finalize take_buffers client_records initialize_profiler end_profiler
//                                            the program's own CUPTI client (client.cpp)
//   client:FUNCTION                          any of its functions; after client:hide it has CUPTI's from
//   dlsym
//
// cuda.cpp and driver.cpp add theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace script {

/// An operation's arguments; what is not given reads as empty, or as the value that the operation names.
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

/// Around a call that gives the device work: `progress`.
class Submission {
 public:
  Submission();
  ~Submission();
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
};

/// Prints a status that is not 0 as "OPERATION: STATUS": a test compares a program's output with and without
/// the preload.
void report(const char* operation, int status);

/// Runs the command line; returns the program's exit code.
int run(int argc, char** argv, const Operations& operations);

}  // namespace script
