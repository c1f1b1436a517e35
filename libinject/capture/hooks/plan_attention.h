// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Attention in a cuDNN plan's graph, where it is one operation and where it is spelled out. Pure.
#pragma once

#include <cstdint>

#include "libinject/capture/hooks/plan_graph.h"
#include "libinject/model/call_shape.h"

namespace inject {

/// Of a node that is all of the attention.
CallShape attention_shape(const PlanGraph& graph, const PlanGraph::Node& node, std::uint32_t notes) noexcept;

/// Of a graph that spells it out: Q Kᵀ, softmax, its product with V; of the gradient five products. Empty
/// where the graph is none of these.
CallShape composed_attention_shape(const PlanGraph& graph, std::uint32_t notes) noexcept;

}  // namespace inject
