// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/collective_group.h"

#include <algorithm>

namespace inject {

namespace {

std::uint64_t sum(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? ~std::uint64_t{0} : result;
}

bool is_point_to_point(Collective operation) noexcept {
  return operation == Collective::kSend || operation == Collective::kRecv ||
         operation == Collective::kSendRecv;
}

Collective common(Collective a, Collective b) noexcept {
  if (a == b) return a;
  return is_point_to_point(a) && is_point_to_point(b) ? Collective::kSendRecv : Collective::kMixed;
}

}  // namespace

void CollectiveGroup::add(const CollectiveShape& call, const void* communicator) noexcept {
  if (call.operation == Collective::kSend || call.operation == Collective::kRecv) {
    Side& side = call.operation == Collective::kSend ? sent_ : received_;
    ++side.calls;
    side.bytes = sum(side.bytes, call.bytes);
    if (call.peer >= 0 && static_cast<std::size_t>(call.peer) < kMaxRanks)
      side.peers[static_cast<std::size_t>(call.peer)] = true;
  }
  if (++calls_ == 1) {
    first_ = all_ = call;
    communicator_ = communicator;
    return;
  }
  equal_ = equal_ && call == first_;
  same_size_ = same_size_ && call.bytes == first_.bytes;
  one_communicator_ = one_communicator_ && communicator == communicator_;
  all_.operation = common(all_.operation, call.operation);
  if (call.type != all_.type) all_.type = CollectiveShape::kSeveral;
  if (call.reduction != all_.reduction) all_.reduction = CollectiveShape::kSeveral;
  if (call.ranks != all_.ranks) all_.ranks = 0;
  if (call.communicator != all_.communicator) all_.communicator = 0;
  if (call.peer != all_.peer) all_.peer = -1;
  all_.count = sum(all_.count, call.count);
  all_.bytes = sum(all_.bytes, call.bytes);
}

bool CollectiveGroup::is_all_to_all() const noexcept {
  return all_.ranks > 1 && one_communicator_ && same_size_ && sent_.has_each_once(all_.ranks) &&
         received_.has_each_once(all_.ranks);
}

bool CollectiveGroup::end(std::uint32_t window, CollectiveShape& submitted) noexcept {
  if (!is_open(window) || --depth_ != 0) return false;
  const bool any = calls_ != 0;
  if (any) {
    submitted = equal_ ? first_ : all_;
    submitted.role = equal_ ? GroupRole::kEqual : GroupRole::kDifferent;
    submitted.operations = calls_;
    if (!equal_ && is_point_to_point(all_.operation)) {
      // A rank's sends and receives run at the same time, so the larger of the two counts.
      submitted.bytes = std::max(sent_.bytes, received_.bytes);
      if (all_.operation == Collective::kSendRecv && is_all_to_all())
        submitted.operation = Collective::kAllToAll;
    }
  }
  *this = CollectiveGroup();
  return any;
}

}  // namespace inject
