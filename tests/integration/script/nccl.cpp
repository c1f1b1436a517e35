// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/integration/script/nccl.h"

#include <nccl.h>

#include <map>
#include <mutex>

namespace script {

namespace {

std::mutex mutex;  // protects the map below
std::map<std::string, ncclComm_t> communicators;
cudaStream_t (*stream_by_name)(const std::string&) = nullptr;

ncclComm_t communicator_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  return name == "none" ? nullptr : communicators.at(name);
}

// Where its handle is, permanently: the library may write it later.
ncclComm_t* place_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  return &communicators[name];
}

ncclUniqueId unique_id(const std::string& text) {
  ncclUniqueId id{};
  if (text.empty()) {
    report("ncclGetUniqueId", ncclGetUniqueId(&id));
  } else {
    text.copy(static_cast<char*>(id.internal), sizeof id.internal);
  }
  return id;
}

void make_communicator(const Arguments& a) {
  const std::string way = a.text(4);
  const auto ranks = static_cast<int>(a.number(2));
  ncclComm_t* comm = place_of(a.text(1));
  ncclUniqueId ids[2] = {unique_id(a.text(3)), {}};
  if (way == "config") {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    report("ncclCommInitRankConfig", ncclCommInitRankConfig(comm, ranks, ids[0], 0, &config));
  } else if (way == "scalable") {
    report("ncclCommInitRankScalable", ncclCommInitRankScalable(comm, ranks, 0, 2, ids, nullptr));
  } else {
    report("ncclCommInitRank", ncclCommInitRank(comm, ranks, ids[0], 0));
  }
}

void make_all(const Arguments& a) {
  ncclComm_t all[2] = {};
  report("ncclCommInitAll", ncclCommInitAll(all, 2, nullptr));
  *place_of(a.text(1)) = all[0];
  *place_of(a.text(2)) = all[1];
}

void split_communicator(const Arguments& a) {
  ncclComm_t parent = communicator_of(a.text(2));
  const std::string color = a.text(3);
  report("ncclCommSplit",
         ncclCommSplit(parent, color == "none" ? NCCL_SPLIT_NOCOLOR : static_cast<int>(a.number(3)), 0,
                       place_of(a.text(1)), nullptr));
}

// The simulation ignores the data sent.
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
  if (function == "AlltoAll") result = ncclAlltoAll(nullptr, nullptr, count, type, comm, stream);
  if (function == "Gather") result = ncclGather(nullptr, nullptr, count, type, peer, comm, stream);
  if (function == "Scatter") result = ncclScatter(nullptr, nullptr, count, type, peer, comm, stream);
  if (function == "Send") result = ncclSend(nullptr, count, type, peer, comm, stream);
  if (function == "Recv") result = ncclRecv(nullptr, count, type, peer, comm, stream);
  report(("nccl" + function).c_str(), result);
}

}  // namespace

void add_nccl(Operations& operations, cudaStream_t (*stream_of)(const std::string&)) {
  stream_by_name = stream_of;
  operations["comm"] = make_communicator;
  operations["comm_all"] = make_all;
  operations["comm_split"] = split_communicator;
  operations["comm_abort"] = [](const Arguments& a) {
    report("ncclCommAbort", ncclCommAbort(communicator_of(a.text(1))));
  };
  operations["comm_destroy"] = [](const Arguments& a) {
    report("ncclCommDestroy", ncclCommDestroy(communicator_of(a.text(1))));
  };
  operations["nccl"] = call;
}

}  // namespace script
