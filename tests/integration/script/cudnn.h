// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// cuDNN's calls with descriptors, by operations (script.h):
//
//   conv:DIRECTION[:BATCH[:GROUPS]]        an older function; DIRECTION: forward, data, filter, fused
//   conv_null:DIRECTION                    the same with a descriptor that is null
//   plan:NAME:DIRECTION[:BATCH[:ENGINE]]   creates a plan of the graph API; DIRECTION: forward, data, filter,
//                                          fused, matmul, attention, pooling
//   use:DIRECTION[:BATCH]                  creates a plan, executes it once, and destroys it
//   bad_plan:NAME                          a plan that can't be finalized
//   execute:NAME  drop:NAME                executes or destroys the plan
//   rnn:DIRECTION[:VARIANT]                DIRECTION: forward, data, weights; VARIANT: even, projected, skip,
//                                          many
//   norm:DIRECTION                         DIRECTION: training, backward, inference
//   last_text                              prints the result of cudnnGetLastErrorString
#pragma once

#include "tests/integration/script/script.h"

namespace script {

void add_cudnn(Operations& operations);

}  // namespace script
