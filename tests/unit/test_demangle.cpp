// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/demangle.h"

#include <chrono>
#include <random>

#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("C++ names in full, others unchanged", "[output]") {
  CHECK(demangle("_Z4burnPfii") == "burn(float*, int, int)");
  CHECK(demangle("_ZN2at6native12_GLOBAL__N_16kernelILi4EfEEvPT0_") ==
        "void at::native::(anonymous namespace)::kernel<4, float>(float*)");
  CHECK(demangle("ampere_sgemm_128x64_tn") == "ampere_sgemm_128x64_tn");
  CHECK(demangle("") == "");
  CHECK(demangle("_Z") == "_Z");
  CHECK(demangle("_Zgarbage") == "_Zgarbage");
  // Type names such as `i` demangle as well, but are not names of kernels.
  CHECK(demangle("i") == "i");
  CHECK(demangle("Pf") == "Pf");
  // Not null-terminated at its end.
  CHECK(demangle(std::string_view("_Z4burnPfii_and_more", 11)) == "burn(float*, int, int)");
}

TEST_CASE("Names made to explode are cut", "[output]") {
  // Each template argument refers to the previous one twice, so the text doubles with every step.
  const std::string_view digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string name = "_Z1f1PIiiE";
  for (const char digit : digits) {
    const std::string previous = std::string("S") + digit + "_";
    name += "S_I" + previous + previous + "E";
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string text = demangle(name);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  CHECK(text.size() == kMaxDemangledLength);
  CHECK(text.rfind("f(P<int, int>, P<", 0) == 0);
}

TEST_CASE("Long names", "[output]") {
  const std::string arguments(1000, 'i');
  CHECK(demangle("_Z1f" + arguments).size() == 3 + 1000 * 3 + 999 * 2);
  // libstdc++ gives up beyond 1,024 bytes.
  const std::string longer = "_Z1f" + std::string(2000, 'i');
  CHECK(demangle(longer) == longer);
  const std::string longest = "_Z1f" + std::string(kMaxDemangledLength, 'i');
  CHECK(demangle(longest) == longest);
}

TEST_CASE("Damaged names come back as something bounded", "[output]") {
  std::mt19937 random(11);
  const std::string name =
      "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_";
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = name;
    for (int j = 0; j < 3; ++j) damaged[2 + random() % (damaged.size() - 2)] = name[random() % name.size()];
    REQUIRE(demangle(damaged).size() <= kMaxDemangledLength);
  }
}
