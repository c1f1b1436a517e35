// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// NCCL's calls with communicators, by operations (script.h):
//
//   comm:NAME:RANKS  comm_destroy:NAME                 a communicator, of one rank here
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
