// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The text that cuDNN makes of an execution plan, read on the program's thread: any text ends the reading,
// and what comes of it can be computed with and printed.
#include <string>

#include "libinject/analysis/shape_text.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/base/json_reader.h"
#include "libinject/capture/hooks/cudnn_graph.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint32_t notes = input.number<std::uint32_t>();
  const std::string_view text = input.rest();

  JsonReader json(text);
  json.skip();
  json.peek();

  const CallShape shape = shape_of_plan(text, notes);
  fuzz::require(shape == shape_of_plan(text, notes), "a text has one shape");
  const ShapeWork work = work_of(shape);
  fuzz::require(shape.kind() != ShapeKind::kNone || work.flops == 0, "no shape, no work");
  if (shape.kind() == ShapeKind::kConvolution) {
    const auto convolution = shape.as<ConvolutionShape>();
    fuzz::require(fuzz::is_one_line(spatial_text(convolution.in, convolution.dimensions)),
                  "sizes are a line");
    operations_text(convolution.fused);
    convolution_algorithm_of(convolution);
    layout_name(convolution.layout, convolution.dimensions);
  } else if (shape.kind() == ShapeKind::kOtherGraph) {
    operations_text(shape.as<OtherGraphShape>().operations);
  }
  return 0;
}
