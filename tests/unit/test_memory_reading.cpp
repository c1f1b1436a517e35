// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <string>
#include <string_view>
#include "tests/unit/catch.h"

#include "libinject/capture/python/memory_reading.h"

using namespace inject;

TEST_CASE("What Python says of the memory is taken over", "[memory_reading]") {
  const auto memory = memory_purposes_of(
      R"({"devices":[{"device":2,"peak_allocated":7,"peak_reserved":8,"in_use":9,"bytes":[1,2,3,4,5,6,null,8,9,10,11,12],)"
      R"("tensors":[1,1,1,1,1,0,0,0,0,0,0,0],"largest":[[5,"A.b (1,) torch.int8"],[0,""],[0,""],[0,""],[6,"x"]]}],)"
      R"("objects":12,"unplaced":[0,1,0,0,0,0,0,0,0,0,0,0],"holders":[{"bytes":1,"tensor":"y"}],"ns":44,"cpu_ns":33})");
  REQUIRE(memory);
  REQUIRE(memory->devices.size() == 1);
  const DevicePurposes& device = memory->devices[0];
  CHECK(device.device == 2);
  CHECK(device.peak_allocated == 7);
  CHECK(device.peak_reserved == 8);
  CHECK(device.in_use == 9);
  CHECK(device.bytes == std::array<std::uint64_t, 12>{1, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11, 12});
  for (std::size_t purpose = 0; purpose < kMemoryPurposes; ++purpose)
    CHECK(device.unknown[purpose] == (purpose == 6));
  CHECK(device.tensors[4] == 1);
  CHECK(device.largest[0].bytes == 5);
  CHECK(device.largest[0].text == "A.b (1,) torch.int8");
  CHECK(device.largest[4].text == "x");
  CHECK(memory->unplaced[1] == 1);
  CHECK(memory->objects == 12);
  CHECK(memory->time == 44);
  CHECK(memory->cpu == 33);
  CHECK_FALSE(memory->is_unfinished);
}

TEST_CASE("Nothing, an error and too long a reading", "[memory_reading]") {
  CHECK_FALSE(memory_purposes_of(""));
  CHECK(memory_purposes_of(R"({"error":"RuntimeError: no"})")->error == "RuntimeError: no");
  CHECK(memory_purposes_of(R"({"unfinished":true,"objects":3})")->is_unfinished);
}

TEST_CASE("Text that is cut anywhere, and lists that are too long, do no harm", "[memory_reading]") {
  const std::string whole =
      R"({"devices":[{"device":-1,"bytes":[1,2,3,4,5,6,7,8,9,10,11,12,13],"largest":[[1,"a"],[1,"b"],[1,"c"],[1,"d"],[1,"e"],[1,"f"]]}]})";
  const auto memory = memory_purposes_of(whole);
  REQUIRE(memory);
  CHECK(memory->devices.at(0).device == 0);
  CHECK(memory->devices.at(0).bytes[11] == 12);
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK_FALSE(memory_purposes_of(std::string_view(whole).substr(0, length)));
}
