// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Attention in a cuDNN plan's graph, as one operation or composed of several. Pure.
#pragma once

#include <cstdint>

#include "libinject/capture/hooks/plan_graph.h"
#include "libinject/model/call_shape.h"

namespace inject {

/// The shape of a node that is the whole attention.
CallShape attention_shape(const PlanGraph& graph, const PlanGraph::Node& node, std::uint32_t notes) noexcept;

/// The shape of a graph that composes it: Q Kᵀ, softmax, the product with V; for the gradient, five products.
/// Empty if the graph is neither.
CallShape composed_attention_shape(const PlanGraph& graph, std::uint32_t notes) noexcept;

}  // namespace inject
