// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// NCCL's calls with communicators, by operations (script.h):
//
//   comm:NAME:RANKS  comm_destroy:NAME                 a communicator, of one rank here
//   nccl:FUNCTION:COMM:COUNT[:TYPE[:ARGUMENT[:STREAM]]]   FUNCTION: AllReduce, Send, ...; COMM may be `none`,
//                                                      null; TYPE, a number: 7, float, unless given; ARGUMENT:
//                                                      the reduction of AllReduce and ReduceScatter, else the
//                                                      root or peer
#pragma once

#include "tests/integration/script/script.h"

namespace script {

void add_nccl(Operations& operations);

}  // namespace script
