// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <type_traits>

#include "libinject/base/clock.h"
#include "libinject/capture/hooks/communicator_ids.h"
#include "libinject/capture/hooks/communicator_table.h"
#include "libinject/capture/hooks/shim.h"
#include "libinject/model/collective_bytes.h"
#include "libinject/record/library_buffers.h"
#include "libinject/record/thread_registry.h"

#if NCCL_VERSION_CODE < 22800
extern "C" {
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream);
}
#endif

namespace inject {

template <>
struct Missing<ncclResult_t> {
  static ncclResult_t value() noexcept { return ncclSystemError; }
};

// A non-blocking communicator reports errors later.
template <>
struct StatusCode<ncclResult_t> {
  static int of(ncclResult_t result) noexcept {
    return result == ncclInProgress ? 0 : static_cast<int>(result);
  }
};

namespace {

// Records use the numbers and sizes of this header.
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 &&
              ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 &&
              ncclBfloat16 == 9);
#if NCCL_VERSION_CODE >= 22400
static_assert(ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11);
#endif
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4 &&
              ncclNumOps == 5);

constinit SameLibraryFunction<ncclResult_t(ncclComm_t, int*)> comm_count{"ncclCommCount"};
constinit CommunicatorTable communicators;
constinit CommunicatorIds communicator_ids;

CommunicatorFacts facts_of(ncclComm_t comm, const void* real, std::uint32_t window) noexcept {
  // The library reports an unusable communicator itself, unless it can't read it.
  if (comm == nullptr) return {};
  CommunicatorFacts facts = communicators.facts(comm, window);
  if (facts.ranks != 0) return facts;
  facts.id = communicator_ids.id(comm);
  auto* ask = comm_count.get(real);
  if (ask == nullptr) return facts;
  int ranks = 0;
  // The call leaves an NVTX range, which is not the program's.
  const UnrecordedScope unrecorded;
  if (ask(comm, &ranks) != ncclSuccess || ranks < 1) return facts;
  facts.ranks = static_cast<std::uint32_t>(ranks);
  communicators.remember(comm, window, facts);
  return facts;
}

CollectiveShape set_collective_shape(CallFrame& frame, const void* real, Collective operation,
                                     std::size_t count, ncclDataType_t type, int reduction, int peer,
                                     ncclComm_t comm) noexcept {
  CollectiveShape shape;
  ThreadState* thread = ThreadRegistry::current_if_any();
  if (thread == nullptr) return shape;
  shape.operation = operation;
  const auto number = static_cast<unsigned>(type);
  shape.type = number < CollectiveShape::kSeveral ? static_cast<std::uint8_t>(number)
                                                  : std::uint8_t{CollectiveShape::kSeveral - 1};
  // A program's own reductions have their own numbers, and no name.
  shape.reduction = static_cast<std::uint8_t>(reduction < 0            ? 0
                                              : reduction < ncclNumOps ? reduction + 1
                                                                       : ncclNumOps + 1);
  const CommunicatorFacts facts = facts_of(comm, real, frame.window());
  shape.ranks = facts.ranks;
  shape.communicator = facts.id;
  shape.count = count;
  shape.bytes = collective_bytes(operation, shape.type, count, shape.ranks);
  shape.peer = peer;
  if (thread->collectives.is_open(frame.window())) shape.role = GroupRole::kMember;
  thread->collectives.offer(shape, comm);
  frame.shape(shape);
  return shape;
}

// A call that is rejected is not part of its group.
struct Collected {
  static void told(int status) noexcept {
    ThreadState* thread = ThreadRegistry::current_if_any();
    if (status == 0 && thread != nullptr) thread->collectives.accept();
  }
};

// Communicators are followed from their creation to their end, inside windows and outside.

bool succeeded(int status) noexcept {
  return StatusCode<ncclResult_t>::of(static_cast<ncclResult_t>(status)) == ncclSuccess;
}

CommunicatorId id_of(const ncclUniqueId& unique_id) noexcept {
  return communicator_id({unique_id.internal, sizeof unique_id.internal});
}

// A communicator whose handle the library writes later (ncclCommSplit in a group, or without blocking) is not
// known.
void on_communicator_created(int status, const ncclComm_t* comm, CommunicatorId id) noexcept {
  if (!succeeded(status) || comm == nullptr || *comm == nullptr) return;
  communicators.forget(*comm);
  communicator_ids.remember(*comm, id);
}

void forget_communicator(ncclComm_t comm) noexcept {
  communicators.forget(comm);
  communicator_ids.forget(comm);
}

/// The arguments of a collective by their types: except for its buffers, a call has one of each; an int is
/// the root or peer.
template <Collective operation>
struct CollectiveArguments : Collected {
  template <typename... A>
  static void tell(CallFrame& frame, void* real, A... args) noexcept {
    std::size_t count = 0;
    ncclDataType_t type{};
    int reduction = -1;
    int peer = -1;
    ncclComm_t comm = nullptr;
    const void* given = nullptr;
    const void* got = nullptr;
    const auto take = [&](auto argument) {
      using Argument = decltype(argument);
      if constexpr (std::is_same_v<Argument, const void*>) given = argument;
      if constexpr (std::is_same_v<Argument, void*>) got = argument;
      if constexpr (std::is_same_v<Argument, std::size_t>) count = argument;
      if constexpr (std::is_same_v<Argument, ncclDataType_t>) type = argument;
      if constexpr (std::is_same_v<Argument, ncclRedOp_t>) reduction = argument;
      if constexpr (std::is_same_v<Argument, int>) peer = argument;
      if constexpr (std::is_same_v<Argument, ncclComm_t>) comm = argument;
    };
    (take(args), ...);
    const CollectiveShape shape =
        set_collective_shape(frame, real, operation, count, type, reduction, peer, comm);
    const std::uint64_t part = collective_bytes(operation, shape.type, count, 1);
    // The rank of a gather's or scatter's root is not checked.
    const bool gives_all = operation == Collective::kReduceScatter || operation == Collective::kAllToAll;
    const bool gets_all = operation == Collective::kAllGather || operation == Collective::kAllToAll;
    const auto note = [](const void* buffer, std::uint64_t bytes) {
      if (bytes != kUnknownBytes) library_buffers.note(buffer, bytes, BufferUse::kCommunication);
    };
    note(given, gives_all ? shape.bytes : part);
    note(got, gets_all ? shape.bytes : part);
  }
};

}  // namespace

template <>
struct CallArguments<kFn_ncclAllReduce> : CollectiveArguments<Collective::kAllReduce> {};
template <>
struct CallArguments<kFn_ncclBroadcast> : CollectiveArguments<Collective::kBroadcast> {};
template <>
struct CallArguments<kFn_ncclBcast> : CollectiveArguments<Collective::kBroadcast> {};
template <>
struct CallArguments<kFn_ncclReduce> : CollectiveArguments<Collective::kReduce> {};
template <>
struct CallArguments<kFn_ncclAllGather> : CollectiveArguments<Collective::kAllGather> {};
template <>
struct CallArguments<kFn_ncclReduceScatter> : CollectiveArguments<Collective::kReduceScatter> {};
template <>
struct CallArguments<kFn_ncclAlltoAll> : CollectiveArguments<Collective::kAllToAll> {};
template <>
struct CallArguments<kFn_ncclGather> : CollectiveArguments<Collective::kGather> {};
template <>
struct CallArguments<kFn_ncclScatter> : CollectiveArguments<Collective::kScatter> {};
template <>
struct CallArguments<kFn_ncclSend> : CollectiveArguments<Collective::kSend> {};
template <>
struct CallArguments<kFn_ncclRecv> : CollectiveArguments<Collective::kRecv> {};

// Groups that the library itself opens inside ncclSend are ignored: the call around them has a shape.
template <>
struct CallArguments<kFn_ncclGroupStart> {
  static void tell(CallFrame& frame, void*) noexcept {
    if (ThreadState* thread = ThreadRegistry::current_if_any(); thread != nullptr)
      thread->collectives.start(frame.window());
  }
};

template <>
struct CallArguments<kFn_ncclGroupEnd> {
  static void tell(CallFrame& frame, void*) noexcept {
    ThreadState* thread = ThreadRegistry::current_if_any();
    if (thread == nullptr) return;
    CollectiveShape submitted;
    if (thread->collectives.end(frame.window(), submitted)) frame.shape(submitted);
  }
};

template <>
struct Observer<kFn_ncclCommDestroy> {
  static void before(ncclComm_t comm) noexcept { forget_communicator(comm); }
};

template <>
struct Observer<kFn_ncclCommAbort> : Observer<kFn_ncclCommDestroy> {};

template <>
struct Observer<kFn_ncclCommInitRank> {
  static void after(void*, int status, ncclComm_t* comm, int, const ncclUniqueId& unique_id, int) noexcept {
    on_communicator_created(status, comm, id_of(unique_id));
  }
};

template <>
struct Observer<kFn_ncclCommInitRankConfig> {
  static void after(void*, int status, ncclComm_t* comm, int, const ncclUniqueId& unique_id, int,
                    ncclConfig_t*) noexcept {
    on_communicator_created(status, comm, id_of(unique_id));
  }
};

// Each rank passes the same unique ids in the same order, and none of them belongs to another communicator.
template <>
struct Observer<kFn_ncclCommInitRankScalable> {
  static void after(void*, int status, ncclComm_t* comm, int, int, int count, const ncclUniqueId* unique_ids,
                    ncclConfig_t*) noexcept {
    if (succeeded(status) && unique_ids != nullptr && count > 0)
      on_communicator_created(status, comm, id_of(unique_ids[0]));
  }
};

// Only for this process: no other process needs the same id.
template <>
struct Observer<kFn_ncclCommInitAll> {
  static void after(void*, int status, ncclComm_t* all, int count, const int*) noexcept {
    if (!succeeded(status) || all == nullptr) return;
    const std::array<std::uint64_t, 3> own{static_cast<std::uint64_t>(now()),
                                           static_cast<std::uint64_t>(getpid()),
                                           reinterpret_cast<std::uintptr_t>(all)};
    const CommunicatorId id = communicator_id({reinterpret_cast<const char*>(own.data()), sizeof own});
    for (int i = 0; i < count; ++i) on_communicator_created(status, all + i, id);
  }
};

template <>
struct Observer<kFn_ncclCommSplit> {
  static void after(void*, int status, ncclComm_t parent, int color, int, ncclComm_t* comm,
                    ncclConfig_t*) noexcept {
    if (succeeded(status)) on_communicator_created(status, comm, communicator_ids.split(parent, color));
  }
};

}  // namespace inject

#include "libinject/model/nccl.def"
