// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// cuDNN's graph API: descriptors that keep what is set, and plans that can be read as text and executed. As
// the vendor's: a descriptor is set by its value, a graph's operations can't be read back, and a getter that
// fails changes the last error.
#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "tests/sim/core/library.h"
#include "tests/sim/cudnn_library.h"

using namespace inject::sim;
using inject::sim::cudnn::fail;

namespace {

struct Content;

struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<char> bytes;
  std::vector<std::shared_ptr<Content>> descriptors;
};

struct Content {
  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<int, Attribute> attributes;

  const Attribute* find(int name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : &found->second;
  }
  std::int64_t number(int name, std::int64_t otherwise = 0) const {
    const Attribute* attribute = find(name);
    if (attribute == nullptr || attribute->bytes.empty()) return otherwise;
    std::int64_t value = 0;
    std::memcpy(&value, attribute->bytes.data(),
                std::min<std::size_t>(sizeof value, attribute->bytes.size()));
    return value;
  }
  std::vector<std::int64_t> numbers(int name) const {
    const Attribute* attribute = find(name);
    std::vector<std::int64_t> all;
    if (attribute == nullptr) return all;
    all.resize(static_cast<std::size_t>(attribute->count));
    std::memcpy(all.data(), attribute->bytes.data(), attribute->bytes.size());
    return all;
  }
  std::shared_ptr<Content> descriptor(int name) const {
    const Attribute* attribute = find(name);
    return attribute == nullptr || attribute->descriptors.empty() ? nullptr : attribute->descriptors.front();
  }
};

/// What a cudnnBackendDescriptor_t points to.
struct Descriptor {
  std::shared_ptr<Content> content = std::make_shared<Content>();
};

Descriptor* of(cudnnBackendDescriptor_t descriptor) {
  return static_cast<Descriptor*>(descriptor);
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
      return 8;
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return 4;  // enumerations, float
  }
}

const char* name_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_HALF:
      return "CUDNN_DATA_HALF";
    case CUDNN_DATA_BFLOAT16:
      return "CUDNN_DATA_BFLOAT16";
    case CUDNN_DATA_DOUBLE:
      return "CUDNN_DATA_DOUBLE";
    default:
      return "CUDNN_DATA_FLOAT";
  }
}

/// The text of a plan, as the vendor's looks.
class PlanText {
 public:
  explicit PlanText(const Content& plan) {
    const auto config = plan.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const auto engine = config == nullptr ? nullptr : config->descriptor(CUDNN_ATTR_ENGINECFG_ENGINE);
    const auto graph = engine == nullptr ? nullptr : engine->descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    const Attribute* operations = graph == nullptr ? nullptr : graph->find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    if (operations == nullptr) return;
    for (const auto& operation : operations->descriptors) add(*operation);
    std::ostringstream text;
    text << R"({"cudnnVersion":91900,"schemaVersion":4,"operationGraph":{"finalizeMode":"","tensors":[)";
    const char* comma = "";
    for (const auto& [id, tensor] : tensors_) {
      text << comma << tensor;
      comma = ",";
    }
    text << R"(],"nodes":[)" << nodes_
         << R"(]},"GPUProfile":{"deviceName":"simulated"},"engine":{"engineId":)"
         << engine->number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) << R"(,"smVersion":900,"knobChoices":{}}})";
    text_ = text.str();
  }
  const std::string& text() const { return text_; }

 private:
  static std::string list(const std::vector<std::int64_t>& numbers) {
    std::string text = "[";
    for (const std::int64_t number : numbers) text += (text.size() > 1 ? "," : "") + std::to_string(number);
    return text + "]";
  }

  void add(const Content& operation) {
    struct Port {
      int attribute;
      const char* name;
    };
    std::string node = "{\"operation\":\"";
    std::vector<Port> ports;
    int convolution = 0;
    switch (operation.type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        node += "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR";
        convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC;
        ports = {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, "X"},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, "W"},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, "Y"}};
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        node += "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR";
        convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC;
        ports = {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, "dX"},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, "W"},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, "dY"}};
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        node += "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR";
        convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC;
        ports = {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, "X"},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, "dW"},
                 {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, "dY"}};
        break;
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        node += "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR";
        ports = {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, "X"},
                 {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, "Y"},
                 {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, "B"}};
        break;
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        node += "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR";
        ports = {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, "matA"},
                 {CUDNN_ATTR_OPERATION_MATMUL_BDESC, "matB"},
                 {CUDNN_ATTR_OPERATION_MATMUL_CDESC, "matC"}};
        break;
      default:
        node += "CUDNN_BACKEND_OPERATION_OF_ANOTHER_KIND_DESCRIPTOR";
    }
    node += "\"";
    if (const auto how = convolution == 0 ? nullptr : operation.descriptor(convolution)) {
      node += R"(,"mode":"CUDNN_CROSS_CORRELATION","mathPrec":")";
      node += name_of(static_cast<cudnnDataType_t>(how->number(CUDNN_ATTR_CONVOLUTION_COMP_TYPE)));
      node += R"(","alpha":1.0,"beta":0.0,"pad":)" + list(how->numbers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)) +
              ",\"stride\":" + list(how->numbers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)) +
              ",\"dilation\":" + list(how->numbers(CUDNN_ATTR_CONVOLUTION_DILATIONS));
    }
    if (const auto how = operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)) {
      const std::int64_t mode = how->number(CUDNN_ATTR_POINTWISE_MODE);
      node += std::string(",\"pointwiseMode\":\"CUDNN_POINTWISE_") +
              (mode == CUDNN_POINTWISE_RELU_FWD ? "RELU_FWD"
               : mode == CUDNN_POINTWISE_EXP    ? "EXP"
                                                : "ADD") +
              "\"";
      node += R"(,"mathPrec":"CUDNN_DATA_FLOAT")";
    }
    if (operation.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      node += R"(,"mathPrec":"CUDNN_DATA_FLOAT")";
    for (const Port& port : ports) {
      const auto tensor = operation.descriptor(port.attribute);
      if (tensor == nullptr) continue;
      const std::int64_t id = tensor->number(CUDNN_ATTR_TENSOR_UNIQUE_ID);
      node += std::string(",\"") + port.name + "\":\"" + std::to_string(id) + "\"";
      tensors_[id] = std::string("{\"name\":\"") + std::to_string(id) + "\",\"dataType\":\"" +
                     name_of(static_cast<cudnnDataType_t>(tensor->number(CUDNN_ATTR_TENSOR_DATA_TYPE))) +
                     "\",\"dim\":" + list(tensor->numbers(CUDNN_ATTR_TENSOR_DIMENSIONS)) +
                     ",\"stride\":" + list(tensor->numbers(CUDNN_ATTR_TENSOR_STRIDES)) + ",\"isVirtual\":" +
                     (tensor->number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0 ? "true" : "false") +
                     ",\"isByValue\":false}";
    }
    nodes_ += (nodes_.empty() ? "" : ",") + node + "}";
  }

  std::map<std::int64_t, std::string> tensors_;
  std::string nodes_;
  std::string text_;
};

cudnnStatus_t give(const std::string& text, std::int64_t wanted, std::int64_t* count, void* into) {
  const auto size = static_cast<std::int64_t>(text.size());
  if (wanted != 0 && wanted < size)
    return fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the text does not fit");
  *count = size;
  if (wanted != 0) std::memcpy(into, text.data(), text.size());
  return CUDNN_STATUS_SUCCESS;
}

constexpr const char* kPlanKernel =
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64";

cudnnStatus_t check_plan(cudnnHandle_t handle, cudnnBackendDescriptor_t plan) {
  if (handle == nullptr) return fail(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
  if (plan == nullptr) return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no plan");
  if (!of(plan)->content->finalized) return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  CUDNN_FUNCTION(cudnnBackendCreateDescriptor);
  if (descriptor == nullptr) return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place for a descriptor");
  auto* made = new Descriptor;
  made->content->type = type;
  *descriptor = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  CUDNN_FUNCTION(cudnnBackendDestroyDescriptor);
  delete of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  CUDNN_FUNCTION(cudnnBackendFinalize);
  if (descriptor == nullptr) return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  Content& content = *of(descriptor)->content;
  if (content.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && PlanText(content).text().empty())
    return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan of nothing");
  content.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  CUDNN_FUNCTION(cudnnBackendSetAttribute);
  if (descriptor == nullptr || elements == nullptr)
    return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "nothing to set");
  Content& content = *of(descriptor)->content;
  if (content.finalized) return fail(CUDNN_STATUS_BAD_PARAM, "finalized already");
  Attribute& attribute = content.attributes[name];
  attribute = {};
  attribute.type = type;
  attribute.count = count;
  const auto elements_set = static_cast<std::size_t>(count);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* all = static_cast<const cudnnBackendDescriptor_t*>(elements);
    for (std::size_t i = 0; i < elements_set; ++i) attribute.descriptors.push_back(of(all[i])->content);
  } else {
    const auto* bytes = static_cast<const char*>(elements);
    attribute.bytes.assign(bytes, bytes + elements_set * size_of(type));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count,
                                       void* elements) {
  CUDNN_FUNCTION(cudnnBackendGetAttribute);
  if (descriptor == nullptr) return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no descriptor");
  const Content& content = *of(descriptor)->content;
  if (!content.finalized) return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "not finalized");
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    if (content.type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
      return fail(CUDNN_STATUS_BAD_PARAM, "no attribute of this descriptor");
    return give(PlanText(content).text(), wanted, count, elements);
  }
  if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS) return fail(CUDNN_STATUS_NOT_SUPPORTED, "can't be read");
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    // Every other engine runs on tensor cores.
    *count = content.number(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) % 2 == 0 ? 1 : 0;
    if (*count != 0 && wanted > 0)
      *static_cast<cudnnBackendNumericalNote_t*>(elements) = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    return CUDNN_STATUS_SUCCESS;
  }
  const Attribute* attribute = content.find(name);
  if (attribute == nullptr || attribute->type != type)
    return fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "no attribute of this descriptor");
  *count = attribute->count;
  const auto given = static_cast<std::size_t>(std::min(wanted, attribute->count));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    auto* all = static_cast<cudnnBackendDescriptor_t*>(elements);
    for (std::size_t i = 0; i < given; ++i) of(all[i])->content = attribute->descriptors[i];
  } else {
    std::memcpy(elements, attribute->bytes.data(), given * size_of(type));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t /*variant*/) {
  CUDNN_FUNCTION(cudnnBackendExecute);
  if (const cudnnStatus_t status = check_plan(handle, plan); status != CUDNN_STATUS_SUCCESS) return status;
  return library::launch(kPlanKernel, 132, 256, cudnn::handle_of(handle)->stream) == 0
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                            cudnnBackendDescriptor_t /*variant*/, cudaGraph_t graph) {
  CUDNN_FUNCTION(cudnnBackendPopulateCudaGraph);
  if (const cudnnStatus_t status = check_plan(handle, plan); status != CUDNN_STATUS_SUCCESS) return status;
  return library::add_to_graph(kPlanKernel, 132, 256, graph) == 0 ? CUDNN_STATUS_SUCCESS
                                                                  : CUDNN_STATUS_EXECUTION_FAILED;
}
}
