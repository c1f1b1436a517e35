// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// FLOPs of PyTorch's operators, from the sizes of their inputs. The expected values are sums of matrix
// products, as in torch.utils.flop_counter; tests/integration/test_torch_code.py compares with it.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "libinject/capture/torch/operator_work.h"
#include "libinject/model/code_place.h"
#include "libinject/record/open_operators.h"

namespace inject {
namespace {

using Inputs = std::vector<OperatorInput>;

OperatorInput tensor(std::initializer_list<std::uint32_t> sizes, DataType type = DataType::kBf16) {
  OperatorInput input;
  input.kind = OperatorInput::Kind::kTensor;
  input.type = type;
  for (const std::uint32_t size : sizes) input.sizes[input.dimensions++] = size;
  return input;
}
OperatorInput none() {
  OperatorInput input;
  input.kind = OperatorInput::Kind::kNone;
  return input;
}

OperatorShape work(const std::string& name, const Inputs& inputs) {
  const OperatorFormula* formula = operator_formula("aten::" + name);
  REQUIRE(formula != nullptr);
  return operator_work(*formula, inputs);
}
std::uint64_t flops(const std::string& name, const Inputs& inputs) {
  return work(name, inputs).flops;
}

std::uint64_t matmul(std::uint64_t batch, std::uint64_t m, std::uint64_t k, std::uint64_t n) {
  return 2 * batch * m * k * n;
}

}  // namespace

TEST_CASE("Products of matrices", "[operator_work]") {
  std::mt19937 random(5);
  const auto size = [&] { return std::uint32_t{1} + static_cast<std::uint32_t>(random() % 5000); };
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t m = size();
    const std::uint32_t k = size();
    const std::uint32_t n = size();
    const std::uint32_t batch = size();
    const OperatorInput bias = tensor({n});
    for (const char* name : {"mm", "_int_mm", "_scaled_mm", "_scaled_mm_v2"})
      CHECK(flops(name, {tensor({m, k}), tensor({k, n})}) == matmul(1, m, k, n));
    for (const char* name : {"addmm", "addmm_", "_addmm_activation"})
      CHECK(flops(name, {bias, tensor({m, k}), tensor({k, n}), {}, {}}) == matmul(1, m, k, n));
    CHECK(flops("bmm", {tensor({batch, m, k}), tensor({batch, k, n})}) == matmul(batch, m, k, n));
    for (const char* name : {"baddbmm", "baddbmm_", "addbmm", "addbmm_"})
      CHECK(flops(name, {bias, tensor({batch, m, k}), tensor({batch, k, n})}) == matmul(batch, m, k, n));
    CHECK(flops("mm", {tensor({m, k}), tensor({k + 1, n})}) == 0);
    CHECK(flops("bmm", {tensor({batch, m, k}), tensor({batch + 1, k, n})}) == 0);
    CHECK(flops("mm", {tensor({m, k}), tensor({batch, k, n})}) == 0);
  }
  CHECK(work("mm", {tensor({2, 3}, DataType::kF16), tensor({3, 4}, DataType::kF16)}) ==
        OperatorShape{ShapeKind::kOperator, DataType::kF16, {}, 48});
}

TEST_CASE("Attention counts two products forward and five backward, whatever is masked", "[operator_work]") {
  std::mt19937 random(6);
  const auto size = [&](std::uint32_t most) {
    return std::uint32_t{1} + static_cast<std::uint32_t>(random() % most);
  };
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t b = size(16);
    const std::uint32_t key_heads = size(8);
    const std::uint32_t heads = key_heads * size(8);
    const std::uint32_t sq = size(5000);
    const std::uint32_t sk = size(5000);
    const std::uint32_t d = size(256);
    const std::uint32_t dv = size(256);
    const std::uint64_t forward = matmul(b * heads, sq, d, sk) + matmul(b * heads, sq, sk, dv);
    const std::uint64_t backward = matmul(b * heads, sq, d, sk) + matmul(b * heads, sq, dv, sk) +
                                   matmul(b * heads, sk, sq, dv) + matmul(b * heads, sq, sk, d) +
                                   matmul(b * heads, d, sq, sk);
    const Inputs inputs{tensor({b, heads, sq, d}), tensor({b, key_heads, sk, d}),
                        tensor({b, key_heads, sk, dv}), none()};
    const Inputs other{tensor({b, sq, heads, d}),
                       tensor({b, sk, key_heads, d}),
                       tensor({b, sk, key_heads, dv}),
                       none(),
                       none(),
                       none()};
    Inputs gradients = inputs;
    gradients.insert(gradients.begin(), tensor({b, heads, sq, dv}));
    Inputs other_gradients = other;
    other_gradients.insert(other_gradients.begin(), tensor({b, sq, heads, dv}));
    for (const std::string kind : {"flash", "efficient", "cudnn", "fused"}) {
      const std::string name =
          "_scaled_dot_product_" + kind + (kind == "fused" ? "_attention_overrideable" : "_attention");
      CHECK(flops(name, inputs) == forward);
      CHECK(flops(name + "_backward", gradients) == backward);
    }
    for (const std::string kind : {"_flash", "_efficient"}) {
      CHECK(flops(kind + "_attention_forward", other) == forward);
      CHECK(flops(kind + "_attention_backward", other_gradients) == backward);
    }
  }
}

TEST_CASE("What is not as it should be computes nothing that is known", "[operator_work]") {
  const OperatorInput queries = tensor({2, 4, 16, 8});
  const Inputs good{queries, queries, queries};
  const std::string flash = "_scaled_dot_product_flash_attention";
  REQUIRE(flops(flash, good) != 0);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const OperatorInput& bad : {OperatorInput{}, none(), tensor({2, 4, 16}), tensor({3, 4, 16, 8}),
                                     tensor({2, 4, 16, 8, 1}), tensor({2, 4, 16, 8}, DataType::kUnknown)}) {
      Inputs inputs = good;
      inputs[i] = bad;
      CHECK(flops(flash, inputs) == 0);
    }
    CHECK(flops(flash, Inputs(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(i))) == 0);
  }
  // The number of query heads is a multiple of the number of key and value heads.
  CHECK(flops(flash, {tensor({2, 4, 16, 8}), tensor({2, 3, 16, 8}), tensor({2, 3, 16, 8})}) == 0);
  CHECK(flops(flash + "_backward", {tensor({2, 4, 16, 9}), queries, queries, queries}) == 0);
  // Packed sequences, separate lengths, windows.
  for (const std::size_t given : {std::size_t{3}, std::size_t{11}, std::size_t{12}, std::size_t{13}}) {
    Inputs inputs(15, none());
    inputs[0] = inputs[1] = inputs[2] = queries;
    CHECK(flops("_flash_attention_forward", inputs) != 0);
    inputs[given] = OperatorInput{};
    CHECK(flops("_flash_attention_forward", inputs) == 0);
  }
  CHECK(flops("mm", {}) == 0);
  // More than 64 bits.
  const std::uint32_t most = 0xFFFF'FFFF;
  CHECK(flops("mm", {tensor({most, most}), tensor({most, most})}) == 0);
  for (const char* name : {"aten::add", "mm", "aten::mmm", "", "aten::", "other::mm"})
    CHECK(operator_formula(name) == nullptr);
}

TEST_CASE("Types of elements, by PyTorch's numbers", "[operator_work]") {
  CHECK(data_type_of_torch(6) == DataType::kF32);
  CHECK(data_type_of_torch(15) == DataType::kBf16);
  CHECK(data_type_of_torch(24) == DataType::kF8E4M3);
  for (const int type : {0, 4, 8, 9, 11, 12, 25, 44, 45, 1000})
    CHECK(data_type_of_torch(static_cast<std::uint16_t>(type)) == DataType::kUnknown);
}

TEST_CASE("The operator's call that a launch is made in", "[operator_work]") {
  OpenOperators operators;
  const auto begin = [&](std::uintptr_t function, bool is_call, std::uint32_t shape = 0) {
    OpenOperator op;
    op.function = reinterpret_cast<const void*>(function);
    if (is_call) op.call = operators.next_call();
    op.shape = shape;
    operators.begin(op, 1);
  };
  const auto end = [&](std::uintptr_t function) { operators.end(reinterpret_cast<const void*>(function)); };
  CHECK(operators.call() == OperatorCall{});
  begin(1, false);
  CHECK(operators.call() == OperatorCall{});
  begin(2, true, 5);
  CHECK(operators.call() == OperatorCall{1, 0, 1, 5});
  begin(3, false);
  CHECK(operators.call() == OperatorCall{1, 0, 1, 5});
  begin(4, true);
  CHECK(operators.call() == OperatorCall{1, 1, 2, 0});
  end(4);
  begin(5, true, 7);
  CHECK(operators.call() == OperatorCall{1, 2, 2, 7});
  CHECK(OperatorCall::unpacked(operators.call().packed()) == operators.call());
  CHECK(OperatorCall::unpacked(OperatorCall::unknown().packed()).is_unknown());
  CHECK_FALSE(operators.call().is_unknown());
  end(5);
  end(3);
  CHECK(operators.call() == OperatorCall{1, 0, 1, 5});
  // An operator without room: the innermost one can't be determined until it has ended.
  for (std::uintptr_t i = 10; i < 10 + OpenOperators::kMost; ++i) begin(i, true, 9);
  CHECK(operators.call().level != 0);
  CHECK(operators.call().shape == ShapeTable::kOther);
  end(10 + OpenOperators::kMost - 1);
  end(10 + OpenOperators::kMost - 3);
  CHECK(operators.call().shape == 9);
  CHECK(operators.any_begun(1));
  CHECK_FALSE(operators.any_begun(2));
}

TEST_CASE("Of calls in a call that are too many to be numbered nothing is known", "[operator_work]") {
  OpenOperators operators;
  OpenOperator outer;
  outer.call = operators.next_call();
  operators.begin(outer, 1);
  for (std::uint32_t i = 0; i < OperatorCall::kMostInside + 10; ++i) {
    OpenOperator inner;
    inner.function = &operators;
    inner.call = operators.next_call();
    inner.shape = 3;
    operators.begin(inner, 1);
    const OperatorCall call = operators.call();
    REQUIRE(call.level == 2);
    REQUIRE(OperatorCall::unpacked(call.packed()) == call);
    REQUIRE((call.shape == ShapeTable::kOther) == (i + 1 >= OperatorCall::kMostInside));
    operators.end(&operators);
  }
  // Numbers start over.
  bool all_numbered = true;
  for (std::uint32_t i = 0; i < OperatorCall::kNumbers; ++i)
    all_numbered = all_numbered && operators.next_call() != 0;
  CHECK(all_numbered);
}

}  // namespace inject
