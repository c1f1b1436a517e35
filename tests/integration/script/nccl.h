// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// NCCL's calls with communicators, by operations (script.h):
//
//   comm:NAME:RANKS[:ID[:WAY]]                         a communicator, of one rank here; ID: the text that is
//                                                      its unique id, else one of the library's; WAY: config,
//                                                      scalable
//   comm_all:NAME:NAME                                 ncclCommInitAll of two devices
//   comm_split:NAME:COMM:COLOR                         COLOR may be `none`
//   comm_destroy:NAME  comm_abort:NAME
//   nccl:FUNCTION:COMM:COUNT[:TYPE[:ARGUMENT[:STREAM]]]   FUNCTION: AllReduce, Send, ...; COMM may be `none`,
//                                                      null; TYPE, a number: 7, float, unless given;
//                                                      ARGUMENT: the reduction of AllReduce and
//                                                      ReduceScatter, else the root or peer
#pragma once

#include <cuda_runtime_api.h>

#include "tests/integration/script/script.h"

namespace script {

/// `stream_of`: the program's streams by name.
void add_nccl(Operations& operations, cudaStream_t (*stream_of)(const std::string&));

}  // namespace script
