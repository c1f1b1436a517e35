// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The products within a recurrent network's call: compared with a network that is stepped through, and as
// rows of gemm_sum.csv.
#include "libinject/analysis/rnn_products.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "libinject/analysis/flops.h"
#include "libinject/output/table_files.h"
#include "libinject/report/report.h"
#include "tests/unit/catch.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

using ProductSize = std::tuple<char, char, std::uint64_t, std::uint64_t, std::uint64_t>;
struct ProductSum {
  std::uint64_t count = 0;
  std::uint64_t flops = 0;
  bool operator==(const ProductSum&) const = default;
};
using ProductSums = std::map<ProductSize, ProductSum>;

struct Network {
  RnnShape shape;
  std::vector<std::uint32_t> lengths;
};

Network network(std::uint8_t direction, std::uint8_t cell, std::vector<std::uint32_t> lengths) {
  Network made;
  RnnShape& shape = made.shape;
  shape.direction = direction;
  shape.cell = cell;
  shape.layers = 1;
  shape.type = DataType::kF16;
  shape.compute = ComputeType::kF32;
  shape.batch = static_cast<std::uint32_t>(lengths.size());
  for (const std::uint32_t length : lengths) {
    shape.length = std::max(shape.length, length);
    shape.steps += length;
  }
  made.lengths = std::move(lengths);
  return made;
}

/// Goes through layers, directions and steps one by one. Products with the state whose number of columns
/// varies are added up under 0 columns.
ProductSums stepped(const Network& of) {
  const RnnShape& shape = of.shape;
  ProductSums sums;
  const bool differ =
      std::any_of(of.lengths.begin(), of.lengths.end(), [&](auto length) { return length != of.lengths[0]; });
  const auto add = [&](std::uint64_t rows, std::uint64_t width, std::uint64_t columns, bool of_step) {
    if (width == 0) return;
    const std::uint64_t shown = of_step && differ ? 0 : columns;
    const ProductSize sizes[] = {
        {'T', 'N', rows, shown, width}, {'N', 'N', width, shown, rows}, {'N', 'T', width, rows, shown}};
    ProductSum& sum = sums[sizes[shape.direction - 1]];
    ++sum.count;
    sum.flops += 2 * rows * width * columns;
  };
  const std::uint64_t gates = shape.cell == 3 ? 4 : shape.cell == 4 ? 3 : 1;
  const std::uint64_t state = shape.projection_size != 0 ? shape.projection_size : shape.hidden_size;
  std::uint64_t input = shape.input_size;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (int way = 0; way < (shape.bidirectional != 0 ? 2 : 1); ++way) {
      add(gates * shape.hidden_size, input, shape.steps, false);
      std::vector<std::uint64_t> active;
      for (std::uint32_t step = 0; step < shape.length; ++step) {
        active.push_back(static_cast<std::uint64_t>(
            std::count_if(of.lengths.begin(), of.lengths.end(), [&](auto length) { return length > step; })));
      }
      // One product sums a weight's gradient over the steps.
      if (shape.direction == 3) active = {shape.steps};
      for (const std::uint64_t columns : active) {
        add(gates * shape.hidden_size, state, columns, shape.direction != 3);
        if (shape.projection_size != 0)
          add(shape.projection_size, shape.hidden_size, columns, shape.direction != 3);
      }
    }
    input = (shape.bidirectional != 0 ? 2 : 1) * state;
  }
  return sums;
}

ProductSums derived_sums(const RnnShape& shape) {
  ProductSums sums;
  for (const RnnProduct& product : rnn_products(shape)) {
    const auto [place, is_new] =
        sums.try_emplace({product.op_a, product.op_b, product.m, product.n, product.k},
                         ProductSum{product.count, product.flops});
    CHECK(is_new);
    if (product.n != 0) CHECK(product.flops == 2 * product.m * product.n * product.k * product.count);
  }
  return sums;
}

/// A run with calls of one network, each with these kernels.
struct NetworkRun : StatsRun {
  RunInfo info;
  std::uint32_t calls = 0;

  void call(const char* function, const CallShape& shape,
            std::initializer_list<std::pair<const char*, Nanoseconds>> kernels) {
    CallEvent event = call_event(function, 10);
    event.begin += calls * 1000;
    event.end = event.begin + 10;
    event.shape = shapes.intern(shape);
    event.owns_shape = true;
    event.call = ++calls;
    statistics.add(event);
    for (const auto& [name, time] : kernels) {
      KernelEvent launched = kernel(name, time);
      launched.launch.shape = event.shape;
      launched.launch.owner = event.call;
      launched.launch.thread = event.thread;
      launched.launch.chain = chain_of({function});
      statistics.add(launched);
    }
  }

  /// Texts in the table have no commas.
  std::vector<std::map<std::string, std::string>> products() const {
    const Report report = build_report(statistics, info);
    std::vector<std::map<std::string, std::string>> rows;
    for (const TableFile& table : table_files()) {
      if (table.name != "gemm_sum.csv") continue;
      const auto fields = [](std::string_view line) {
        std::vector<std::string> cells(1);
        for (const char c : line) {
          if (c == ',') {
            cells.emplace_back();
          } else {
            cells.back() += c;
          }
        }
        return cells;
      };
      const std::vector<std::string> columns = fields(header_of(table, report));
      const std::string text = table_text(table, report);
      for (std::size_t begin = text.find('\n') + 1; begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        const std::vector<std::string> cells = fields(std::string_view(text).substr(begin, end - begin));
        REQUIRE(cells.size() == columns.size());
        auto& row = rows.emplace_back();
        for (std::size_t i = 0; i < cells.size(); ++i) row[columns[i]] = cells[i];
        begin = end + 1;
      }
    }
    return rows;
  }
};

void check_cells(const std::map<std::string, std::string>& row,
                 std::initializer_list<std::pair<const char*, const char*>> cells) {
  for (const auto& [column, cell] : cells) {
    INFO(column);
    CHECK(row.at(column) == cell);
  }
}

}  // namespace

TEST_CASE("The products of generated networks are those of their steps, and come to their operations",
          "[rnn]") {
  std::mt19937 random(20);
  const auto any = [&](std::uint32_t least, std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(least, most)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::uint32_t> lengths(any(1, 6), any(1, 9));
    if (any(0, 1) != 0) {
      for (std::uint32_t& length : lengths) length = any(0, 9);
      lengths[0] = 9;
    }
    Network of = network(static_cast<std::uint8_t>(any(1, 3)), static_cast<std::uint8_t>(any(1, 4)), lengths);
    of.shape.layers = any(1, 4);
    of.shape.bidirectional = static_cast<std::uint8_t>(any(0, 1));
    // Few sizes, so that products of different kinds sometimes have the same size; 0: CUDNN_SKIP_INPUT.
    of.shape.hidden_size = any(1, 3) * 4;
    of.shape.input_size = any(0, 4) * 4;
    of.shape.projection_size = any(0, 1) != 0 ? any(1, 3) : 0;
    INFO(i);
    const ProductSums sums = derived_sums(of.shape);
    CHECK(sums == stepped(of));
    CHECK(sums.size() <= 4);
    std::uint64_t flops = 0;
    for (const auto& [size, sum] : sums) flops += sum.flops;
    CHECK(flops == rnn_flops(of.shape));
  }
}

TEST_CASE("What is not known of a network has no products", "[rnn]") {
  const Network known = network(1, 3, {5, 5});
  const auto none = [&](auto change) {
    RnnShape shape = known.shape;
    shape.hidden_size = shape.input_size = 8;
    CHECK_FALSE(rnn_products(shape).empty());
    change(shape);
    return rnn_products(shape).empty();
  };
  CHECK(none([](RnnShape& shape) { shape.cell = 0; }));
  CHECK(none([](RnnShape& shape) { shape.direction = 0; }));
  CHECK(none([](RnnShape& shape) { shape.layers = 0; }));
  CHECK(none([](RnnShape& shape) { shape.steps = 0; }));
  CHECK(none([](RnnShape& shape) { shape.hidden_size = 0; }));
  // More sequences than have known lengths.
  CHECK(none([](RnnShape& shape) { shape.batch = RnnShape::kMaxSequences + 1; }));
  CHECK(none([](RnnShape& shape) { shape.hidden_size = shape.layers = 0xFFFF'FFFF; }));
  RnnShape shape = known.shape;
  shape.cell = 0;
  CHECK_FALSE(rnn_flops(shape).has_value());
}

TEST_CASE("gemm_sum.csv has a network's products, and their time once", "[rnn][output]") {
  RnnShape shape = network(1, 4, std::vector<std::uint32_t>(32, 300)).shape;
  shape.layers = 5;
  shape.bidirectional = 1;
  shape.input_size = 1312;
  shape.hidden_size = 800;
  NetworkRun run;
  for (int i = 0; i < 2; ++i) {
    run.call("cudnnRNNForward", shape,
             {{"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", 600},
              {"GRU_elementWise_fp", 70},
              {"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", 400},
              {"splitKreduce_kernel", 5}});
  }
  GemmShape other;
  other.m = other.n = other.k = 8;
  other.flops = 1024;
  run.call("cublasGemmEx", other, {{"nvjet_hsh_64x8", 90}});
  run.statistics.settle_window(1, 0, 100'000);

  const auto rows = run.products();
  REQUIRE(rows.size() == 5);
  check_cells(rows[0], {{"API", "cudnnRNNForward"},
                        {"Derived", "call"},
                        {"M", "2400"},
                        {"N", ""},
                        {"K", ""},
                        {"Op A", "T"},
                        {"Op B", "N"},
                        {"Type A", "fp16"},
                        {"Batch", "3010"},
                        {"Lda", ""},
                        {"Calls", "2"},
                        {"Host Time (ns)", ""},
                        {"GPU Time (ns)", "2010"},  // without that of the cells
                        {"GPU Time (%)", "95.7"},
                        {"GPU Avg (ns)", "1005.0"},
                        {"GPU Min (ns)", ""},
                        {"Kernels", "6"},
                        {"FLOPs", "1079377920000"},
                        {"Eligible", ""}});
  const struct {
    const char* n;
    const char* k;
    const char* batch;
    const char* flops;
  } products[] = {{"9600", "1312", "2", "120913920000"},
                  {"9600", "1600", "8", "589824000000"},
                  {"32", "800", "3000", "368640000000"}};
  for (int i = 0; i < 3; ++i) {
    INFO(i);
    check_cells(rows[static_cast<std::size_t>(i) + 1], {{"Derived", "product"},
                                                        {"M", "2400"},
                                                        {"N", products[i].n},
                                                        {"K", products[i].k},
                                                        {"Batch", products[i].batch},
                                                        {"FLOPs", products[i].flops},
                                                        {"Calls", "2"},
                                                        {"GPU Time (%)", ""},
                                                        {"GPU Time (ns)", ""},
                                                        {"GPU Avg (ns)", ""},
                                                        {"Kernels", ""},
                                                        {"TFLOP/s", ""},
                                                        {"Tensor Cores", ""},
                                                        {"Kernel Names", ""}});
  }
  check_cells(rows[4], {{"API", "cublasGemmEx"}, {"Derived", ""}, {"GPU Time (%)", "4.3"}});
}

TEST_CASE("Products of sequences that end at different steps have no N", "[rnn][output]") {
  RnnShape shape = network(2, 3, {20, 15, 9, 3}).shape;
  shape.input_size = shape.hidden_size = 8;
  NetworkRun run;
  run.call("cudnnRNNBackwardData_v8", shape, {{"RNN_blockPersist_bp_LSTM_HMMA", 600}});
  run.statistics.settle_window(1, 0, 100'000);
  const auto rows = run.products();
  REQUIRE(rows.size() == 3);
  check_cells(rows[0], {{"M", "8"}, {"N", ""}, {"K", "32"}, {"Op A", "N"}, {"GPU Time (ns)", "600"}});
  check_cells(rows[1], {{"N", "47"}, {"Batch", "1"}, {"FLOPs", "24064"}});
  check_cells(rows[2], {{"N", ""}, {"Batch", "20"}, {"FLOPs", "24064"}});
}
