// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libnccl.so.2: communicators without peers. A collective is one kernel on its stream; between GroupStart and
// GroupEnd it is submitted by GroupEnd, as with the vendor's, and not at all if a call of the group was
// rejected. Bcast, Send and Recv call other exported functions, as there. What is split off a communicator
// has all of its ranks, and is handed out at once, or at the end of the group that ncclCommSplit is called
// in.
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/sim/core/device.h"
#include "tests/sim/core/driver.h"
#include "tests/sim/core/library.h"
#include "tests/sim/defaults.h"

using namespace inject::sim;

namespace {
constexpr const char* kLibrary = "libnccl.so.2";
constexpr Domain kDomain = Domain::kNone;

struct Communicator {
  int rank = 0;
  int ranks = 1;
  int device = 0;
};

struct Pending {
  std::string kernel;
  int device = 0;
  cudaStream_t stream = nullptr;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Pending> pending;
  std::vector<std::pair<ncclComm_t*, ncclComm_t>> split;  // where to hand out what
};
// Leaked: exit handlers call into NCCL after the main thread's thread-local objects are gone.
Group& group() {
  thread_local Group& instance = *new Group;
  return instance;
}

#define NCCL_FUNCTION(name)                                      \
  static constinit FunctionSlot slot;                            \
  Function& function = slot.get(kLibrary, #name, Domain::kNone); \
  if (int fault = function.enter()) return static_cast<ncclResult_t>(fault)

Communicator* communicator_of(ncclComm_t comm) {
  return reinterpret_cast<Communicator*>(comm);
}

ncclResult_t submit(const Pending& work) {
  Context* before = current_context();
  set_current_context(primary_context(work.device));
  int error = library::launch(work.kernel.c_str(), 16, 544, work.stream);
  if (before != nullptr) set_current_context(before);
  return error == 0 ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t enqueue(const std::string& function, std::size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  const Communicator* communicator = communicator_of(comm);
  if (communicator == nullptr || type < 0 || type >= ncclNumTypes || peer < 0 ||
      peer >= communicator->ranks) {
    if (group().depth > 0) group().error = ncclInvalidArgument;
    return ncclInvalidArgument;
  }
  if (count == 0) return ncclSuccess;
  Pending work{"ncclDevKernel_" + function.substr(4), communicator->device, stream};
  if (group().depth == 0) return submit(work);
  group().pending.push_back(std::move(work));
  return ncclSuccess;
}

// Collectives: (…, count, type, [reduction], [root], communicator, stream).
template <class... A>
int sim_default_work(const Function& function, SimCategory category, A... arguments) {
  if constexpr (sizeof...(A) > 4) {
    if (category != SimCategory::kCollective) return 0;
    const std::tuple<A...> all(arguments...);
    std::size_t count = 0;
    ncclDataType_t type = ncclInt8;
    int root = 0;
    const auto take = [&]<class T>(const T& argument) {
      if constexpr (std::is_same_v<T, std::size_t>) count = argument;
      if constexpr (std::is_same_v<T, ncclDataType_t>) type = argument;
      if constexpr (std::is_same_v<T, int>) root = argument;
    };
    std::apply([&](const auto&... argument) { (take(argument), ...); }, all);
    if constexpr (std::is_same_v<std::tuple_element_t<sizeof...(A) - 2, std::tuple<A...>>, ncclComm_t>) {
      return enqueue(function.name, count, type, root, std::get<sizeof...(A) - 2>(all),
                     std::get<sizeof...(A) - 1>(all));
    }
  }
  return 0;
}

ncclResult_t send_or_receive(const std::string& function, std::size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
  if (ncclResult_t result = ncclGroupStart(); result != ncclSuccess) return result;
  const ncclResult_t enqueued = enqueue(function, count, type, peer, comm, stream);
  const ncclResult_t ended = ncclGroupEnd();
  return enqueued != ncclSuccess ? enqueued : ended;
}

ncclResult_t create(ncclComm_t* comm, int ranks, int rank, int device) {
  if (comm == nullptr || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (drv::initialise() != CUDA_SUCCESS) return ncclUnhandledCudaError;
  *comm = reinterpret_cast<ncclComm_t>(new Communicator{rank, ranks, device});
  return ncclSuccess;
}

int current_device() {
  return current_context() != nullptr ? current_context()->device : 0;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  NCCL_FUNCTION(ncclGetVersion);
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  NCCL_FUNCTION(ncclGetUniqueId);
  // A random number and an address; the rest is zero.
  std::memset(uniqueId, 0, sizeof *uniqueId);
  std::random_device source;
  for (std::size_t i = 0; i < 3; ++i) {
    const unsigned number = source();
    std::memcpy(uniqueId->internal + i * sizeof number, &number, sizeof number);
  }
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "unhandled cuda error";
}
// NOLINTBEGIN(misc-misplaced-const): the vendor's declarations
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  NCCL_FUNCTION(ncclCommCount);
  // The vendor's functions leave ranges: this is the one that a profiler may call.
  struct Range {
    Range() { nvtxRangePushA("ncclCommCount"); }
    ~Range() { nvtxRangePop(); }
  } range;
  if (comm == nullptr || count == nullptr) return ncclInvalidArgument;
  *count = communicator_of(comm)->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  NCCL_FUNCTION(ncclCommUserRank);
  *rank = communicator_of(comm)->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  NCCL_FUNCTION(ncclCommCuDevice);
  *device = communicator_of(comm)->device;
  return ncclSuccess;
}
// NOLINTEND(misc-misplaced-const)
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  NCCL_FUNCTION(ncclCommInitAll);
  for (int i = 0; i < ndev; ++i)
    if (ncclResult_t result = create(comm + i, ndev, i, devlist != nullptr ? devlist[i] : i);
        result != ncclSuccess)
      return result;
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId, int rank) {
  NCCL_FUNCTION(ncclCommInitRank);
  return create(comm, nranks, rank, current_device());
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId, int rank, ncclConfig_t*) {
  NCCL_FUNCTION(ncclCommInitRankConfig);
  return create(comm, nranks, rank, current_device());
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int nId, ncclUniqueId* ids,
                                      ncclConfig_t*) {
  NCCL_FUNCTION(ncclCommInitRankScalable);
  if (nId <= 0 || nId > nranks || ids == nullptr) return ncclInvalidArgument;
  return create(comm, nranks, rank, current_device());
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int, ncclComm_t* comm, ncclConfig_t*) {
  NCCL_FUNCTION(ncclCommSplit);
  if (parent == nullptr || comm == nullptr || color < NCCL_SPLIT_NOCOLOR) return ncclInvalidArgument;
  *comm = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  const Communicator& from = *communicator_of(parent);
  ncclComm_t made = nullptr;
  if (const ncclResult_t result = create(&made, from.ranks, from.rank, from.device); result != ncclSuccess)
    return result;
  if (group().depth == 0) {
    *comm = made;
  } else {
    group().split.emplace_back(comm, made);
  }
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  NCCL_FUNCTION(ncclCommDestroy);
  delete communicator_of(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  NCCL_FUNCTION(ncclCommAbort);
  delete communicator_of(comm);
  return ncclSuccess;
}
ncclResult_t ncclGroupStart(void) {
  NCCL_FUNCTION(ncclGroupStart);
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  NCCL_FUNCTION(ncclGroupEnd);
  if (group().depth == 0) return ncclInvalidUsage;
  if (--group().depth > 0) return ncclSuccess;
  for (const auto& [place, comm] : std::exchange(group().split, {})) *place = comm;
  std::vector<Pending> pending;
  pending.swap(group().pending);
  if (const ncclResult_t error = std::exchange(group().error, ncclSuccess); error != ncclSuccess)
    return error;
  for (const Pending& work : pending)
    if (ncclResult_t result = submit(work); result != ncclSuccess) return result;
  return ncclSuccess;
}
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  NCCL_FUNCTION(ncclBcast);
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  NCCL_FUNCTION(ncclSend);
  return send_or_receive("ncclSend", count, datatype, peer, comm, stream);
}
ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  NCCL_FUNCTION(ncclRecv);
  return send_or_receive("ncclRecv", count, datatype, peer, comm, stream);
}
}

#define SIM_SKIP_ncclCommInitAll ~, 1
#define SIM_SKIP_ncclCommInitRank ~, 1
#define SIM_SKIP_ncclCommInitRankConfig ~, 1
#define SIM_SKIP_ncclCommInitRankScalable ~, 1
#define SIM_SKIP_ncclCommSplit ~, 1
#define SIM_SKIP_ncclCommDestroy ~, 1
#define SIM_SKIP_ncclCommAbort ~, 1
#define SIM_SKIP_ncclBcast ~, 1
#define SIM_SKIP_ncclSend ~, 1
#define SIM_SKIP_ncclRecv ~, 1
#define SIM_SKIP_ncclGroupStart ~, 1
#define SIM_SKIP_ncclGroupEnd ~, 1

#include "libinject/model/nccl.def"
