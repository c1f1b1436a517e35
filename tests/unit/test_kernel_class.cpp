// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/kernel_class.h"

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "libinject/analysis/kernel_rules.h"
#include "libinject/analysis/name_words.h"
#include "libinject/analysis/product_shares.h"
#include "libinject/base/demangle.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

struct Known {
  std::string family;
  std::string cores;
  std::string operand;
  std::string name;
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += line[i++];
      } else {
        quoted = !quoted;
      }
    } else if (line[i] == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  return fields;
}

std::vector<std::vector<std::string>> rows_of(const char* file_name, const std::string& header) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream file(std::string(INJECT_SOURCE_DIR "/tests/data/kernels/") + file_name);
  std::string line;
  REQUIRE(std::getline(file, line));
  REQUIRE(line == header);
  const std::size_t columns = fields_of(header).size();
  while (std::getline(file, line)) {
    INFO(line);
    rows.push_back(fields_of(line));
    REQUIRE(rows.back().size() == columns);
  }
  return rows;
}

const std::vector<Known>& known_names() {
  static const std::vector<Known> loaded = [] {
    std::vector<Known> names;
    for (const std::vector<std::string>& row : rows_of("names.csv", "Family,Tensor Cores,Operand,Name"))
      names.push_back({row[0], row[1], row[2], row[3]});
    return names;
  }();
  return loaded;
}

struct FrameworkName {
  std::string family;
  std::string name;
};

const std::vector<FrameworkName>& framework_names() {
  static const std::vector<FrameworkName> loaded = [] {
    std::vector<FrameworkName> names;
    for (const std::vector<std::string>& row : rows_of("frameworks.csv", "Family,Source,Name"))
      names.push_back({row[0], row[2]});
    return names;
  }();
  return loaded;
}

template <class Rules>
std::size_t index_of_match(Rules rules, const std::string& name) {
  const auto* rule = first_match(rules, name);
  return rule == nullptr ? rules.size() : static_cast<std::size_t>(rule - rules.data());
}

template <class Rules>
void check_all_used(Rules rules, const std::set<std::size_t>& used) {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    INFO("no name in tests/data/kernels for which this rule decides: " << rules[i].words);
    CHECK(used.count(i) == 1);
  }
}

}  // namespace

TEST_CASE("Kernels by their names", "[analysis]") {
  REQUIRE(known_names().size() > 200);
  for (const Known& known : known_names()) {
    INFO(known.name);
    CHECK(family_name(family_of(known.name)) == known.family);
    const TensorCoreUse use = tensor_cores_of(known.name);
    CHECK(tensor_cores_name(use.cores) == known.cores);
    CHECK(operand_name(use.operand) == known.operand);
  }
}

TEST_CASE("Families of the frameworks' own kernels", "[analysis]") {
  REQUIRE(framework_names().size() > 200);
  for (const FrameworkName& known : framework_names()) {
    INFO(known.name);
    CHECK(family_name(family_of(known.name)) == known.family);
    CHECK(family_name(family_of(demangle(known.name))) == known.family);
  }
}

TEST_CASE("Kernels are the same mangled and demangled", "[analysis]") {
  std::size_t mangled = 0;
  for (const Known& known : known_names()) {
    const std::string demangled = demangle(known.name);
    if (demangled == known.name) continue;
    ++mangled;
    INFO(known.name);
    CHECK(family_of(demangled) == family_of(known.name));
    CHECK(tensor_cores_of(demangled) == tensor_cores_of(known.name));
  }
  CHECK(mangled > 10);
}

TEST_CASE("Every family has one name, and no rule for kernels is dead", "[analysis]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kFamilies; ++i) names.insert(family_name(static_cast<Family>(i)));
  CHECK(names.size() == kFamilies);

  std::set<std::size_t> families;
  std::set<std::size_t> cores;
  std::set<std::size_t> operands;
  for (const Known& known : known_names()) {
    CHECK(names.count(known.family) == 1);
    families.insert(index_of_match(family_rules(), known.name));
    const std::size_t rule = index_of_match(cores_rules(), known.name);
    cores.insert(rule);
    if (rule < cores_rules().size() && cores_rules()[rule].cores != TensorCores::kUnknown &&
        cores_rules()[rule].multiplies) {
      operands.insert(index_of_match(operand_rules(), known.name));
    }
  }
  for (const FrameworkName& known : framework_names()) {
    INFO(known.name);
    CHECK(names.count(known.family) == 1);
    families.insert(index_of_match(family_rules(), known.name));
  }
  check_all_used(family_rules(), families);
  check_all_used(cores_rules(), cores);
  check_all_used(operand_rules(), operands);
}

TEST_CASE("Sets of families", "[analysis]") {
  CHECK_FALSE(FamilySet().contains(Family::kGemm));
  CHECK(FamilySet(Family::kOther).contains(Family::kOther));
  constexpr FamilySet kSome = kPoolings | Family::kGemm;
  for (std::size_t i = 0; i < kFamilies; ++i) {
    const auto family = static_cast<Family>(i);
    CHECK(kConvolutions.contains(family) == is_convolution(family));
    CHECK(kCollectives.contains(family) == is_collective(family));
    CHECK(kSome.contains(family) == (family == Family::kGemm || family == Family::kPoolingForward ||
                                     family == Family::kPoolingBackward));
  }
}

TEST_CASE("The words of rules", "[analysis]") {
  CHECK(name_has_words("volta_sgemm_128x64_nn", "sgemm"));
  CHECK(name_has_words("volta_sgemm_128x64_nn", "nn volta_"));
  CHECK_FALSE(name_has_words("volta_sgemm_128x64_nn", "volta_ tn"));
  CHECK_FALSE(name_has_words("volta_sgemm_128x64_nn", "Volta"));
  CHECK_FALSE(name_has_words("", "a"));
  CHECK(name_has_words("", ""));
  // At the beginning and the end of a word.
  CHECK(name_has_words("all_reduce_kernel", "^all_reduce"));
  CHECK(name_has_words("_Z17all_reduce_kernelPf", "^all_reduce"));
  CHECK(name_has_words("small_reduce_then_all_reduce", "^all_reduce"));
  CHECK_FALSE(name_has_words("small_reduce_kernel", "^all_reduce"));
  CHECK(name_has_words("lamb_stage1", "^lamb$"));
  CHECK(name_has_words("lamb", "^lamb$"));
  CHECK(name_has_words("LambStage1", "Lamb$"));
  CHECK_FALSE(name_has_words("lambda", "^lamb$"));
  CHECK_FALSE(name_has_words("flamb", "^lamb$"));
  // Words stand for parts of names that appear in both forms.
  const auto check = [](const auto& rules) {
    for (const auto& rule : rules) {
      const std::string_view words = rule.words;
      INFO(words);
      CHECK_FALSE(words.empty());
      CHECK(words.find_first_of("<>(),&*:") == std::string_view::npos);
      CHECK(words.find("  ") == std::string_view::npos);
      CHECK(words.front() != ' ');
      CHECK(words.back() != ' ');
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == '^') CHECK((i == 0 || words[i - 1] == ' '));
        if (words[i] == '$') CHECK((i + 1 == words.size() || words[i + 1] == ' '));
      }
    }
  };
  check(family_rules());
  check(direction_rules());
  check(cores_rules());
  check(operand_rules());
}

TEST_CASE("The library call comes before the name", "[analysis]") {
  const char* split = "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(float const*)";
  const char* gemm =
      "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_execute_kernel";
  const char* relu = "add_bias_relu(float*, float const*, int, int)";
  const char* layout =
      "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float>(float const*, float*)";
  const char* sdpa = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64";
  const char* dgrad =
      "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1";

  CHECK(family_of(relu, Category::kGemm) == Family::kGemm);
  CHECK(family_of(split, Category::kGemm) == Family::kGemm);

  // Kernels in a convolution's call are classified: its own kernels, plain products (1 × 1), layout changes.
  CHECK(family_of(layout) == Family::kLayoutChange);
  CHECK(family_of(layout, Category::kConv) == Family::kLayoutChange);
  CHECK(family_of(gemm, Category::kConv) == Family::kConvGemm);
  CHECK(family_of(split, Category::kConv) == Family::kConvGemm);
  CHECK(family_of("void im2col4d_kernel<float, long>()", Category::kConv) == Family::kConvGemm);
  CHECK(family_of(relu, Category::kConv) == Family::kConvOther);
  CHECK(family_of("mystery", Category::kConv) == Family::kConvOther);
  CHECK(family_of(dgrad, Category::kConv) == Family::kConvImplicitGemmDataGradient);
  CHECK(family_of("volta_gcgemm_32x32_nt", Category::kConv) == Family::kConvFft);
  CHECK(family_of("sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize32x32x8_ffma", Category::kConv) ==
        Family::kConvFft);
  CHECK(family_of(sdpa, Category::kConv) == Family::kAttention);
  CHECK(family_of("void cudnn::bn_fw_tr_1C11_singleread<float>()", Category::kConv) ==
        Family::kNormalization);

  CHECK(family_of(gemm, Category::kRnn) == Family::kGemm);
  CHECK(family_of(layout, Category::kRnn) == Family::kRnnCell);
  CHECK(family_of(layout, Category::kNorm) == Family::kLayoutChange);
  CHECK(family_of(relu, Category::kNorm) == Family::kNormalization);
  CHECK(family_of("void cudnn::pooling_bw_kernel_max<float>()", Category::kPool) == Family::kPoolingBackward);
  CHECK(family_of(layout, Category::kPool) == Family::kLayoutChange);
  CHECK(family_of("mystery", Category::kPool) == Family::kPoolingForward);
  CHECK(family_of(relu, Category::kSoftmax) == Family::kSoftmax);
  CHECK(family_of(layout, Category::kAttention) == Family::kAttention);
  CHECK(family_of("op", Category::kActivation) == Family::kElementwise);
  CHECK(family_of("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                  Category::kCollective) == Family::kAllReduce);
  CHECK(family_of("fill", Category::kCollective) == Family::kCollectiveOther);
  CHECK(family_of("fill", Category::kPointToPoint) == Family::kSendReceive);

  // Calls that can launch anything tell nothing about the family.
  for (const Category call :
       {Category::kLaunch, Category::kGraph, Category::kBlas, Category::kOther, Category::kGroup}) {
    CHECK(family_of(relu, call) == Family::kElementwise);
    CHECK(family_of(gemm, call) == Family::kGemm);
    CHECK(family_of("mystery", call) == Family::kOther);
  }
}

TEST_CASE("Convolutions: algorithm and direction", "[analysis]") {
  for (std::size_t a = 0; a < kConvolutionAlgorithms; ++a) {
    for (std::size_t d = 0; d < kConvolutionDirections; ++d) {
      const auto algorithm = static_cast<ConvolutionAlgorithm>(a);
      const auto direction = static_cast<ConvolutionDirection>(d);
      const Family family = convolution_family(algorithm, direction);
      CHECK(is_convolution(family));
      CHECK(algorithm_of(family) == algorithm);
      std::string name = "convolution " + std::string(algorithm_name(algorithm));
      if (direction != ConvolutionDirection::kUnknown) name += " " + std::string(direction_name(direction));
      CHECK(family_name(family) == name);
    }
  }
  CHECK_FALSE(is_convolution(Family::kGemm));
  CHECK_FALSE(is_convolution(Family::kPoolingForward));
  CHECK(algorithm_of(Family::kGemm) == ConvolutionAlgorithm::kOther);
  CHECK(convolution_algorithm_of("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1") ==
        ConvolutionAlgorithm::kWinograd);
  CHECK(convolution_algorithm_of("volta_gcgemm_32x32_nt") == ConvolutionAlgorithm::kFft);
  CHECK(convolution_algorithm_of("nchwToNhwcKernel") == ConvolutionAlgorithm::kOther);
  CHECK(convolution_algorithm_of("volta_sgemm_128x64_nn") == ConvolutionAlgorithm::kGemm);
  CHECK(convolution_algorithm_of("void explicit_convolve_sgemm<float>()") == ConvolutionAlgorithm::kGemm);
  // A plain product counts as Winograd's in a call whose other kernels are Winograd's.
  using enum ConvolutionAlgorithm;
  CHECK(combined_algorithm(kOther, kOther) == kOther);
  CHECK(combined_algorithm(kOther, kGemm) == kGemm);
  CHECK(combined_algorithm(kGemm, kOther) == kGemm);
  CHECK(combined_algorithm(kGemm, kWinograd) == kWinograd);
  CHECK(combined_algorithm(kWinograd, kGemm) == kWinograd);
  CHECK(combined_algorithm(kWinograd, kFft) == kWinograd);
  CHECK(is_collective(Family::kAllReduce));
  CHECK(is_collective(Family::kCollectiveOther));
  CHECK_FALSE(is_collective(Family::kCopy));
}

TEST_CASE("Kernel names of any length", "[analysis]") {
  CHECK(family_of("") == Family::kOther);
  CHECK(tensor_cores_of("") == TensorCoreUse{});
  const std::string beyond = std::string(kMaxClassifiedLength, 'x') + "nvjet_sm90_hsh";
  CHECK(family_of(beyond) == Family::kOther);
  CHECK(tensor_cores_of(beyond).cores == TensorCores::kUnknown);
  CHECK(family_of(beyond.substr(20)) == Family::kGemm);
}

TEST_CASE("Kernels that help a product compute none of it", "[kernels]") {
  for (const char* name :
       {"void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true>()",
        "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>()",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>()",
        "void cudnn::fusion::convert_dq_to_16bits<true>()",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>()",
        "void elemWiseRNNcell<float, float, float>()",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>()",
        "void at::native::vectorized_elementwise_kernel<4, FillFunctor>()"}) {
    INFO(name);
    CHECK(product_role_of(name) == ProductRole::kHelps);
  }
  for (const char* name :
       {"nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT", "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt",
        "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "void gemv2T_kernel_val<int, float>()",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "RNN_blockPersist_fp_GRU"}) {
    INFO(name);
    CHECK(product_role_of(name) == ProductRole::kMultiplies);
  }
  CHECK(product_role_of("my_kernel") == ProductRole::kUnknown);
}

TEST_CASE("A call's operations are those of its kernels that multiply", "[kernels]") {
  using Shares = std::vector<std::optional<double>>;
  const KernelInCalls gemm{"nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT", 10, 900};
  const KernelInCalls other_gemm{"volta_sgemm_128x64_nn", 5, 900};
  const KernelInCalls layout{"void cudnn::engines_precompiled::nchwToNhwcKernel<float>()", 20, 300};
  const KernelInCalls unknown{"my_kernel", 10, 100};
  CHECK(product_shares(std::vector{gemm, layout}, 8, 10) == Shares{80, 0});
  CHECK(product_shares(std::vector{gemm}, 8, 10) == Shares{80});
  CHECK(product_shares(std::vector{unknown}, 8, 10) == Shares{80});
  CHECK(product_shares(std::vector{unknown, layout}, 8, 10) == Shares{80, 0});
  // Some calls ran one product, some the other.
  CHECK(product_shares(std::vector{gemm, other_gemm, layout}, 8, 15) == Shares{80, 40, 0});
  // Each call ran both, in unknown shares.
  CHECK(product_shares(std::vector{gemm, other_gemm, layout}, 8, 10) ==
        Shares{std::nullopt, std::nullopt, 0});
  CHECK(product_shares(std::vector{gemm, unknown}, 8, 10) == Shares{std::nullopt, std::nullopt});
  CHECK(product_shares(std::vector{layout, layout}, 8, 10) == Shares{0, 0});
}
