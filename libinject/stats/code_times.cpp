// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/code_times.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "libinject/analysis/copies.h"
#include "libinject/analysis/kernel_class.h"
#include "libinject/model/code_place.h"
#include "libinject/stats/table_rows.h"

namespace inject {

namespace {

/// Libraries have kernels of many names for one purpose, and choose among them by size.
bool is_chosen_by_size(Family family) {
  return family == Family::kGemm || is_convolution(family) || family == Family::kAttention;
}

// Held::transfer: CUpti_ActivityMemcpyKind is added to this.
constexpr std::uint8_t kMemsetClass = 1;
constexpr std::uint8_t kFirstCopyClass = 2;

// LaunchedKernel::coarse is a kernel's name or, with one of these bits, something else.
constexpr std::uint32_t kFamilyClass = 1u << 31;
constexpr std::uint32_t kTransferClass = 1u << 30;
constexpr std::uint32_t kCallClass = 1u << 29;

// In the number of an operator's work: the kernel is the operator's first.
constexpr std::uint32_t kFirstOfOperator = 1;

/// What a library call does, whatever the size of its batch.
struct CallClass {
  CallShape shape;
  bool is_layer = false;  ///< the shape has the sizes of the weights
};

CallClass call_class(const CallShape& shape) {
  switch (shape.kind()) {
    case ShapeKind::kConvolution: {
      const auto of = shape.as<ConvolutionShape>();
      ConvolutionShape layer;
      layer.direction = of.direction;
      layer.c = of.c;
      layer.k = of.k;
      layer.groups = of.groups;
      layer.filter = of.filter;
      layer.stride = of.stride;
      layer.dilation = of.dilation;
      return {layer, true};
    }
    case ShapeKind::kRnn: {
      auto layer = shape.as<RnnShape>();
      layer.algorithm = 0;
      layer.length = layer.batch = 0;
      layer.steps = 0;
      return {layer, true};
    }
    case ShapeKind::kAttention: {
      AttentionShape any;
      any.direction = shape.as<AttentionShape>().direction;
      return {any, false};
    }
    case ShapeKind::kNormalization: {
      NormalizationShape any;
      any.direction = shape.as<NormalizationShape>().direction;
      any.mode = shape.as<NormalizationShape>().mode;
      return {any, false};
    }
    case ShapeKind::kCollective: {
      CollectiveShape any;
      any.operation = shape.as<CollectiveShape>().operation;
      return {any, false};
    }
    case ShapeKind::kGemm:
      return {GemmShape{}, false};
    default:
      return {OtherGraphShape{}, false};
  }
}

/// Of a launch that is not the first one of its unit.
std::uint32_t continued_work(std::uint32_t work) {
  return work == kNoWork || work == kUnknownWork ? work : work & ~kFirstOfOperator;
}

}  // namespace

CodeTimes::NameClass CodeTimes::class_of(std::uint32_t name) {
  const auto [entry, is_new] = classes_.try_emplace(name);
  if (is_new) {
    const Family family = family_of(names_->name(name));
    const auto number = static_cast<std::uint32_t>(family);
    entry->second = {is_chosen_by_size(family) ? kFamilyClass | number : name,
                     family == Family::kOther ? 0 : number + 1};
  }
  return entry->second;
}

CodeTimes::Held CodeTimes::held(const KernelEvent& event) {
  const auto number = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  // A graph's kernel has the shape of the captured call, if that was seen.
  const std::uint32_t shape = event.graph_node != 0 ? 0 : event.launch.shape;
  Held kernel{};
  kernel.exact =
      exact_.find_or_add({event.name, number(event.grid[0]), number(event.grid[1]), number(event.grid[2]),
                          number(event.block[0]), number(event.block[1]), number(event.block[2]), shape});
  const NameClass of_name = class_of(event.name);
  kernel.coarse = of_name.size;
  kernel.family = of_name.family;
  kernel.name = event.name;
  kernel.order = event.correlation;
  kernel.duration = duration_between(event.start, event.end);
  note_launch(kernel, event.launch, event.device);
  kernel.shape = event.launch.shape;
  kernel.graph = event.launch.graph;
  kernel.node = event.graph_node;
  kernel.start = event.start;
  // Each launch of a graph repeats the call.
  const bool is_replayed = event.replayed.call != 0;
  kernel.call = hash_mix((std::uint64_t{is_replayed ? event.replayed.thread : event.launch.thread} << 32 |
                          (is_replayed ? event.replayed.call : event.launch.owner)) *
                             kHashSeed ^
                         (is_replayed ? event.correlation : 0));
  return kernel;
}

CodeTimes::Held CodeTimes::held(const TransferEvent& event) {
  // Regardless of the size, which may vary; the direction does not.
  Held transfer{};
  transfer.transfer =
      static_cast<std::uint8_t>(event.memset ? kMemsetClass : kFirstCopyClass + event.copy_kind);
  transfer.coarse = kTransferClass | transfer.transfer;
  transfer.exact = exact_.find_or_add({transfer.coarse, 0, 0, 0, 0, 0, 0, 0});
  transfer.order = event.correlation;
  transfer.duration = duration_between(event.start, event.end);
  transfer.is_small = !event.memset && event.bytes < kSmallCopy;
  note_launch(transfer, event.launch, event.device);
  return transfer;
}

void CodeTimes::note_launch(Held& work, const Attribution& launch, std::uint32_t device) {
  work.thread = launch.thread;
  work.launched = launch.host_begin;
  work.returned = std::max(launch.host_begin, launch.host_end);
  work.device = static_cast<std::uint16_t>(device);
}

void CodeTimes::count(const Held& work, std::uint32_t place) {
  if (work.transfer != 0) {
    copies_[place].add(work.duration);
  } else {
    sums_[{place, work.name, work.detail}].add(work.duration);
  }
}

template <typename Event>
void CodeTimes::hold(const Event& event, std::uint32_t detail) {
  if (places_ == nullptr) return;
  Held work = held(event);
  work.detail = detail;
  std::vector<Held>& timed = timed_[event.launch.window];
  if (event.launch.known && timed.size() < kMaxHeld) {
    timed.push_back(work);
  } else {
    if (event.launch.known) {
      ++left_out_;
      const auto [first, is_new] = first_left_out_.try_emplace(event.launch.window, work.launched);
      if (!is_new) first->second = std::min(first->second, work.launched);
    }
    count(work, 0);
  }
}

template <typename Event>
void CodeTimes::hold_named(const Event& event) {
  if (places_ == nullptr) return;
  if (named_.size() >= kMaxNamed) {
    ++left_out_;
    return;
  }
  named_.push_back(held(event));
  named_.back().place = event.launch.range;
  named_.back().inside = event.launch.stream_handle;
  named_window_ = event.launch.window & ~kNamingWindow;
}

bool CodeTimes::wants_graph(std::uint32_t window, std::uint16_t number) const {
  if (places_ == nullptr) return false;
  const auto of_window = graphs_.find(window);
  return of_window == graphs_.end() || !of_window->second.contains(number);
}

void CodeTimes::graph(std::uint32_t window, std::uint16_t number, const CapturedGraph& graph,
                      const std::function<std::uint32_t(std::uint32_t)>& demangled) {
  Graph own;
  for (const CapturedKernel& kernel : graph.kernels) {
    const std::uint32_t name = demangled(kernel.name);
    own.exact.push_back(exact_.find_or_add({name, kernel.grid[0], kernel.grid[1], kernel.grid[2],
                                            kernel.block[0], kernel.block[1], kernel.block[2], 0}));
    own.places.push_back(places_->fused(kernel.place, names_->name(name)));
  }
  own.waits = graph.waits;
  own.is_chain = graph.is_chain;
  own.as_made = graph.as_made;
  graphs_[window].try_emplace(number, std::move(own));
}

void CodeTimes::kernel(const KernelEvent& event, std::uint32_t detail) {
  hold(event, detail);
}

void CodeTimes::copy(const TransferEvent& event) {
  hold(event);
}

void CodeTimes::named(const KernelEvent& event) {
  const std::size_t before = named_.size();
  hold_named(event);
  if (named_.size() != before)
    named_.back().place = places_->fused(named_.back().place, names_->name(event.name));
}

void CodeTimes::named(const TransferEvent& event) {
  hold_named(event);
}

void CodeTimes::gap(std::uint32_t window, const IdleGap& gap) {
  if (places_ != nullptr) gaps_.gap(window, gap);
}

void CodeTimes::named_wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end, std::uint32_t place) {
  if (places_ != nullptr) gaps_.wait(thread, begin, end, place);
}

void CodeTimes::sample(std::uint32_t thread, Nanoseconds time, std::uint32_t stack) {
  if (places_ != nullptr) gaps_.sample(thread, time, stack);
}

void CodeTimes::boundary(Nanoseconds begin) {
  if (places_ == nullptr) return;
  if (boundaries_.size() == kMaxBoundaries) {
    boundaries_.pop_front();
    boundaries_dropped_ = true;
  }
  boundaries_.push_back(begin);
}

void CodeTimes::settle_window(std::uint32_t window) {
  take_named();
  for (auto of_window = timed_.begin(); of_window != timed_.end() && of_window->first <= window;
       of_window = timed_.erase(of_window)) {
    join(of_window->first, of_window->second);
  }
  graphs_.erase(graphs_.begin(), graphs_.upper_bound(window));
}

/// Whether it is a kernel that a library call of known shape launched itself.
bool CodeTimes::is_of_call(const Held& work) {
  return work.transfer == 0 && work.node == 0 && work.shape != ShapeTable::kNone &&
         work.shape != ShapeTable::kOther;
}

/// Puts `work` into launch order.
CodeTimes::Units CodeTimes::units_of(std::vector<Held>& work) {
  std::stable_sort(work.begin(), work.end(), [](const Held& one, const Held& other) {
    return std::pair(one.order, one.node) < std::pair(other.order, other.node);
  });
  Units units;
  units.of.reserve(work.size());
  std::unordered_map<std::uint64_t, std::uint32_t> calls;
  for (const Held& one : work) {
    const auto next_unit = static_cast<std::uint32_t>(units.launched.size());
    const bool is_of_one = is_of_call(one);
    const std::uint32_t unit = is_of_one ? calls.try_emplace(one.call, next_unit).first->second : next_unit;
    units.of.push_back(unit);
    if (unit == next_unit) {
      const auto next = std::upper_bound(boundaries_.begin(), boundaries_.end(), one.launched);
      LaunchedKernel& launched = units.launched.emplace_back();
      launched = {one.exact, one.coarse, one.thread, static_cast<std::uint32_t>(next - boundaries_.begin()),
                  one.family};
      if (is_of_one) {
        const CallClass of_call = call_class(shapes_->shape(one.shape));
        std::uint64_t hash = 0;
        for (const std::uint64_t word : of_call.shape.words()) hash = hash_mix(hash ^ word) * kHashSeed;
        launched.coarse =
            kCallClass | exact_.find_or_add({kCallClass, static_cast<std::uint32_t>(hash),
                                             static_cast<std::uint32_t>(hash >> 32), 0, 0, 0, 0, 0});
        launched.is_layer = of_call.is_layer;
      }
    } else if ((one.coarse & kFamilyClass) != 0) {
      units.launched[unit].family = one.family;  // what the call is for, rather than what prepares it
    }
  }
  units.first.assign(units.launched.size() + 1, 0);
  for (const std::uint32_t unit : units.of) ++units.first[unit + 1];
  std::partial_sum(units.first.begin(), units.first.end(), units.first.begin());
  units.rank.resize(work.size());
  units.launches.resize(work.size());
  std::vector<std::uint32_t> ranks(units.launched.size());
  for (std::uint32_t i = 0; i < work.size(); ++i) {
    const std::uint32_t unit = units.of[i];
    units.rank[i] = ranks[unit]++;
    units.launches[units.first[unit] + units.rank[i]] = i;
  }
  return units;
}

std::vector<CodeLaunch> CodeTimes::code_launches(const std::vector<Held>& work) {
  std::vector<CodeLaunch> launches;
  launches.reserve(work.size());
  for (const Held& one : work)
    launches.push_back({one.launched, one.returned, one.thread, one.place, one.device,
                        one.transfer >= kFirstCopyClass,
                        one.is_small && one.transfer == kFirstCopyClass + kDeviceToHost});
  return launches;
}

// Later windows take their places from these as well, once their own iterations are no longer known.
void CodeTimes::take_named() {
  if (named_.empty()) return;
  named_units_ = units_of(named_);
  // Operators that were open when naming began are unknown: they may be missing around any launch of a
  // thread's first iteration. One iteration later they have ended.
  std::unordered_map<std::uint32_t, std::uint32_t> first;  // by thread
  std::vector<PlaceVote> votes(named_units_.launched.size());
  for (std::size_t i = 0; i < named_.size(); ++i) votes[named_units_.of[i]].add(named_[i].place);
  named_places_.clear();
  named_works_.clear();
  const std::vector<std::uint32_t> works = named_works();
  for (std::uint32_t unit = 0; unit < votes.size(); ++unit) {
    const LaunchedKernel& launch = named_units_.launched[unit];
    const bool is_first =
        first.try_emplace(launch.thread, launch.iteration).first->second == launch.iteration;
    const std::uint32_t place = votes[unit].place();
    named_places_.push_back(place != 0 && is_first ? place | kIncompletePlace : place);
    named_works_.push_back(works[named_units_.launch(unit, 0)]);
  }
  Nanoseconds last = 0;
  for (const Held& kernel : named_) last = std::max(last, kernel.launched);
  const auto next = std::upper_bound(boundaries_.begin(), boundaries_.end(), last);
  gaps_.named(code_launches(named_), first_alike_launches(), named_window_,
              next == boundaries_.end() ? std::nullopt : std::optional(*next));
  named_.clear();
  named_.shrink_to_fit();
}

/// first_alike() of the named launches.
std::vector<std::uint32_t> CodeTimes::first_alike_launches() const {
  const std::vector<std::uint32_t> units = first_alike(named_units_.launched);
  std::vector<std::uint32_t> alike(named_units_.of.size());
  for (std::uint32_t i = 0; i < alike.size(); ++i) {
    const std::uint32_t found = named_units_.launch(units[named_units_.of[i]], named_units_.rank[i]);
    alike[i] = found == JoinedPlace::kNone ? i : found;
  }
  return alike;
}

bool CodeTimes::has_kernels(const Launch& launch, const Graph& graph) {
  return std::equal(launch.begin(), launch.end(), graph.exact.begin(), graph.exact.end(),
                    [](const Held* kernel, std::uint32_t exact) {
                      return kernel->exact == exact && exact != KeyIndex<8>::kOther;
                    });
}

bool CodeTimes::follows_order(const Launch& launch, const Graph& graph) {
  return std::all_of(graph.waits.begin(), graph.waits.end(), [&](const auto& pair) {
    return launch[pair.first]->start <= launch[pair.second]->start;
  });
}

/// Determined by the first launch that shows it. A chain's kernels run in the order in which they were
/// captured. Others are numbered in order of creation, unless a chain has been seen that is not.
CodeTimes::GraphNodePlaces CodeTimes::nodes_of(const std::vector<Launch>& launches, const Graph& graph) {
  constexpr std::size_t kMostTries = 16;
  GraphNodePlaces nodes;
  if (!graph.is_chain && !(graph.as_made && nodes_ascend_)) return nodes;
  std::size_t tries = 0;
  for (Launch launch : launches) {
    if (launch.size() != graph.exact.size()) continue;
    if (++tries > kMostTries) break;
    std::sort(launch.begin(), launch.end(), [&](const Held* one, const Held* other) {
      return graph.is_chain ? std::pair(one->start, one->node) < std::pair(other->start, other->node)
                            : one->node < other->node;
    });
    if (!has_kernels(launch, graph) || !follows_order(launch, graph)) continue;
    for (std::size_t i = 0; i < launch.size(); ++i)
      nodes.emplace(launch[i]->node, static_cast<std::uint32_t>(i));
    if (graph.is_chain && graph.as_made)
      nodes_ascend_ = nodes_ascend_ &&
                      std::is_sorted(launch.begin(), launch.end(), [](const Held* one, const Held* other) {
                        return one->node < other->node;
                      });
    if (nodes.size() == launch.size()) break;
    nodes.clear();  // some nodes have the same number
  }
  return nodes;
}

/// The places where graphs' kernels were captured; 0 if unknown.
std::vector<std::uint32_t> CodeTimes::captured_places(std::uint32_t window, const std::vector<Held>& timed) {
  std::vector<std::uint32_t> places(timed.size());
  const auto graphs = graphs_.find(window);
  if (graphs == graphs_.end()) return places;
  std::unordered_map<std::uint16_t, std::map<std::uint32_t, Launch>> launches;  // by number and launch
  for (const Held& kernel : timed)
    if (kernel.graph != 0 && kernel.node != 0 && kernel.transfer == 0)
      launches[kernel.graph][kernel.order].push_back(&kernel);
  std::unordered_map<std::uint16_t, GraphNodePlaces> nodes;
  for (const bool chains : {true, false}) {
    for (auto& [number, of_graph] : launches) {
      const auto graph = graphs->second.find(number);
      if (graph == graphs->second.end() || graph->second.is_chain != chains) continue;
      std::vector<Launch> list;
      for (auto& [order, launch] : of_graph) list.push_back(std::move(launch));
      nodes[number] = nodes_of(list, graph->second);
    }
  }
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto of_graph = nodes.find(timed[i].graph);
    if (of_graph == nodes.end()) continue;
    const auto node = of_graph->second.find(timed[i].node);
    const Graph& graph = graphs->second.at(timed[i].graph);
    if (node != of_graph->second.end() && graph.exact[node->second] == timed[i].exact)
      places[i] = graph.places[node->second];
    any_captured_ = any_captured_ || places[i] != 0;
  }
  return places;
}

/// The kernels of one library call have one place, though a graph's may not each be found.
void CodeTimes::agree_in_calls(const std::vector<Held>& timed, std::vector<std::uint32_t>& places) {
  std::unordered_map<std::uint64_t, PlaceVote> votes;
  const auto in_call = [](const Held& kernel) {
    return kernel.transfer == 0 && kernel.shape != ShapeTable::kNone;
  };
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (in_call(timed[i])) votes[timed[i].call].add(places[i]);
  }
  for (std::size_t i = 0; i < timed.size(); ++i) {
    if (in_call(timed[i])) places[i] = votes[timed[i].call].place();
  }
}

/// The places of all launches of a window, which are those of their units.
std::vector<JoinedPlace> CodeTimes::joined_launches(const Units& timed) const {
  const std::vector<JoinedPlace> units =
      join_places(timed.launched, named_units_.launched, named_places_, named_works_,
                  [this](std::uint32_t incomplete, std::uint32_t complete) {
                    return places_->may_be_same(incomplete, complete);
                  });
  std::vector<JoinedPlace> joined;
  joined.reserve(timed.of.size());
  for (std::size_t i = 0; i < timed.of.size(); ++i) {
    JoinedPlace one = units[timed.of[i]];
    if (one.named != JoinedPlace::kNone) one.named = named_units_.launch(one.named, timed.rank[i]);
    if (timed.rank[i] != 0) one.work = continued_work(one.work);
    joined.push_back(one);
  }
  return joined;
}

void CodeTimes::join(std::uint32_t window, std::vector<Held>& timed) {
  std::vector<JoinedPlace> joined(timed.size());
  Units units;
  if (any_named()) {
    units = units_of(timed);
    joined = joined_launches(units);
    for (std::size_t i = 0; boundaries_dropped_ && i < timed.size(); ++i) {
      if (units.launched[units.of[i]].iteration != 0) continue;
      joined[i] = {};  // several iterations, as one
      ++left_out_;
    }
    if (tell_places_) tell(timed, units, joined);
  }
  std::vector<std::uint32_t> own_places = captured_places(window, timed);
  for (std::size_t i = 0; i < timed.size(); ++i)
    own_places[i] = places_->replayed(own_places[i], joined[i].place);
  agree_in_calls(timed, own_places);
  for (std::size_t i = 0; i < timed.size(); ++i) count(timed[i], own_places[i]);
  const auto left_out = first_left_out_.find(window);
  const bool all_held = left_out == first_left_out_.end();
  add_flops(timed, units, joined, own_places,
            all_held ? std::numeric_limits<Nanoseconds>::max() : left_out->second);
  if (!all_held) first_left_out_.erase(left_out);
  gaps_.settle(window, code_launches(timed), joined);
}

void CodeTimes::tell(const std::vector<Held>& timed, const Units& units,
                     const std::vector<JoinedPlace>& joined) const {
  std::vector<PlacedLaunch> placed;
  placed.reserve(timed.size());
  for (std::size_t i = 0; i < timed.size(); ++i)
    placed.push_back({timed[i].launched, timed[i].returned, timed[i].thread,
                      units.launched[units.of[i]].iteration, joined[i].place});
  std::stable_sort(placed.begin(), placed.end(), [](const PlacedLaunch& one, const PlacedLaunch& other) {
    return std::pair(one.thread, one.begin) < std::pair(other.thread, other.begin);
  });
  tell_places_(placed);
}

namespace {

/// The work of an operator's call as one number: its shape, and whether the kernel is the call's first.
constexpr std::uint32_t operator_work_number(std::uint32_t shape, bool is_first) {
  return shape << 1 | (is_first ? kFirstOfOperator : 0u);
}

}  // namespace

/// By named kernel. Of nested calls only the innermost count, and none counts if a library call of known
/// FLOPs was made inside it.
std::vector<std::uint32_t> CodeTimes::named_works() const {
  struct Call {
    std::uint32_t level = 0;
    std::size_t first = 0;
    bool counts = true;
  };
  using Calls = std::map<std::uint32_t, Call>;                         // by `inside`
  std::map<std::pair<std::uint32_t, std::uint32_t>, Calls> outermost;  // by thread and number
  const auto calls_of = [&outermost](const Held& kernel, const OperatorCall& call) -> Calls& {
    return outermost[{kernel.thread, call.outermost}];
  };
  for (std::size_t i = 0; i < named_.size(); ++i) {
    const Held& kernel = named_[i];
    const OperatorCall call = OperatorCall::unpacked(kernel.inside);
    if (call.level == 0 || call.is_unknown() || kernel.transfer != 0) continue;
    Call& found = calls_of(kernel, call).try_emplace(call.inside, Call{call.level, i, true}).first->second;
    if (kernel.shape != ShapeTable::kNone && model_work_of(shapes_->shape(kernel.shape)).flops != 0)
      found.counts = false;
  }
  for (auto& [number, calls] : outermost) {
    std::uint32_t next = 0;  // level of the next call, which is inside if it is deeper
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      if (call->second.level < next) call->second.counts = false;
      next = call->second.level;
    }
  }
  std::vector<std::uint32_t> works(named_.size(), kNoWork);
  for (std::size_t i = 0; i < named_.size(); ++i) {
    const Held& kernel = named_[i];
    const OperatorCall call = OperatorCall::unpacked(kernel.inside);
    if (call.is_unknown()) works[i] = kUnknownWork;
    if (call.level == 0 || call.is_unknown() || call.shape == ShapeTable::kNone || kernel.transfer != 0)
      continue;
    const Call& found = calls_of(kernel, call).at(call.inside);
    works[i] = found.counts ? operator_work_number(call.shape, found.first == i) : kNoWork;
  }
  return works;
}

const CodeTimes::IterationFlops* CodeTimes::iteration_flops(Nanoseconds time) const {
  auto next = iteration_flops_.upper_bound(time);
  if (next == iteration_flops_.begin()) return nullptr;
  const IterationFlops& found = std::prev(next)->second;
  return time < found.end ? &found : nullptr;
}

/// `timed` is in launch order. Launches from `held_until` on may be missing from it.
void CodeTimes::add_flops(const std::vector<Held>& timed, const Units& units,
                          const std::vector<JoinedPlace>& joined,
                          const std::vector<std::uint32_t>& own_places, Nanoseconds held_until) {
  const auto iteration_of = [&](std::size_t i) -> IterationFlops* {
    const std::size_t next = units.of.empty() ? 0 : units.launched[units.of[i]].iteration;
    if (next == 0) return nullptr;
    if (next == boundaries_.size() || boundaries_[next] > held_until) return nullptr;
    const Nanoseconds end = boundaries_[next];
    const Nanoseconds begin = boundaries_[next - 1];
    const auto known = iteration_flops_.find(begin);
    if (known != iteration_flops_.end()) return &known->second;
    if (iteration_flops_.size() == kMaxIterations) return nullptr;
    return &iteration_flops_.try_emplace(begin, IterationFlops{end, {}, true}).first->second;
  };
  std::unordered_set<std::uint64_t> calls;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const Held& kernel = timed[i];
    if (kernel.transfer != 0) continue;
    IterationFlops* const iteration = iteration_of(i);
    ShapeWork work;
    bool is_first = false;
    if (kernel.shape != ShapeTable::kNone) work = model_work_of(shapes_->shape(kernel.shape));
    if (work.flops != 0) {
      is_first = calls.insert(kernel.call).second;
    } else if (joined[i].work != kNoWork && joined[i].work != kUnknownWork) {
      work = model_work_of(shapes_->shape(joined[i].work >> 1));
      is_first = (joined[i].work & kFirstOfOperator) != 0;
      any_operator_flops_ = any_operator_flops_ || work.flops != 0;
    }
    if (work.flops == 0) {
      if (joined[i].work != kNoWork && iteration != nullptr) iteration->operators_known = false;
      continue;
    }
    Flops& sum = flops_[own_places[i]];
    if (is_first) sum.flops.add(best_arithmetic(work), work.flops);
    if (is_first && iteration != nullptr) iteration->flops.add(best_arithmetic(work), work.flops);
    sum.time += kernel.duration;
  }
}

}  // namespace inject
