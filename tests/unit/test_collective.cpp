// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/collective.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "libinject/capture/hooks/communicator_ids.h"
#include "libinject/capture/hooks/communicator_table.h"
#include "libinject/output/table_files.h"
#include "libinject/record/collective_group.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

constexpr unsigned kFp16 = 6;
constexpr unsigned kFp32 = 7;
constexpr std::uint64_t kMaxCount = ~std::uint64_t{0};

CollectiveShape call(Collective operation, std::uint64_t count, std::uint32_t ranks, std::int32_t peer = -1) {
  CollectiveShape shape;
  shape.operation = operation;
  shape.type = kFp32;
  shape.reduction = operation == Collective::kAllReduce ? 1 : 0;
  shape.ranks = ranks;
  shape.count = count;
  shape.bytes = collective_bytes(operation, kFp32, count, ranks);
  shape.peer = peer;
  shape.role = GroupRole::kMember;
  return shape;
}

/// `communicator`: a handle.
void put(CollectiveGroup& group, const CollectiveShape& shape, const void* communicator = nullptr) {
  group.offer(shape, communicator);
  group.accept();
}

CollectiveShape end_of(CollectiveGroup& group, std::uint32_t window = 1) {
  CollectiveShape submitted;
  REQUIRE(group.end(window, submitted));
  return submitted;
}

Totals totals(std::initializer_list<std::uint64_t> values) {
  Totals result;
  for (const std::uint64_t value : values) result.add(value);
  return result;
}

}  // namespace

TEST_CASE("Bytes of a collective are nccl-tests'", "[collectives]") {
  CHECK(collective_bytes(Collective::kAllReduce, kFp32, 1000, 8) == 4000);
  CHECK(collective_bytes(Collective::kBroadcast, kFp16, 1000, 8) == 2000);
  CHECK(collective_bytes(Collective::kReduce, kFp16, 1000, 8) == 2000);
  CHECK(collective_bytes(Collective::kSend, kFp16, 1000, 8) == 2000);
  // Their count is one rank's share.
  CHECK(collective_bytes(Collective::kAllGather, kFp32, 1000, 8) == 32000);
  CHECK(collective_bytes(Collective::kReduceScatter, kFp32, 1000, 8) == 32000);
  CHECK(collective_bytes(Collective::kAllToAll, kFp32, 1000, 8) == 32000);
  CHECK(collective_bytes(Collective::kGather, kFp32, 1000, 8) == 32000);
  CHECK(collective_bytes(Collective::kScatter, kFp32, 1000, 8) == 32000);
  CHECK(collective_bytes(Collective::kAllGather, kFp32, 1000, 0) == 4000);
  CHECK(collective_bytes(Collective::kAllReduce, 12, 1000, 8) == kUnknownBytes);
  CHECK(collective_bytes(Collective::kAllReduce, kFp32, 0, 8) == 0);
  // Beyond 32 and beyond 64 bits.
  CHECK(collective_bytes(Collective::kAllGather, kFp32, std::uint64_t{1} << 33, 8) == std::uint64_t{1} << 38);
  CHECK(collective_bytes(Collective::kAllReduce, kFp32, kMaxCount / 2, 8) == kMaxCount);

  const std::vector<unsigned> bytes{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (unsigned type = 0; type < bytes.size(); ++type) {
    CHECK(collective_type_bytes(type) == bytes[type]);
    CHECK_FALSE(collective_type_name(type).empty());
  }
  CHECK(collective_type_bytes(12) == 0);
  CHECK(collective_type_name(12).empty());
  CHECK(collective_type_name(CollectiveShape::kSeveral) == "several");
  CHECK(collective_type_name(9) == "bf16");
  CHECK(reduction_name(0).empty());
  CHECK(reduction_name(1) == "sum");
  CHECK(reduction_name(5) == "avg");
  CHECK(reduction_name(6) == "custom");
}

TEST_CASE("Bus bandwidth is the algorithm's times nccl-tests' factor", "[collectives]") {
  CHECK(bus_factor(Collective::kAllReduce, 2) == 1.0);
  CHECK(bus_factor(Collective::kAllReduce, 8) == 1.75);
  CHECK(bus_factor(Collective::kAllReduce, 1) == 0.0);
  CHECK(bus_factor(Collective::kAllGather, 8) == 0.875);
  CHECK(bus_factor(Collective::kReduceScatter, 4) == 0.75);
  CHECK(bus_factor(Collective::kAllToAll, 4) == 0.75);
  CHECK(bus_factor(Collective::kGather, 4) == 0.75);
  CHECK(bus_factor(Collective::kScatter, 4) == 0.75);
  CHECK(bus_factor(Collective::kBroadcast, 8) == 1.0);
  CHECK(bus_factor(Collective::kReduce, 8) == 1.0);
  CHECK(bus_factor(Collective::kSend, 0) == 1.0);
  CHECK(bus_factor(Collective::kSendRecv, 8) == 1.0);
  CHECK_FALSE(bus_factor(Collective::kAllReduce, 0).has_value());
  CHECK_FALSE(bus_factor(Collective::kMixed, 8).has_value());

  CollectiveInput input;
  input.shape = call(Collective::kAllReduce, 1'000'000, 4);
  input.shape.role = GroupRole::kNone;
  input.calls = 3;
  input.gpu = totals({20'000, 40'000});  // the third was captured into a graph
  input.kernels = 2;
  input.kernel_time = 60'000;
  input.overlapped = 15'000;
  const std::vector<CollectiveRow> rows = collective_rows({input});
  REQUIRE(rows.size() == 1);
  // 4 MB in 30 us.
  CHECK(rows[0].algorithm_bandwidth().value() == Approx(4e6 * 2 / 60e-6 / 1e9));
  CHECK(rows[0].bus_bandwidth().value() == Approx(1.5 * 4e6 * 2 / 60e-6 / 1e9));
  CHECK(rows[0].overlap() == 0.25);
  CHECK(rows[0].operation() == "AllReduce");
  CHECK(rows[0].grouped() == "no");

  // A failed call had kernels, too, so the amount moved is unknown.
  input.calls = 1;
  input.failed = 2;
  const CollectiveRow with_failed = collective_rows({input}).at(0);
  CHECK_FALSE(with_failed.algorithm_bandwidth().has_value());
  CHECK_FALSE(with_failed.bus_bandwidth().has_value());
  CHECK(with_failed.overlap() == 0.25);
  input.calls = 3;
  input.failed = 0;

  // An element of an unknown type has an unknown size; so has a group with such a call.
  input.shape.type = 12;
  input.shape.bytes = collective_bytes(Collective::kAllReduce, 12, 1'000'000, 4);
  const CollectiveRow untyped = collective_rows({input}).at(0);
  CHECK_FALSE(untyped.algorithm_bandwidth().has_value());
  CHECK_FALSE(untyped.bus_bandwidth().has_value());
  CollectiveGroup group;
  group.start(1);
  put(group, call(Collective::kAllReduce, 100, 4));
  input.shape.role = GroupRole::kMember;
  put(group, input.shape);
  CHECK(end_of(group).bytes == kUnknownBytes);

  input.gpu = {};
  input.kernel_time = 0;
  const CollectiveRow none = collective_rows({input}).at(0);
  CHECK_FALSE(none.algorithm_bandwidth().has_value());
  CHECK_FALSE(none.bus_bandwidth().has_value());
  CHECK_FALSE(none.overlap().has_value());
}

TEST_CASE("A group of calls alike is submitted under their shape", "[collectives]") {
  CollectiveGroup group;
  CHECK_FALSE(group.is_open(1));
  group.start(1);
  CHECK(group.is_open(1));
  const CollectiveShape one = call(Collective::kAllReduce, 100, 2);
  put(group, one);
  CollectiveShape submitted = end_of(group);
  CHECK(submitted.role == GroupRole::kEqual);
  CHECK(submitted.operations == 1);
  submitted.role = GroupRole::kMember;
  submitted.operations = 0;
  CHECK(submitted == one);
  CHECK_FALSE(group.is_open(1));

  group.start(1);
  group.start(1);
  put(group, one);
  CHECK_FALSE(group.end(1, submitted));  // an inner end submits nothing
  CHECK(group.is_open(1));
  put(group, one);
  submitted = end_of(group);
  CHECK(submitted.operations == 2);
  CHECK(submitted.bytes == one.bytes);

  group.start(1);
  CHECK_FALSE(group.end(1, submitted));  // an empty group
  CHECK_FALSE(group.end(1, submitted));  // an end without a begin
}

TEST_CASE("A group of different calls is a shape of its own", "[collectives]") {
  CollectiveGroup group;
  group.start(1);
  put(group, call(Collective::kAllReduce, 100, 2));
  put(group, call(Collective::kAllReduce, 300, 2));
  CollectiveShape submitted = end_of(group);
  CHECK(submitted.operation == Collective::kAllReduce);
  CHECK(submitted.role == GroupRole::kDifferent);
  CHECK(submitted.operations == 2);
  CHECK(submitted.bytes == 1600);
  CHECK(submitted.ranks == 2);
  CHECK(submitted.reduction == 1);

  group.start(1);
  put(group, call(Collective::kAllReduce, 100, 2));
  CollectiveShape halves = call(Collective::kAllGather, 100, 4);
  halves.type = kFp16;
  put(group, halves);
  submitted = end_of(group);
  CHECK(submitted.operation == Collective::kMixed);
  CHECK(submitted.type == CollectiveShape::kSeveral);
  CHECK(submitted.reduction == CollectiveShape::kSeveral);
  CHECK(submitted.ranks == 0);
  CHECK(submitted.bytes == 400 + 1600);

  CollectiveShape here = call(Collective::kAllReduce, 100, 2);
  here.communicator = 7;
  CollectiveShape more = here;
  more.count = 200;
  group.start(1);
  put(group, here);
  put(group, more);
  CHECK(end_of(group).communicator == 7);
  // The same call on two communicators: their kernels can't be told apart.
  CollectiveShape there = here;
  there.communicator = 8;
  group.start(1);
  put(group, here);
  put(group, there);
  submitted = end_of(group);
  CHECK(submitted.role == GroupRole::kDifferent);
  CHECK(submitted.communicator == 0);
}

TEST_CASE("Groups of sends and receives", "[collectives]") {
  CollectiveGroup group;
  CollectiveShape submitted;
  SECTION("to every rank and from every rank: all to all") {
    group.start(1);
    for (std::int32_t peer = 0; peer < 4; ++peer) {
      put(group, call(Collective::kSend, 100, 4, peer));
      put(group, call(Collective::kRecv, 100, 4, peer));
    }
    submitted = end_of(group);
    CHECK(submitted.operation == Collective::kAllToAll);
    CHECK(submitted.bytes == 1600);
    CHECK(submitted.peer == -1);
  }
  SECTION("with different sizes, or to one rank twice: not") {
    const bool sizes = GENERATE(true, false);
    group.start(1);
    for (std::int32_t peer = 0; peer < 4; ++peer) {
      put(group, call(Collective::kSend, sizes && peer == 3 ? 50 : 100, 4, !sizes && peer == 3 ? 0 : peer));
      put(group, call(Collective::kRecv, 100, 4, peer));
    }
    submitted = end_of(group);
    CHECK(submitted.operation == Collective::kSendRecv);
    CHECK(submitted.bytes == 1600);  // that of the receives
  }
  SECTION("to neighbours twice, with the peers' sum of all to all: not") {
    group.start(1);
    for (const std::int32_t peer : {1, 1, 2, 2}) {
      put(group, call(Collective::kSend, 100, 4, peer));
      put(group, call(Collective::kRecv, 100, 4, peer));
    }
    CHECK(end_of(group).operation == Collective::kSendRecv);
  }
  SECTION("on two communicators, or by two ranks of one: not") {
    group.start(1);
    const int handles[2] = {};
    for (std::int32_t peer = 0; peer < 4; ++peer) {
      put(group, call(Collective::kSend, 100, 4, peer), &handles[peer / 2]);
      put(group, call(Collective::kRecv, 100, 4, peer), &handles[peer / 2]);
    }
    CHECK(end_of(group).operation == Collective::kSendRecv);
  }
  SECTION("three to one rank of three: not") {
    group.start(1);
    for (int tensor = 0; tensor < 3; ++tensor) {
      put(group, call(Collective::kSend, 100, 3, 1));
      put(group, call(Collective::kRecv, 100, 3, 1));
    }
    CHECK(end_of(group).operation == Collective::kSendRecv);
  }
  SECTION("to each of many ranks: all to all, unless there are too many to tell") {
    const std::uint32_t ranks = GENERATE(65u, 1024u, 1025u);
    group.start(1);
    for (std::uint32_t peer = ranks; peer-- > 0;) {
      put(group, call(Collective::kSend, 100, ranks, static_cast<std::int32_t>(peer)));
      put(group, call(Collective::kRecv, 100, ranks, static_cast<std::int32_t>(peer)));
    }
    CHECK(end_of(group).operation == (ranks <= 1024 ? Collective::kAllToAll : Collective::kSendRecv));
  }
  SECTION("a ring's step") {
    group.start(1);
    put(group, call(Collective::kSend, 100, 4, 2));
    put(group, call(Collective::kRecv, 300, 4, 0));
    submitted = end_of(group);
    CHECK(submitted.operation == Collective::kSendRecv);
    CHECK(submitted.bytes == 1200);
  }
  SECTION("scattered by sends alone") {
    group.start(1);
    for (std::int32_t peer = 0; peer < 4; ++peer) put(group, call(Collective::kSend, 100, 4, peer));
    submitted = end_of(group);
    CHECK(submitted.operation == Collective::kSend);
    CHECK(submitted.role == GroupRole::kDifferent);
    CHECK(submitted.bytes == 1600);
    CHECK(submitted.peer == -1);
  }
}

TEST_CASE("What a window's end leaves open in a group does not reach the next window", "[collectives]") {
  CollectiveGroup group;
  group.start(1);
  put(group, call(Collective::kAllReduce, 100, 2));
  CHECK_FALSE(group.is_open(2));
  CollectiveShape submitted;
  CHECK_FALSE(group.end(2, submitted));
  group.start(2);
  put(group, call(Collective::kAllReduce, 7, 2));
  submitted = end_of(group, 2);
  CHECK(submitted.role == GroupRole::kEqual);
  CHECK(submitted.count == 7);
}

TEST_CASE("A rejected call, and one outside of the group, are not in it", "[collectives]") {
  CollectiveGroup group;
  group.start(1);
  group.offer(call(Collective::kAllReduce, 100, 2), nullptr);  // whether it succeeded was not reported
  CollectiveShape outside = call(Collective::kAllReduce, 200, 2);
  outside.role = GroupRole::kNone;
  put(group, outside);
  put(group, call(Collective::kAllReduce, 300, 2));
  const CollectiveShape submitted = end_of(group);
  CHECK(submitted.operations == 1);
  CHECK(submitted.count == 300);
}

TEST_CASE("Rows: the ends of groups of calls alike go to these calls", "[collectives]") {
  CollectiveInput members;
  members.shape = call(Collective::kAllReduce, 1000, 2);
  members.calls = 6;
  members.host_time = 60;
  CollectiveInput single;
  single.shape = members.shape;
  single.shape.role = GroupRole::kEqual;
  single.shape.operations = 1;
  single.calls = 2;
  single.host_time = 100;
  single.gpu = totals({1000, 3000});
  single.kernels = 2;
  single.names = {{"ring", 4000}};
  CollectiveInput fours = single;
  fours.shape.operations = 4;
  fours.calls = 1;
  fours.gpu = totals({8000});
  fours.kernels = 1;
  fours.names = {{"tree", 5000}, {"ring", 3000}};
  CollectiveInput alone = members;
  alone.shape.role = GroupRole::kNone;
  alone.calls = 5;
  alone.gpu = totals({100});

  const std::vector<CollectiveRow> rows = collective_rows({alone, members, single, fours});
  REQUIRE(rows.size() == 2);
  const CollectiveRow& row = rows[0];
  CHECK(row.shape == members.shape);
  CHECK(row.grouped() == "yes");
  CHECK(row.operation() == "AllReduce");
  CHECK(row.calls == 6);
  CHECK(row.failed == 0);
  CHECK(row.host_time == 260);
  CHECK(row.gpu.count == 6);
  CHECK(row.gpu.sum == 12000);
  CHECK(row.gpu.min == 1000);
  CHECK(row.gpu.max == 3000);
  CHECK(row.kernels == 3);
  REQUIRE(row.names.size() == 2);
  CHECK(row.names[0].name == "ring");
  CHECK(row.names[0].time == 7000);
  CHECK(row.algorithm_bandwidth().value() == Approx(2.0));
  CHECK(rows[1].grouped() == "no");
  CHECK(rows[1].calls == 5);

  SECTION("a group that failed has taken its calls with it") {
    fours.failed = 1;
    fours.calls = 0;
    fours.gpu = {};
    members.failed = 1;
    const CollectiveRow failed = collective_rows({members, single, fours}).at(0);
    CHECK(failed.calls == 2);
    CHECK(failed.failed == 5);
  }
}

TEST_CASE("Rows: groups of different calls stand by themselves", "[collectives]") {
  CollectiveInput member;
  member.shape = call(Collective::kAllReduce, 1000, 2);
  member.calls = 2;
  CollectiveInput end;
  end.shape = member.shape;
  end.shape.role = GroupRole::kDifferent;
  end.shape.operations = 3;
  end.shape.bytes = 50'000;
  end.calls = 2;
  end.gpu = totals({1000, 1000});
  std::vector<CollectiveRow> rows = collective_rows({member, end});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].operation() == "Group of 3 AllReduce");
  CHECK(rows[0].grouped() == "group");
  CHECK(rows[0].calls == 2);
  CHECK(rows[0].bus_bandwidth().value() == Approx(50.0));
  CHECK(rows[1].grouped() == "yes");
  CHECK(rows[1].gpu.count == 0);
  end.shape.operation = Collective::kMixed;
  rows = collective_rows({end});
  CHECK(rows[0].operation() == "Group of 3");
  CHECK(rows[0].algorithm_bandwidth().value() == Approx(50.0));
  CHECK_FALSE(rows[0].bus_bandwidth().has_value());
}

TEST_CASE("What is known of communicators holds for a window, until the communicator goes", "[collectives]") {
  CommunicatorTable table;
  const auto handle = [](std::uintptr_t i) { return reinterpret_cast<const void*>(0x7000'0000 + i * 64); };
  constexpr CommunicatorFacts kNothing;
  CHECK(table.facts(handle(0), 1) == kNothing);
  table.remember(handle(0), 1, {8, 77});
  CHECK(table.facts(handle(0), 1) == CommunicatorFacts{8, 77});
  CHECK(table.facts(handle(0), 2) == kNothing);
  table.remember(handle(0), 2, {4, 0});
  CHECK(table.facts(handle(0), 2) == CommunicatorFacts{4, 0});
  table.forget(handle(0));
  CHECK(table.facts(handle(0), 2) == kNothing);
  table.forget(nullptr);
  table.remember(nullptr, 2, {4, 78});
  CHECK(table.facts(nullptr, 2) == kNothing);

  // More than fit: an answer must be right, or there is none.
  constexpr unsigned kMany = 4 * CommunicatorTable::kSets * CommunicatorTable::kWays;
  for (unsigned i = 0; i < kMany; ++i) table.remember(handle(i), 3, {i + 1, i + 100});
  unsigned known = 0;
  for (unsigned i = 0; i < kMany; ++i) {
    const CommunicatorFacts facts = table.facts(handle(i), 3);
    if (facts.ranks != 0) {
      ++known;
      REQUIRE(facts == CommunicatorFacts{i + 1, i + 100});
    }
  }
  CHECK(known > CommunicatorTable::kSets * CommunicatorTable::kWays / 2);
}

TEST_CASE("What is known of communicators is right while threads enter, ask and forget", "[collectives]") {
  static CommunicatorTable table;
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (unsigned i = 0; i < 20'000; ++i) {
        const unsigned number = (i * 7 + t) % 1500;  // three for each slot
        const auto* communicator = reinterpret_cast<const void*>(std::uintptr_t{0x10000} + number * 32);
        const CommunicatorFacts right{number + 1, number + 5};
        const CommunicatorFacts facts = table.facts(communicator, 1 + i / 10'000);
        if (facts.ranks != 0 && facts != right) wrong.fetch_add(1);
        if (facts.ranks == 0) table.remember(communicator, 1 + i / 10'000, right);
        if (i % 13 == 0) table.forget(communicator);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("A communicator's id is its unique id's, whoever computes it", "[collectives]") {
  std::string unique(128, '\0');
  const CommunicatorId id = communicator_id(unique);
  CHECK(id != 0);
  CHECK(communicator_id(std::string(unique)) == id);
  // Each of its bytes counts.
  for (char& byte : unique) {
    byte = 1;
    CHECK(communicator_id(unique) != id);
    byte = 0;
  }
  // Splits are identified by parent, color and number.
  std::set<CommunicatorId> all{id};
  for (const CommunicatorId parent : {id, id + 1}) {
    for (int color = 0; color < 64; ++color) {
      for (std::uint32_t number = 0; number < 64; ++number)
        all.insert(split_communicator_id(parent, color, number));
    }
  }
  CHECK(all.size() == 1 + 2 * 64 * 64);
  CHECK(all.count(0) == 0);
  CHECK(split_communicator_id(0, 3, 1) == 0);
}

TEST_CASE("Ids of communicators last from their making to their end", "[collectives]") {
  static CommunicatorIds ids;
  const auto handle = [](std::uintptr_t i) { return reinterpret_cast<const void*>(0x5000'0000 + i * 64); };
  CHECK(ids.id(handle(0)) == 0);
  CHECK(ids.split(handle(0), 1) == 0);
  ids.remember(handle(0), 7);
  CHECK(ids.id(handle(0)) == 7);
  // A rank that gets no communicator counts the split as well.
  CHECK(ids.split(handle(0), 5) == split_communicator_id(7, 5, 0));
  CHECK(ids.split(handle(0), -1) == 0);
  CHECK(ids.split(handle(0), 5) == split_communicator_id(7, 5, 2));
  // A communicator at a reused address starts anew, even if the end of the old one was not seen.
  ids.remember(handle(0), 8);
  CHECK(ids.split(handle(0), 5) == split_communicator_id(8, 5, 0));
  ids.remember(handle(0), 0);
  CHECK(ids.id(handle(0)) == 0);
  ids.forget(handle(0));
  for (const void* none : {handle(0), static_cast<const void*>(nullptr), reinterpret_cast<const void*>(2)}) {
    ids.remember(none, 0);
    ids.forget(none);
    CHECK(ids.id(none) == 0);
  }
  ids.remember(nullptr, 3);
  CHECK(ids.id(nullptr) == 0);

  // As many as fit, created and destroyed many times; any beyond that are unknown.
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < CommunicatorIds::kMax; ++i) ids.remember(handle(i), i + 1 + round);
    ids.remember(handle(CommunicatorIds::kMax), 1);
    CHECK(ids.id(handle(CommunicatorIds::kMax)) == 0);
    unsigned wrong = 0;
    for (unsigned i = 0; i < CommunicatorIds::kMax; ++i) wrong += ids.id(handle(i)) == i + 1 + round ? 0 : 1;
    CHECK(wrong == 0);
    for (unsigned i = 0; i < CommunicatorIds::kMax; ++i) ids.forget(handle(i));
    CHECK(ids.id(handle(1)) == 0);
  }
}

TEST_CASE("Ids of communicators are right while threads make, split and end them", "[collectives]") {
  static CommunicatorIds ids;
  std::atomic<unsigned> wrong{0};
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      for (std::uintptr_t i = 0; i < 5000; ++i) {
        const auto* mine = reinterpret_cast<const void*>(0x10000 + (i % 50) * 256 + t * 64);
        const CommunicatorId id = 1 + t + i * 8;
        ids.remember(mine, id);
        if (ids.id(mine) != id || ids.split(mine, 3) != split_communicator_id(id, 3, 0)) wrong.fetch_add(1);
        ids.forget(mine);
        if (ids.id(mine) != 0) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("nccl_sum.csv: calls joined to their kernels, overlap, and kernels that are no call's",
          "[collectives]") {
  StatsRun run;
  std::uint32_t calls = 0;
  const auto add_call = [&](std::string_view function, const CollectiveShape& shape, int status = 0) {
    CallEvent event = call_event(function, 10);
    event.owns_shape = true;
    event.shape = run.shapes.intern(shape);
    event.call = ++calls;
    event.status = static_cast<std::int16_t>(status);
    run.statistics.add(event);
  };
  const auto add_kernel = [&](const CollectiveShape& shape, Nanoseconds start, Nanoseconds end) {
    KernelEvent event =
        run.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 0);
    event.launch.shape = run.shapes.intern(shape);
    event.launch.owner = calls;
    event.launch.chain = chain_of({"ncclAllReduce"});
    event.start = start;
    event.end = end;
    run.statistics.add(event);
  };
  CollectiveShape alone = call(Collective::kAllReduce, 1000, 4);
  alone.role = GroupRole::kNone;
  alone.communicator = 0x0123'4567'89AB'CDEF;
  CollectiveShape member = call(Collective::kAllGather, 1000, 4);
  CollectiveShape end = member;
  end.role = GroupRole::kEqual;
  end.operations = 2;
  add_call("ncclAllReduce", alone);
  add_kernel(alone, 1000, 3000);
  add_call("ncclAllReduce", alone, 4);
  add_call("ncclAllGather", member);
  add_call("ncclAllGather", member);
  add_call("ncclGroupEnd", end);
  add_kernel(end, 4000, 5000);
  KernelEvent compute = run.kernel("gemm", 0);
  compute.start = 2500;
  compute.end = 4100;
  run.statistics.add(compute);
  CollectiveShape later = call(Collective::kReduce, 1000, 4, 2);
  later.type = 12;
  later.bytes = collective_bytes(Collective::kReduce, 12, 1000, 4);
  later.role = GroupRole::kNone;
  add_call("ncclReduce", later);
  KernelEvent unknown = run.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 500);
  unknown.start = 6000;
  unknown.end = 6500;
  run.statistics.add(unknown);

  const std::string header =
      "Operation,Type,Reduction,Bytes,Ranks,Peer/Root,Grouped,Calls,Failed Calls,Captured Calls,Replayed "
      "Calls,"
      "Host Time (ns),GPU Time (%),GPU Time (ns),GPU Avg (ns),GPU Min (ns),GPU Max (ns),Algorithm BW (GB/s),"
      "Bus BW (GB/s),Overlap with Compute (%),Kernels,Kernel Names,Communicator\n";
  const std::string all_reduce = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  const std::string expected =
      header + "AllReduce,fp32,sum,4000,4,,no,1,1,0,0,20,57.1,2000,2000.0,2000,2000,2.000,3.000,25.0,1," +
      all_reduce +
      ",0x0123456789abcdef\nAllGather,fp32,,16000,4,,yes,2,0,0,0,30,28.6,1000,500.0,500,500,32.000,24.000,10."
      "0,1," +
      all_reduce +
      ",\nReduce,,,,4,2,no,1,0,0,0,10,0.0,0,0.0,0,0,,,,0,,\n[unknown],,,,,,,,,,,,14.3,500,500.0,500,500,,,0."
      "0,1,"
      "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>),\n";
  const auto files = table_files();
  const auto table = std::find_if(files.begin(), files.end(),
                                  [](const TableFile& file) { return file.name == "nccl_sum.csv"; });
  REQUIRE(table != files.end());
  CHECK(table_text(*table, build_report(run.statistics, {})) == expected);
  run.statistics.settle_window(1, 0, 10'000);
  CHECK(table_text(*table, build_report(run.statistics, {})) == expected);
}
