// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "libinject/record/code_places.h"
#include "libinject/report/code_report.h"
#include "libinject/stats/code_times.h"

namespace inject {
namespace {

/// Kernels of a window and of the named iteration after it.
struct Program {
  NameTable names{1024, 1 << 20};
  CodePlaces places{names};
  ShapeTable shapes{64};
  CodeTimes times{names, shapes};
  std::uint32_t correlation = 0;
  Nanoseconds time = 1000;

  Program() { times.expect(places); }

  std::uint32_t frames(const std::vector<std::pair<std::string, std::uint32_t>>& stack) {
    std::uint32_t node = 0;
    for (const auto& [file, line] : stack)
      node = places.node({CodeNodeKind::kFrame, node, names.intern("f"), names.intern(file), line});
    return node;
  }
  std::uint32_t chain(CodeNodeKind kind, const std::vector<std::string>& path) {
    std::uint32_t node = 0;
    for (const std::string& name : path)
      node = places.node(
          {kind, node, names.intern(name), kind == CodeNodeKind::kModule ? names.intern("Class") : 0, 0});
    return node;
  }
  KernelEvent event(const std::string& name, std::uint64_t duration, std::uint32_t window) {
    KernelEvent kernel;
    kernel.launch.known = true;
    kernel.launch.window = window;
    kernel.launch.thread = 1;
    kernel.launch.host_begin = ++time;
    kernel.name = names.intern(name);
    kernel.correlation = ++correlation;
    kernel.start = time;
    kernel.end = time + duration;
    kernel.grid = kernel.block = {1, 1, 1};
    return kernel;
  }
  void timed(const std::string& name, std::uint64_t duration) { times.kernel(event(name, duration, 1)); }
  /// Kernels with the same `call` are of one library call.
  void named(const std::string& name, const CodePlace& place, std::uint32_t shape = ShapeTable::kNone,
             std::uint32_t call = 0) {
    KernelEvent kernel = event(name, 1'000'000, 1 | kNamingWindow);
    kernel.launch.shape = shape;
    kernel.launch.owner = call != 0 ? call : 1'000'000 + correlation;
    kernel.launch.range = places.place(place);
    times.named(kernel);
  }
};

const LineRow* line_of(const CodeReport& report, std::string_view file, std::uint32_t line) {
  for (const LineRow& row : report.lines)
    if (row.file == file && row.line == line) return &row;
  return nullptr;
}

}  // namespace

TEST_CASE("Kernels by operator, module and line", "[code_report]") {
  Program program;
  const std::string library = "/usr/lib/python3/dist-packages/torch/functional.py";
  const CodePlace linear{program.frames({{"/home/me/train.py", 7}, {"/home/me/model.py", 20}, {library, 5}}),
                         program.chain(CodeNodeKind::kModule, {"Net", "blocks.0", "linear"}),
                         program.chain(CodeNodeKind::kOperator, {"aten::linear", "aten::addmm"}),
                         CodePhase::kForward};
  CodePlace gradient = linear;
  gradient.op = program.chain(CodeNodeKind::kOperator, {"AddmmBackward0", "aten::mm"});
  gradient.phase = CodePhase::kBackward;
  const CodePlace step{program.frames({{"/home/me/train.py", 9}, {library, 70}}), 0,
                       program.chain(CodeNodeKind::kOperator, {"aten::_foreach_add_"}),
                       CodePhase::kOptimizer};
  const CodePlace in_library{program.frames({{library, 99}}), 0, 0, CodePhase::kOther};
  program.times.boundary(1);
  program.timed("gemm", 10);
  program.timed("gradient", 20);
  program.timed("update", 4);
  program.timed("hidden", 2);
  program.timed("unknown", 1);
  program.times.boundary(program.time + 1);
  program.named("gemm", linear);
  program.named("gradient", gradient);
  program.named("update", step);
  program.named("hidden", in_library);
  program.times.settle_window(1);

  const CodeReport report = build_code_report(program.times, program.places, {});
  CHECK(report.all.instances == 5);
  CHECK(report.all.time == 37);
  CHECK(report.unattributed == 1);
  const auto self_sum = [](const auto& rows) {
    std::uint64_t sum = 0;
    for (const auto& row : rows) sum += row.self.time;
    return sum;
  };
  CHECK(self_sum(report.operators) == 37);
  CHECK(self_sum(report.modules) == 37);
  CHECK(self_sum(report.lines) == 37);

  REQUIRE(report.operators.size() == 7);
  CHECK(report.operators[0].name == "aten::mm");
  CHECK(report.operators[0].self.time == 20);
  REQUIRE(report.modules.size() == 5);
  CHECK(report.modules[0].path == "Net");
  CHECK(report.modules[0].self.time == 0);
  CHECK(report.modules[0].inclusive.time == 30);
  CHECK(report.modules[2].path == "Net.blocks.0.linear");
  CHECK(report.modules[2].parent == "Net.blocks.0");
  CHECK(report.modules[2].depth == 2);
  CHECK(report.modules[2].self.phases[static_cast<std::size_t>(CodePhase::kBackward)] == 20);

  // The innermost line that is not in a library.
  const LineRow* model = line_of(report, "/home/me/model.py", 20);
  REQUIRE(model != nullptr);
  CHECK(model->user_time == 30);
  CHECK(model->self.time == 0);
  CHECK_FALSE(model->is_library);
  const LineRow* train = line_of(report, "/home/me/train.py", 9);
  REQUIRE(train != nullptr);
  CHECK(train->user_time == 4);
  CHECK(line_of(report, library, 5)->self.time == 30);
  CHECK(line_of(report, library, 5)->is_library);
  CHECK(line_of(report, library, 99)->user_time == 0);
  std::uint64_t user = 0;
  for (const LineRow& row : report.lines) user += row.user_time;
  CHECK(user == 37);
}

TEST_CASE("A call's FLOPs count once, where its kernels were launched", "[code_report]") {
  Program program;
  const CodePlace forward{0, 0, program.chain(CodeNodeKind::kOperator, {"linear", "mm"}),
                          CodePhase::kForward};
  const CodePlace again{0, 0, program.chain(CodeNodeKind::kOperator, {"linear"}), CodePhase::kRecompute};
  GemmShape gemm;
  gemm.flops = 2000;
  gemm.a = gemm.b = DataType::kF32;
  const std::uint32_t shape = program.shapes.intern(gemm);
  const auto launch = [&](const char* name, std::uint32_t call, bool has_shape = true) {
    KernelEvent kernel = program.event(name, 1000, 1);
    kernel.launch.owner = call;
    if (has_shape) kernel.launch.shape = shape;
    return kernel;
  };
  // Two kernels of one call, one of another, and one without a call.
  program.times.kernel(launch("product", 1));
  program.times.kernel(launch("rest", 1));
  program.times.kernel(launch("again", 2));
  program.times.kernel(launch("other", 3, false));
  program.named("product", forward, shape, 4);
  program.named("rest", forward, shape, 4);
  program.named("again", again, shape, 5);
  program.named("other", forward);
  program.times.settle_window(1);
  // Half of the time is bound by memory, for every kernel.
  const CodeReport report =
      build_code_report(program.times, program.places, {{}, [](std::uint32_t, std::uint64_t time) {
                                                          KernelLimits limits;
                                                          limits.memory = time / 2;
                                                          return limits;
                                                        }});
  CHECK(report.all.flops.total() == 4000);
  CHECK(report.all.flop_time == 3000);
  CHECK(report.recomputed.total() == 2000);
  REQUIRE(report.operators.size() == 2);
  const OperatorRow& linear = report.operators[report.operators[0].name == "linear" ? 0 : 1];
  CHECK(linear.inclusive.flops.total() == 4000);
  CHECK(linear.self.flops.total() == 2000);
  REQUIRE(linear.inclusive.rate.teraflops);
  CHECK(*linear.inclusive.rate.teraflops == 4000.0 / 3000 / 1e3);
  CHECK(report.all.limits.memory == 2000);
  CHECK(linear.self.limits.memory == 500);
  CHECK(linear.inclusive.limits.memory == 2000);
}

TEST_CASE("All kernels of a library's call have its place, however many there are", "[code_report]") {
  // A recurrent layer runs some kernels per time step, and iterations differ in length.
  Program program;
  program.times.boundary(1);
  const CodePlace forward{0, 0, program.chain(CodeNodeKind::kOperator, {"rnn"}), CodePhase::kForward};
  const CodePlace other{0, 0, program.chain(CodeNodeKind::kOperator, {"other"}), CodePhase::kForward};
  // Two layers run the same kernels.
  const CodePlace second{0, 0, program.chain(CodeNodeKind::kOperator, {"rnn2"}), CodePhase::kForward};
  std::uint32_t calls = 0;
  const auto layer = [&](std::uint32_t steps, const CodePlace* place) {
    RnnShape rnn;
    rnn.direction = 1;
    rnn.cell = 4;
    rnn.layers = 1;
    rnn.input_size = rnn.hidden_size = 8;
    rnn.batch = 1;
    rnn.length = steps;
    rnn.steps = steps;
    const std::uint32_t shape = program.shapes.intern(rnn);
    ++calls;
    for (std::uint32_t step = 0; step < steps; ++step) {
      for (const char* name : {"product", "cell"}) {
        KernelEvent kernel = program.event(name, 10, place == nullptr ? 1 : 1 | kNamingWindow);
        kernel.launch.owner = calls;
        kernel.launch.shape = shape;
        if (place == nullptr) {
          program.times.kernel(kernel);
        } else {
          kernel.launch.range = program.places.place(*place);
          program.times.named(kernel);
        }
      }
    }
    return static_cast<std::uint64_t>(model_work_of(program.shapes.shape(shape)).flops);
  };
  // What prepares the weights is the same for every length; other kernels vary, so that only one named
  // iteration is compared.
  const bool is_varied = GENERATE(false, true);
  program.timed("before", 10);
  std::uint64_t flops = layer(20'000, nullptr);
  REQUIRE(flops != 0);
  program.timed("weights", 10);
  flops += layer(20'000, nullptr);
  program.timed("after", 10);
  for (const std::uint32_t steps : {3000u, 7u}) {
    program.times.boundary(program.time + 1);
    program.named("before", other);
    layer(steps, &forward);
    program.named("weights", other);
    layer(steps, &second);
    program.named("after", other);
    if (is_varied) program.named("one more, or two", other);
    if (is_varied && steps == 7) program.named("one more, or two", other);
  }
  program.times.settle_window(1);
  const CodeReport report = build_code_report(program.times, program.places, {});
  CHECK(report.unattributed == 0);
  for (const OperatorRow& row : report.operators) {
    CAPTURE(row.name);
    const bool is_layer = row.name != "other";
    CHECK(row.self.time == (is_layer ? 400'000 : 30));
    CHECK(row.inclusive.flop_time == (is_layer ? 400'000 : 0));
    CHECK(row.inclusive.flops.total() == (is_layer ? flops / 2 : 0));
  }
}

TEST_CASE("A library's call whose kernels are of several places has none", "[code_report]") {
  Program program;
  const CodePlace one{0, 0, program.chain(CodeNodeKind::kOperator, {"one"}), CodePhase::kForward};
  const CodePlace two{0, 0, program.chain(CodeNodeKind::kOperator, {"two"}), CodePhase::kForward};
  GemmShape gemm;
  gemm.flops = 2000;
  const std::uint32_t shape = program.shapes.intern(gemm);
  for (const char* name : {"first", "second"}) {
    KernelEvent kernel = program.event(name, 10, 1);
    kernel.launch.owner = 1;
    kernel.launch.shape = shape;
    program.times.kernel(kernel);
  }
  program.named("first", one, shape, 2);
  program.named("second", two, shape, 2);
  program.times.settle_window(1);
  const CodeReport report = build_code_report(program.times, program.places, {});
  CHECK(report.unattributed == 20);
  CHECK(report.all.flop_time == 20);
}

namespace {

/// Iterations whose kernels are in operators' calls: one that is timed, and the named ones after it.
struct Operators {
  Program program;
  const CodePlace place{0, 0, program.chain(CodeNodeKind::kOperator, {"op"}), CodePhase::kForward};
  std::uint32_t library_shape = 0;
  std::uint32_t calls = 0;  // of operators, in earlier iterations
  std::uint32_t library_calls = 0;

  struct Kernel {
    const char* name;
    OperatorCall call;
    bool in_library = false;
  };

  Operators() {
    GemmShape gemm;
    gemm.flops = 1'000'000;
    gemm.a = gemm.b = DataType::kBf16;
    library_shape = program.shapes.intern(gemm);
  }
  std::uint32_t shape(std::uint64_t flops) {
    OperatorShape shape;
    shape.type = DataType::kBf16;
    shape.flops = flops;
    return program.shapes.intern(shape);
  }
  void launch(const std::vector<Kernel>& kernels, bool named) {
    program.times.boundary(program.time + 1);
    if (named) calls += 1000;
    for (const Kernel& kernel : kernels) {
      KernelEvent event = program.event(kernel.name, 1000, named ? 1 | kNamingWindow : 1);
      event.launch.owner = ++library_calls;
      if (kernel.in_library) event.launch.shape = library_shape;
      if (named) {
        event.launch.range = program.places.place(place);
        OperatorCall made = kernel.call;
        if (made.level != 0) made.outermost += calls;
        event.launch.stream_handle = made.packed();
        program.times.named(event);
      } else {
        program.times.kernel(event);
      }
    }
  }
  /// FLOPs, and the time of the kernels that computed them.
  std::pair<std::uint64_t, std::uint64_t> run(const std::vector<Kernel>& kernels, int named = 2) {
    const Nanoseconds begin = program.time + 1;
    launch(kernels, false);
    for (int i = 0; i < named; ++i) launch(kernels, true);
    program.times.settle_window(1);
    const CodeReport report = build_code_report(program.times, program.places, {});
    const CodeTimes::IterationFlops* iteration = program.times.iteration_flops(begin);
    REQUIRE(iteration != nullptr);
    CHECK(iteration->flops.total() == report.all.flops.total());
    return {static_cast<std::uint64_t>(report.all.flops.total()), report.all.flop_time};
  }
};
using Computed = std::pair<std::uint64_t, std::uint64_t>;

}  // namespace

TEST_CASE("An operator's FLOPs count once, with all of its kernels", "[code_report]") {
  Operators operators;
  const std::uint32_t shape = operators.shape(500);
  CHECK(operators.run({{"flash", {1, 0, 1, shape}},
                       {"flash", {1, 0, 1, shape}},
                       {"elementwise", {}},
                       {"flash", {2, 0, 1, shape}},
                       {"unknown", {3, 0, 1, 0}}}) == Computed{1000, 3000});
  CHECK(operators.program.times.any_operator_flops());
}

TEST_CASE("An operator counts only where no library call of known FLOPs is made in it", "[code_report]") {
  Operators operators;
  const std::uint32_t shape = operators.shape(500);
  // A cuBLAS product, split into two kernels, after a kernel of the operator itself.
  CHECK(operators.run(
            {{"pad", {1, 0, 1, shape}}, {"gemm", {1, 0, 1, shape}, true}, {"template", {2, 0, 1, shape}}}) ==
        Computed{1'000'500, 2000});
}

TEST_CASE("Of operators inside of each other those count that have none inside", "[code_report]") {
  Operators operators;
  const std::uint32_t whole = operators.shape(800);
  const std::uint32_t part = operators.shape(300);
  CHECK(operators.run({{"gather", {1, 0, 1, whole}},
                       {"product", {1, 1, 2, part}},
                       {"product", {1, 2, 2, part}},
                       {"scatter", {1, 0, 1, whole}},
                       {"flash", {10, 2, 3, part}},
                       {"gather", {20, 0, 1, whole}},
                       {"packed", {20, 1, 2, 0}}}) == Computed{900, 3000});
}

TEST_CASE("An operator beside another one that has some inside counts", "[code_report]") {
  Operators operators;
  const std::uint32_t whole = operators.shape(800);
  const std::uint32_t part = operators.shape(300);
  CHECK(operators.run({{"around", {1, 0, 1, whole}},
                       {"product", {1, 1, 2, part}},
                       {"gather", {1, 2, 2, whole}},
                       {"product", {1, 3, 3, part}}}) == Computed{600, 2000});
}

TEST_CASE("An operator whose sizes can't be told leaves its iterations out, but not where a library tells",
          "[code_report]") {
  for (const bool in_library : {false, true}) {
    Operators operators;
    const std::uint32_t shape = operators.shape(500);
    const Nanoseconds begin = operators.program.time + 1;
    const std::uint64_t library = in_library ? 1'000'000 : 0;
    CHECK(
        operators.run({{"flash", {1, 0, 1, shape}}, {"packed", {2, 0, 1, ShapeTable::kOther}, in_library}}) ==
        Computed{500 + library, in_library ? 2000 : 1000});
    CHECK(operators.program.times.iteration_flops(begin)->operators_known == in_library);
  }
}

TEST_CASE("Where operators are not known no iteration is a model's", "[code_report]") {
  Operators once;
  const std::uint32_t shape = once.shape(500);
  const std::vector<Operators::Kernel> kernels{{"flash", {1, 0, 1, shape}}, {"gemm", {2, 0, 1, shape}, true}};
  CHECK(once.run(kernels, 1) == Computed{1'000'000, 1000});
  CHECK_FALSE(once.program.times.any_operator_flops());

  Operators other;  // the second named iteration computes more, in the same kernels
  const std::uint32_t less = other.shape(500);
  const std::uint32_t more = other.shape(501);
  const Nanoseconds begin = other.program.time + 1;
  other.launch({{"flash", {}}, {"attention", {}}}, false);
  other.launch({{"flash", {1, 0, 1, less}}, {"attention", {2, 0, 1, less}}}, true);
  other.launch({{"flash", {3, 0, 1, less}}, {"attention", {4, 0, 1, more}}}, true);
  other.program.times.settle_window(1);
  REQUIRE(other.program.times.iteration_flops(begin) != nullptr);
  CHECK(other.program.times.iteration_flops(begin)->flops.total() == 500);
  CHECK_FALSE(other.program.times.iteration_flops(begin)->operators_known);
  CHECK(other.program.times.iteration_flops(0) == nullptr);
}

TEST_CASE("Attention counts what a causal mask leaves out, whoever computes it", "[code_report]") {
  AttentionShape attention;
  attention.direction = 1;
  attention.type = DataType::kBf16;
  attention.batch = attention.heads = attention.kv_heads = 1;
  attention.query_length = attention.key_length = 100;
  attention.head_size = attention.value_head_size = 8;
  attention.flags = kAttentionCausal | kAttentionShifted;
  CHECK(work_of(attention).flops == 0);
  CHECK(model_work_of(attention).flops == 2 * 100 * 100 * 16);
  attention.flags = kAttentionCausal;
  CHECK(work_of(attention).flops == 2 * 5050 * 16);
  CHECK(model_work_of(attention).flops == 2 * 100 * 100 * 16);
  // How much of it is computed is unknown.
  for (const std::uint32_t flags : {std::uint32_t{kAttentionRagged}, std::uint32_t{kAttentionWindow},
                                    std::uint32_t{kAttentionWindow | kAttentionCausal}}) {
    attention.flags = flags;
    for (const ShapeWork& work : {work_of(attention), model_work_of(attention)}) {
      CHECK(work.flops == 0);
      CHECK_FALSE(work.flops_known);
    }
  }
}

TEST_CASE("A function that calls itself counts once", "[code_report]") {
  Program program;
  const CodePlace place{program.frames({{"/a.py", 1}, {"/a.py", 2}, {"/a.py", 1}, {"/a.py", 2}}), 0,
                        program.chain(CodeNodeKind::kOperator, {"op", "other", "op"}), CodePhase::kForward};
  program.timed("gemm", 10);
  program.named("gemm", place);
  program.times.settle_window(1);
  const CodeReport report = build_code_report(program.times, program.places, {});
  REQUIRE(report.operators.size() == 2);
  CHECK(report.operators[0].inclusive.time == 10);
  REQUIRE(report.lines.size() == 2);
  CHECK(report.lines[0].inclusive.time == 10);
  CHECK(report.lines[1].inclusive.time == 10);
}

TEST_CASE("What the first named iteration says gives way to the second, where an operator was open before",
          "[code_report]") {
  const auto operators = [](const std::vector<std::string>& second, bool any_begun = true) {
    Program program;
    const auto place = [&](const std::vector<std::string>& chain) {
      return CodePlace{0, 0, program.chain(CodeNodeKind::kOperator, chain), CodePhase::kForward};
    };
    CodePlace inside = place({"aten::mm"});  // in a call that began before naming
    if (!any_begun) inside = {0, 0, 0, CodePhase::kOther, false, false, true};
    program.times.boundary(program.time + 1);
    program.timed("mm", 10);
    program.times.boundary(program.time + 1);
    program.named("mm", inside);
    if (!second.empty()) {
      program.times.boundary(program.time + 1);
      program.named("mm", place(second));
    }
    program.times.settle_window(1);
    std::vector<std::string> names;
    for (const OperatorRow& row : build_code_report(program.times, program.places, {}).operators)
      names.emplace_back(row.name);
    std::sort(names.begin(), names.end());
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(operators({"CompiledFunction", "aten::mm"}) == Names{"CompiledFunction", "aten::mm"});
  CHECK(operators({"CompiledFunction"}, false) == Names{"CompiledFunction"});
  // Nothing better is known; of one without operators, not even whether there were any.
  CHECK(operators({}) == Names{"aten::mm"});
  CHECK(operators({}, false) == Names{std::string(kUnattributed)});
}

TEST_CASE("The names of one window serve later ones", "[code_report]") {
  Program program;
  const CodePlace place{program.frames({{"/a.py", 1}}), 0, 0, CodePhase::kOther};
  program.times.boundary(program.time + 1);
  program.named("gemm", place);
  program.named("update", place);
  program.times.settle_window(1);
  CHECK(build_code_report(program.times, program.places, {}).empty());
  for (std::size_t i = 0; i < CodeTimes::kMaxBoundaries + 10; ++i) program.times.boundary(++program.time);
  program.timed("gemm", 10);
  program.timed("update", 5);
  program.times.settle_window(2);
  const CodeReport report = build_code_report(program.times, program.places, {});
  CHECK(report.all.time == 15);
  CHECK(report.unattributed == 0);
}

TEST_CASE("Each iteration of a long window has its places, and those that are too many count",
          "[code_report]") {
  // Each iteration launches the same kernel from two lines.
  constexpr std::size_t kIterations = 2000;
  Program program;
  const CodePlace first{program.frames({{"/a.py", 1}}), 0, 0, CodePhase::kOther};
  const CodePlace second{program.frames({{"/a.py", 2}}), 0, 0, CodePhase::kOther};
  std::size_t boundaries = 0;
  const auto begin = [&] {
    program.times.boundary(program.time + 1);
    ++boundaries;
  };
  for (std::size_t i = 0; i < kIterations; ++i) {
    begin();
    program.timed("add", 1);
    program.timed("add", 1);
  }
  const std::size_t dropped = GENERATE(0u, 20u);
  if (dropped != 0)
    while (boundaries < CodeTimes::kMaxBoundaries + dropped - 2) begin();
  for (int i = 0; i < 2; ++i) {
    begin();
    program.named("add", first);
    program.named("add", second);
  }
  program.times.settle_window(1);
  CHECK(program.times.left_out() == 2 * dropped);
  const CodeReport report = build_code_report(program.times, program.places, {});
  CHECK(report.unattributed == 2 * dropped);
  for (const std::uint32_t number : {1u, 2u}) {
    const LineRow* line = line_of(report, "/a.py", number);
    REQUIRE(line != nullptr);
    CHECK(line->inclusive.time == kIterations - dropped);
  }
}

TEST_CASE("Stacks are lines of text, whatever the names", "[code_report]") {
  Program program;
  const CodePlace place{program.frames({{"/a;b\n.py", 1}, {"", 0}, {"/c d.py", 2}}), 0, 0,
                        CodePhase::kForward};
  CodePlace unnamed = place;
  unnamed.stack = program.places.node({CodeNodeKind::kFrame, 0, 0, 0, 0});
  program.timed("kernel<int; 4>(x\ty)", 10);
  program.timed("", 3);
  program.timed("other", 5);
  program.named("kernel<int; 4>(x\ty)", place);
  program.named("", place);
  program.named("other", unnamed);
  program.times.settle_window(1);
  const CodeReport report = build_code_report(program.times, program.places, {});
  REQUIRE(report.stacks.size() == 3);
  CHECK(report.stacks[0].text == "forward;[none];other");
  CHECK(report.stacks[1].text == "forward;f (/a:b:.py:1);f;f (/c d.py:2);[none]");
  CHECK(report.stacks[2].text == "forward;f (/a:b:.py:1);f;f (/c d.py:2);kernel<int: 4>(x:y)");
  CHECK(report.stacks[2].time == 10);
}

TEST_CASE("Stacks that are too many are one for each phase, and add up", "[code_report]") {
  Program program;
  std::vector<CodePlace> places;
  for (std::uint32_t i = 0; i < 200; ++i)
    places.push_back({program.frames({{"/a.py", 1}, {"/b.py", i + 1}}), 0, 0,
                      i % 2 == 0 ? CodePhase::kForward : CodePhase::kBackward});
  for (std::uint32_t i = 0; i < 200; ++i) program.timed("kernel " + std::to_string(i), 1000 + i);
  program.timed("unknown", 7);
  program.times.boundary(program.time + 1);
  for (std::uint32_t i = 0; i < 200; ++i) program.named("kernel " + std::to_string(i), places[i]);
  program.times.settle_window(1);
  for (const std::size_t most : {std::size_t{0}, std::size_t{1000}, kMostStackText}) {
    const CodeReport report = build_code_report(program.times, program.places, {}, most);
    std::size_t text = 0;
    std::uint64_t time = 0;
    std::uint64_t other = 0;
    for (const KernelStack& stack : report.stacks) {
      text += stack.text.size();
      time += stack.time;
      if (stack.text == "forward;[other]" || stack.text == "backward;[other]") ++other;
    }
    CHECK(time == report.all.time);
    if (most == kMostStackText) {
      CHECK(report.stacks.size() == 201);
      CHECK(other == 0);
    } else {
      CHECK(text <= most + 100);
      CHECK(other == 2);
      if (most != 0) CHECK(report.stacks.size() > 10);
    }
  }
}

TEST_CASE("Where no launch has been named there is nothing to tell", "[code_report]") {
  Program program;
  program.timed("gemm", 10);
  program.times.settle_window(1);
  CHECK(build_code_report(program.times, program.places, {}).empty());
}

TEST_CASE("What is a library's, and what is the program's", "[code_report]") {
  for (const char* file : {"<string>", "", "<frozen importlib._bootstrap>", "<eval_with_key>.1",
                           "<__array_function__ internals>", "/v/lib/python3.12/site-packages/torch/a.py",
                           "/usr/lib/python3/dist-packages/torch/a.py", "/usr/lib/python3.12/threading.py",
                           "/usr/lib64/python3.12/threading.py", "/tmp/torchinductor_me/xy/cxy.py",
                           "/scratch/cache/mk/cmkpfxq7q3zqmnvt6xqk2o5i4lhbcd5w5zj3k2ysfdjq3n6uyabc.py"})
    CHECK(is_library_file(file));
  for (const char* file :
       {"train.py", "/home/me/lib/model.py", "/work/torch/train.py", "/tmp/ipykernel_7/1.py",
        "/home/me/lib64/model.py", "/work/on/convert.py", "<stdin>", "<stdin-0>", "<console>",
        "<ipython-input-3-0123456789ab>", "<python-input-0>", "<command-1234>",
        // In another folder, of another length, and of other letters than a cache of Inductor's.
        "/scratch/cache/mq/cmkpfxq7q3zqmnvt6xqk2o5i4lhbcd5w5zj3k2ysfdjq3n6uyabc.py",
        "/scratch/cache/mk/cmkpfxq7q3zqmnvt6xqk2o5i4lhbcd5w5zj3k2ysfdjq3n6uyab.py",
        "/scratch/cache/mk/cmkpfxq7q3zqmnvt6xqk2o5i4lhbcd5w5zj3k2ysfdjq3n6uy_bc.py"})
    CHECK_FALSE(is_library_file(file));
}

TEST_CASE("Text that is run as the program is the program's, and other text a library's", "[code_report]") {
  for (const bool is_program : {false, true}) {
    Program program;
    const std::string main = is_program ? "<string>" : "/home/me/train.py";
    const std::uint32_t stack = program.frames({{main, 3}, {"<string>", 5}});
    program.timed("gemm", 10);
    program.named("gemm", {stack, 0, 0, CodePhase::kForward});
    program.times.settle_window(1);
    const CodeReport report = build_code_report(program.times, program.places, {});
    CHECK(line_of(report, "<string>", 5)->is_library == !is_program);
    CHECK(line_of(report, "<string>", 5)->user_time == (is_program ? 10 : 0));
    CHECK(line_of(report, main, 3)->user_time == (is_program ? 0 : 10));
  }
}

TEST_CASE("A place that lacks something may be a complete one", "[code_report]") {
  Program program;
  const auto operators = [&](const std::vector<std::string>& path) {
    return program.chain(CodeNodeKind::kOperator, path);
  };
  const std::uint32_t line = program.frames({{"train.py", 7}, {"model.py", 20}});
  const std::uint32_t module = program.chain(CodeNodeKind::kModule, {"Net", "a"});
  const CodePlace whole{line, module, operators({"aten::linear", "aten::addmm"}), CodePhase::kForward};
  const auto may_be = [&](const CodePlace& part, const CodePlace& other) {
    return program.places.may_be_same(program.places.place(part), program.places.place(other));
  };
  CHECK(may_be(whole, whole));
  CodePlace part = whole;
  part.op = operators({"aten::addmm"});
  CHECK(may_be(part, whole));
  CHECK_FALSE(may_be(whole, part));
  part.op = operators({"aten::linear"});
  CHECK_FALSE(may_be(part, whole));
  part.op = 0;
  CHECK(may_be(part, whole));
  part.module = program.chain(CodeNodeKind::kModule, {"Net", "b"});
  CHECK_FALSE(may_be(part, whole));
  part = whole;
  part.stack = program.frames({{"train.py", 8}});
  CHECK_FALSE(may_be(part, whole));
  part.stack = part.module = 0;
  CHECK_FALSE(may_be(part, whole));
  part.module_unknown = true;
  CHECK(may_be(part, whole));
  // The node of the backward pass around it had begun before.
  CodePlace gradient = whole;
  gradient.phase = CodePhase::kBackward;
  part = whole;
  part.module = 0;
  CHECK(may_be(part, gradient));
  // The operator of the forward pass had begun before: on autograd's thread, only the Python frames there are
  // known.
  gradient.stack = program.frames({{"train.py", 7}, {"compiled.py", 3}, {"compiled.py", 90}});
  part = gradient;
  part.module = 0;
  part.stack = program.frames({{"compiled.py", 3}, {"compiled.py", 90}});
  CHECK_FALSE(may_be(part, gradient));
  part.module_unknown = true;
  CHECK(may_be(part, gradient));
  part.stack = program.frames({{"compiled.py", 4}, {"compiled.py", 90}});
  CHECK_FALSE(may_be(part, gradient));
  part.stack = program.frames({{"main.py", 1}, {"train.py", 7}, {"compiled.py", 3}, {"compiled.py", 90}});
  CHECK_FALSE(may_be(part, gradient));
}

TEST_CASE("A module that is not known is not none", "[code_report]") {
  Program program;
  const std::uint32_t op = program.chain(CodeNodeKind::kOperator, {"MmBackward0"});
  const std::uint32_t line = program.frames({{"train.py", 7}});
  program.times.boundary(1);
  for (const char* name : {"none", "unknown", "line"}) program.timed(name, 10);
  program.times.boundary(program.time + 1);
  program.named("none", {0, 0, op, CodePhase::kBackward});
  program.named("unknown", {0, 0, op, CodePhase::kBackward, true});
  program.named("line", {line, 0, op, CodePhase::kRecompute, true});
  program.times.settle_window(1);

  const CodeReport report = build_code_report(program.times, program.places, {});
  REQUIRE(report.operators.size() == 1);
  CHECK(report.operators.front().self.instances == 3);
  REQUIRE(report.modules.size() == 2);
  CHECK(report.modules[0].path == kUnattributed);
  CHECK(report.modules[0].self.instances == 2);
  CHECK(report.modules[1].path == kNoCode);
  REQUIRE(report.lines.size() == 3);
  for (const LineRow& row : report.lines) CHECK(row.self.instances == 1);
  REQUIRE(report.stacks.size() == 3);
  CHECK(report.stacks[0].text == "backward;[unattributed];unknown");
}

TEST_CASE("A module that several others call", "[code_report]") {
  Program program;
  const std::uint32_t parent = program.chain(CodeNodeKind::kModule, {"Net", "block"});
  program.times.boundary(1);
  for (const char* name : {"inside", "outside"}) program.timed(name, 10);
  program.times.boundary(program.time + 1);
  program.named("inside",
                {0, program.chain(CodeNodeKind::kModule, {"Net", "block", "a"}), 0, CodePhase::kForward});
  program.named("outside",
                {0, program.chain(CodeNodeKind::kModule, {"Net", "block.a"}), 0, CodePhase::kForward});
  program.times.settle_window(1);
  CHECK(parent != 0);

  const CodeReport report = build_code_report(program.times, program.places, {});
  REQUIRE(report.modules.size() == 3);
  for (const ModuleRow& row : report.modules) {
    const bool is_shared = row.path == "Net.block.a";
    CHECK(row.type == "Class");
    CHECK(row.depth.has_value() == !is_shared);
    CHECK(row.parent.has_value() == !is_shared);
    CHECK(row.self.instances == (is_shared ? 2u : 0u));
  }
}

TEST_CASE("The same operator of the forward pass is found by its number", "[code_report]") {
  NameTable names(64, 1 << 16);
  CodePlaces places(names);
  places.note_forward(7, 1, {3, 4});
  CHECK(places.forward(7) == CodeContext{3, 4});
  CHECK(!places.forward(8));
  // The last operator with a number creates the node, unless it ran on another thread.
  places.note_forward(7, 1, {5, 6});
  CHECK(places.forward(7) == CodeContext{5, 6});
  places.note_forward(7, 2, {8, 9});
  CHECK(!places.forward(7));
}

}  // namespace inject
