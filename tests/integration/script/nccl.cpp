// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/integration/script/nccl.h"

#include <nccl.h>

#include <map>
#include <mutex>

namespace script {

namespace {

std::mutex mutex;  // the map below
std::map<std::string, ncclComm_t> communicators;
cudaStream_t (*stream_by_name)(const std::string&) = nullptr;

void make_communicator(const Arguments& a) {
  ncclComm_t communicator = nullptr;
  report("ncclCommInitRank",
         ncclCommInitRank(&communicator, static_cast<int>(a.number(2)), ncclUniqueId{}, 0));
  const std::lock_guard lock(mutex);
  communicators[a.text(1)] = communicator;
}

ncclComm_t communicator_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  return name == "none" ? nullptr : communicators.at(name);
}

// The simulation does not look at what is sent.
void call(const Arguments& a) {
  const std::string function = a.text(1);
  ncclComm_t comm = communicator_of(a.text(2));
  const std::size_t count = a.number(3);
  const auto type = static_cast<ncclDataType_t>(a.number(4, ncclFloat));
  const auto peer = static_cast<int>(a.number(5));
  const auto reduction = static_cast<ncclRedOp_t>(a.number(5));
  cudaStream_t stream = stream_by_name(a.text(6));
  ncclResult_t result = ncclInvalidUsage;
  if (function == "AllReduce") result = ncclAllReduce(nullptr, nullptr, count, type, reduction, comm, stream);
  if (function == "Broadcast") result = ncclBroadcast(nullptr, nullptr, count, type, peer, comm, stream);
  if (function == "Bcast") result = ncclBcast(nullptr, count, type, peer, comm, stream);
  if (function == "Reduce") result = ncclReduce(nullptr, nullptr, count, type, ncclMax, peer, comm, stream);
  if (function == "AllGather") result = ncclAllGather(nullptr, nullptr, count, type, comm, stream);
  if (function == "ReduceScatter")
    result = ncclReduceScatter(nullptr, nullptr, count, type, reduction, comm, stream);
  if (function == "Send") result = ncclSend(nullptr, count, type, peer, comm, stream);
  if (function == "Recv") result = ncclRecv(nullptr, count, type, peer, comm, stream);
  report(("nccl" + function).c_str(), result);
}

}  // namespace

void add_nccl(Operations& operations, cudaStream_t (*stream_of)(const std::string&)) {
  stream_by_name = stream_of;
  operations["comm"] = make_communicator;
  operations["comm_destroy"] = [](const Arguments& a) {
    report("ncclCommDestroy", ncclCommDestroy(communicator_of(a.text(1))));
  };
  operations["nccl"] = call;
}

}  // namespace script
