// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/derived_products.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libinject/analysis/rnn_products.h"

namespace inject {

namespace {

/// True if a kernel of this name may contain products, or parts of them: all but those whose names show that
/// they contain none. A kernel that adds up a product's partial sums belongs to the product.
bool may_multiply(std::string_view name) {
  if (product_role_of(name) != ProductRole::kHelps || family_of(name, Category::kRnn) == Family::kGemm)
    return true;
  constexpr std::string_view kPartialSums[] = {"splitKreduce", "split_k_kernel", "ReduceSplitK"};
  return std::any_of(std::begin(kPartialSums), std::end(kPartialSums),
                     [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

/// Cached, because it may take long to determine, and many rows have the same kernels.
using ProductKernels = std::unordered_map<std::string_view, bool>;

/// The same calls, with only the kernels that may contain products.
CallShapeRow products_of(const CallShapeRow& call, ProductKernels& known) {
  CallShapeRow row;
  row.function = call.function;
  row.work = call.work;
  row.work.bytes = 0;
  row.entry = call.entry;
  row.entry.gpu.sum = 0;
  row.entry.kernels = 0;
  for (const auto& [name, share] : call.kernels) {
    const auto [place, is_new] = known.try_emplace(name);
    if (is_new) place->second = may_multiply(name);
    if (!place->second) continue;
    row.kernels.emplace_back(name, share);
    row.entry.gpu.sum += share.time;
    row.entry.kernels += share.count;
  }
  return row;
}

/// Sizes are 0 if they differ.
RnnProduct together(std::span<const RnnProduct> products) {
  RnnProduct all = products[0];
  for (const RnnProduct& product : products.subspan(1)) {
    if (product.m != all.m) all.m = 0;
    if (product.n != all.n) all.n = 0;
    if (product.k != all.k) all.k = 0;
    all.count += product.count;
    all.flops += product.flops;
  }
  return all;
}

void set_product(CallShapeRow& row, const RnnShape& rnn, const RnnProduct& product) {
  GemmShape shape;
  shape.op_a = product.op_a;
  shape.op_b = product.op_b;
  shape.a = shape.b = shape.c = shape.d = rnn.type;
  shape.compute = rnn.compute;
  shape.m = static_cast<std::int64_t>(product.m);
  shape.n = static_cast<std::int64_t>(product.n);
  shape.k = static_cast<std::int64_t>(product.k);
  shape.batch = static_cast<std::uint32_t>(product.count);
  shape.flops = product.flops;
  row.shape = shape;
  row.work.flops = product.flops;
}

bool is_network(const CallShapeRow& call) {
  return call.entry.other ? function_category(call.entry.function) == Category::kRnn
                          : call.shape.kind() == ShapeKind::kRnn;
}

struct NetworkCalls {
  CallShapeRow row;  ///< with the kernels that may have products
  CallShape shape;
};

}  // namespace

std::deque<DerivedProducts> derived_products(std::span<const CallReport> calls, const RunInfo& run) {
  using Kind = DerivedProducts::Kind;
  ProductKernels known;
  std::vector<NetworkCalls> networks;
  for (const CallReport& report : calls)
    if (is_network(*report.call)) networks.push_back({products_of(*report.call, known), report.call->shape});
  std::stable_sort(networks.begin(), networks.end(), [](const NetworkCalls& a, const NetworkCalls& b) {
    if (a.row.entry.other != b.row.entry.other) return b.row.entry.other;
    return a.row.entry.gpu.sum > b.row.entry.gpu.sum;
  });
  std::deque<DerivedProducts> all;
  for (NetworkCalls& network : networks) {
    CallShapeRow& row = network.row;
    std::vector<RnnProduct> products;
    RnnShape rnn;
    if (!row.entry.other) {
      rnn = network.shape.as<RnnShape>();
      products = rnn_products(rnn);
    }
    if (!products.empty()) set_product(row, rnn, together(products));
    DerivedProducts& call = all.emplace_back();
    call.row = row;
    call.report = call_report(call.row, run);
    row.entry.gpu = {};
    row.entry.kernels = 0;
    row.kernels.clear();
    for (const RnnProduct& product : products) {
      set_product(row, rnn, product);
      DerivedProducts& part = all.emplace_back();
      part.kind = Kind::kProduct;
      part.row = row;
      part.report.call = &part.row;
    }
  }
  return all;
}

}  // namespace inject
