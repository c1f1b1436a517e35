// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// cuptiFinalize while a traced graph is alive spoils the process; unsubscribing does not, nor does finalizing
// once the graph is gone. A process of its own, as the error stays.
#include <cstdio>

#include "tests/sim/client.h"

using namespace inject::sim;

namespace {

int failures = 0;
void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s\n", what);
  ++failures;
}

cudaGraphExec_t traced_graph(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "capture");
  expect(launch(test_kernel("_Z8in_graphv"), stream) == cudaSuccess, "captured launch");
  expect(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "end of capture");
  expect(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess, "instantiation");
  expect(cudaGraphLaunch(exec, stream) == cudaSuccess, "graph launch");
  expect(cudaStreamSynchronize(stream) == cudaSuccess, "synchronization");
  return exec;
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  expect(cudaStreamCreate(&stream) == cudaSuccess, "stream");
  {
    Client client;
    client.trace();
    cudaGraphExec_t exec = traced_graph(stream);
    expect(cudaGraphExecDestroy(exec) == cudaSuccess, "destruction");
  }
  cudaGraphExec_t exec = nullptr;
  {
    Client client;
    client.trace();
    exec = traced_graph(stream);
    expect(cudaGraphLaunch(exec, stream) == cudaSuccess, "launch while attached");
  }
  expect(cudaGraphLaunch(exec, stream) == cudaSuccess, "launch after finalize");
  Client client;
  client.trace();
  expect(cudaGraphLaunch(exec, stream) == cudaErrorLaunchFailure, "launch after the next attachment");
  expect(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "an error that stays");
  return failures == 0 ? 0 : 1;
}
