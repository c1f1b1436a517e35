// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the preload adds to a program that never touches CUDA: bench_spawn LIBRARY [RUNS] [PROGRAM...] starts
// the program
// (/bin/true) with and without LD_PRELOAD in turn, and prints every wall time as one JSON object.
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace {

std::uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

double run_us(char* const* arguments, char* const* environment) {
  pid_t child = 0;
  int status = 0;
  const std::uint64_t begin = now_ns();
  if (posix_spawn(&child, arguments[0], nullptr, nullptr, arguments, environment) != 0 ||
      waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "%s could not be run, or failed\n", arguments[0]);
    std::exit(1);
  }
  return static_cast<double>(now_ns() - begin) / 1e3;
}

void print(const char* name, const std::vector<double>& samples, const char* end) {
  std::printf("\"%s\": [", name);
  for (std::size_t i = 0; i < samples.size(); ++i) std::printf("%s%.1f", i == 0 ? "" : ", ", samples[i]);
  std::printf("]%s", end);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_spawn LIBRARY [RUNS] [PROGRAM...]\n");
    return 2;
  }
  const long runs = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1000;
  std::vector<char*> program(argv + (argc > 3 ? 3 : argc), argv + argc);
  std::string fallback = "/bin/true";
  if (program.empty()) program.push_back(fallback.data());
  program.push_back(nullptr);

  std::vector<char*> plain;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) plain.push_back(*entry);
  }
  std::vector<char*> preloaded = plain;
  std::string preload = std::string("LD_PRELOAD=") + argv[1];
  preloaded.push_back(preload.data());
  plain.push_back(nullptr);
  preloaded.push_back(nullptr);

  std::vector<double> bare, ours;
  for (long i = 0; i < runs; ++i) {
    for (int turn = 0; turn < 2; ++turn) {
      if ((i + turn) % 2 == 0) {
        bare.push_back(run_us(program.data(), plain.data()));
      } else {
        ours.push_back(run_us(program.data(), preloaded.data()));
      }
    }
  }
  std::printf("{");
  print("spawn.bare_us", bare, ",\n ");
  print("spawn.preloaded_us", ours, "}\n");
  return 0;
}
