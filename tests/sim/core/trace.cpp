// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "tests/sim/core/counters.h"
#include "tests/sim/core/device.h"
#include "tests/sim/cudasim.h"

namespace inject::sim::trace {
namespace {

constexpr std::size_t kMaxCbid = 1024;
constexpr std::size_t kDomains = CUPTI_CB_DOMAIN_SIZE;
constexpr std::size_t kKinds = CUPTI_ACTIVITY_KIND_COUNT;

struct Subscriber {
  CUpti_CallbackFunc callback;
  void* user;
  const char* name;  // null: it has given none
};

struct Buffer {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  std::size_t used = 0;
  std::size_t max_records = 0;  // 0: as many as fit
  std::vector<ActivityRef> records;
};
using BufferRef = std::shared_ptr<Buffer>;

// Leaked: see base.cpp.
struct State {
  std::atomic<Subscriber*> subscriber{nullptr};
  std::array<std::array<std::atomic<bool>, kMaxCbid>, kDomains> callbacks{};
  std::array<std::atomic<bool>, kKinds> kinds{};
  std::atomic<std::uint32_t> next_correlation{1};
  std::atomic<std::uint64_t> calls_in_callbacks{0};
  std::atomic<int> flushes{0};          // in progress
  std::atomic<int> callbacks_in{0};     // likewise, on all threads
  std::atomic<int> creations{0};        // likewise, of contexts
  std::atomic<int> switches{0};         // likewise, of what spoils a context that is being created
  std::atomic<int> initialisations{0};  // likewise, of the driver and of NVML
  std::atomic<std::uint64_t> misuse{0};
  std::atomic<bool> used{false};  // since it was finalized

  std::mutex mutex;  // everything below; never held while the client is called
  CUpti_BuffersCallbackRequestFunc requested = nullptr;
  CUpti_BuffersCallbackCompleteFunc completed = nullptr;
  CUpti_TimestampCallbackFunc timestamp = nullptr;
  std::int64_t timestamp_offset = 0;
  RecordSizes sizes{};
  std::map<pid_t, BufferRef> current;  // one a thread, or one for all under key 0
  std::list<BufferRef> full;
  std::size_t dropped = 0;
  std::size_t delivered = 0;
  bool disabled_kernels = false;
  std::map<CUpti_ActivityAttribute, std::size_t> attributes;
  std::uint32_t period_ms = 0;

  std::thread worker;
  std::shared_ptr<bool> stop_worker;  // of this worker alone: another may start before it has seen this
  std::condition_variable wake_worker;
  bool worker_delivers = false;
  std::condition_variable worker_delivered;

  std::mutex delivery;  // one buffer at a time goes to the client
};

State& state() {
  static State& instance = *new State;
  return instance;
}

// Which outermost API call this thread is in, and whether it is inside a call of the client's functions.
struct ThreadState {
  unsigned depth = 0;
  std::uint32_t correlation = 0;
  bool delivering = false;
  unsigned in_callback = 0;
  int initialisations = 0;
  int switches = 0;
};
thread_local ThreadState this_thread;

struct InCallback {
  InCallback() {
    if (this_thread.in_callback++ == 0) ++state().callbacks_in;
  }
  ~InCallback() {
    if (--this_thread.in_callback == 0) --state().callbacks_in;
  }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
};

bool is_profiler_stop(const Function& function) {
  return function.domain == Domain::kDriver && std::string_view(function.cbid_name) == "cuProfilerStop";
}

pid_t thread_id() {
  thread_local pid_t id = static_cast<pid_t>(syscall(SYS_gettid));
  return id;
}

bool callback_enabled(CUpti_CallbackDomain domain, std::uint32_t cbid) {
  return cbid < kMaxCbid && state().callbacks[domain][cbid].load(std::memory_order_acquire);
}

CUpti_CallbackDomain callback_domain(Domain domain) {
  return domain == Domain::kDriver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
}

std::size_t record_size(CUpti_ActivityKind kind, const RecordSizes& sizes) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizes.kernel;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizes.memcpy;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizes.memcpy_peer;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizes.memset;
    default:
      return sizeof(CUpti_ActivityAPI);
  }
}

bool is_kernel_kind(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_KERNEL || kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
}

bool complete(const Activity& activity, Nanoseconds now) {
  if (!activity.committed) return false;
  Nanoseconds late = faults().late_ns.load(std::memory_order_relaxed);
  if (activity.overwritten && (activity.end_of == nullptr || !activity.end_of->ended_by(now))) return false;
  return activity.op == nullptr || (now >= late && activity.op->ended_by(now - late));
}

bool complete(const Buffer& buffer, Nanoseconds now) {
  return std::all_of(buffer.records.begin(), buffer.records.end(),
                     [now](const ActivityRef& activity) { return complete(*activity, now); });
}

// A clock beyond CLOCK_MONOTONIC, which the simulation runs on: by the narrowest of a few readings, as the
// processor may be lost in the middle of one.
template <typename Clock>
std::int64_t ahead(Clock&& clock) {
  std::int64_t offset = 0;
  Nanoseconds narrowest = std::numeric_limits<Nanoseconds>::max();
  for (int i = 0; i < 8; ++i) {
    const Nanoseconds before = now_ns();
    const std::uint64_t time = clock();
    const Nanoseconds width = now_ns() - before;
    if (width >= narrowest) continue;
    narrowest = width;
    offset = static_cast<std::int64_t>(time - (before + width / 2));
  }
  return offset;
}

// From the simulation's clock to the client's.
std::int64_t clock_offset(State& shared) {
  if (shared.timestamp != nullptr) return shared.timestamp_offset;
  return ahead([] { return clock_ns(CLOCK_REALTIME); });
}

// Writes the buffer's records as the client shall see them; returns the bytes written.
std::size_t write_records(Buffer& buffer, std::int64_t offset, Nanoseconds now, std::size_t& count) {
  if (faults().out_of_order.load(std::memory_order_relaxed))
    std::reverse(buffer.records.begin(), buffer.records.end());
  std::size_t at = 0;
  for (const ActivityRef& activity : buffer.records) {
    activity->gone = true;
    if (!activity->committed) continue;
    std::array<std::uint64_t, 2> times{0, 0};
    if (activity->op == nullptr) {
      std::memcpy(times.data(), activity->bytes.data() + activity->time_offset, sizeof times);
    } else if (complete(*activity, now)) {
      times = {activity->op->start.load(), activity->op->end.load()};
    }
    if (times[1] != 0 && activity->end_of != nullptr) times[1] = activity->end_of->end.load();
    if (times[1] != 0)
      for (std::uint64_t& time : times) time += static_cast<std::uint64_t>(offset);
    if (activity->zero_time) times = {0, 0};
    std::memcpy(activity->bytes.data() + activity->time_offset, times.data(), sizeof times);
    for (int i = 0; i < (activity->repeated ? 2 : 1); ++i) {
      std::memcpy(buffer.data + at, activity->bytes.data(), activity->size);
      at += activity->size;
      ++count;
    }
  }
  return at;
}

// CUDASIM_PROGRESS=FILE: the number of records that the client has been given, eight bytes, for whoever looks
// when the program has been killed.
void count_given(std::size_t count) {
  static auto* given = []() -> std::atomic<std::uint64_t>* {
    const char* path = std::getenv("CUDASIM_PROGRESS");
    const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return nullptr;
    void* mapped = MAP_FAILED;
    if (ftruncate(file, sizeof(std::uint64_t)) == 0)
      mapped = mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::atomic<std::uint64_t>*>(mapped);
  }();
  if (given != nullptr) given->fetch_add(count);
}

void deliver(const BufferRef& buffer) {
  State& shared = state();
  std::lock_guard one_at_a_time(shared.delivery);
  CUpti_BuffersCallbackCompleteFunc completed = nullptr;
  std::size_t valid = 0;
  std::size_t count = 0;
  {
    std::lock_guard lock(shared.mutex);
    valid = write_records(*buffer, clock_offset(shared), now_ns(), count);
    shared.delivered += count;
    completed = shared.completed;
  }
  this_thread.delivering = true;
  if (completed != nullptr) completed(nullptr, 0, buffer->data, buffer->size, valid);
  this_thread.delivering = false;
  if (completed != nullptr) count_given(count);
}

// Buffers that can go to the client now: complete ones, or all if forced. The caller holds the lock.
std::vector<BufferRef> take_buffers(State& shared, bool forced, bool only_full) {
  std::vector<BufferRef> ready;
  Nanoseconds now = now_ns();
  for (auto it = shared.full.begin(); it != shared.full.end();) {
    if (forced || complete(**it, now)) {
      ready.push_back(*it);
      it = shared.full.erase(it);
    } else {
      ++it;
    }
  }
  if (only_full) return ready;
  for (auto it = shared.current.begin(); it != shared.current.end();) {
    bool empty = it->second->records.empty();
    if (forced || (!empty && complete(*it->second, now))) {
      ready.push_back(it->second);
      it = shared.current.erase(it);
    } else {
      ++it;
    }
  }
  return ready;
}

// CUPTI hands back full buffers, and with a flush period all complete ones, from a thread of its own.
void run_worker(const std::shared_ptr<bool>& stop) {
  State& shared = state();
  std::unique_lock lock(shared.mutex);
  Nanoseconds last_period = now_ns();
  while (!*stop) {
    std::uint32_t wait_ms = 1000;
    if (shared.period_ms != 0) wait_ms = shared.period_ms;
    if (!shared.full.empty()) wait_ms = 1;
    shared.wake_worker.wait_for(lock, std::chrono::milliseconds(wait_ms));
    if (*stop) break;
    bool period = shared.period_ms != 0 && now_ns() - last_period >= shared.period_ms * 1'000'000ull;
    if (period) last_period = now_ns();
    std::vector<BufferRef> ready = take_buffers(shared, false, !period);
    shared.worker_delivers = !ready.empty();
    lock.unlock();
    for (const BufferRef& buffer : ready) deliver(buffer);
    lock.lock();
    shared.worker_delivers = false;
    shared.worker_delivered.notify_all();
  }
}

void start_worker(State& shared) {
  if (shared.worker.joinable()) return;
  shared.stop_worker = std::make_shared<bool>(false);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  shared.worker = std::thread(run_worker, shared.stop_worker);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::size_t attribute_or(State& shared, CUpti_ActivityAttribute name, std::size_t otherwise) {
  auto found = shared.attributes.find(name);
  return found == shared.attributes.end() ? otherwise : found->second;
}

// Asks the client for a buffer; called without the lock, as the client may call CUPTI.
BufferRef request_buffer(CUpti_BuffersCallbackRequestFunc requested, bool zeroed_by_client) {
  auto buffer = std::make_shared<Buffer>();
  requested(&buffer->data, &buffer->size, &buffer->max_records);
  if (buffer->data == nullptr || buffer->size == 0) return nullptr;
  if (!zeroed_by_client) std::memset(buffer->data, 0, buffer->size);
  return buffer;
}

bool has_room(const Buffer& buffer, std::size_t bytes) {
  return buffer.size - buffer.used >= bytes &&
         (buffer.max_records == 0 || buffer.records.size() < buffer.max_records);
}

bool valid_handle(CUpti_SubscriberHandle handle) {
  return handle != nullptr && reinterpret_cast<Subscriber*>(handle) == state().subscriber.load();
}

void clear_callbacks() {
  for (auto& domain : state().callbacks)
    for (auto& enabled : domain) enabled = false;
}

}  // namespace

ApiCall::ApiCall(const Function& function, const void* params, void* result, const char* symbol)
    : function_(function), params_(params), result_(result), symbol_(symbol) {
  if (this_thread.in_callback > 0 || this_thread.delivering) state().calls_in_callbacks.fetch_add(1);
  if (this_thread.depth++ == 0) this_thread.correlation = 0;
  CUpti_ActivityKind kind =
      function_.domain == Domain::kDriver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (state().kinds[kind].load(std::memory_order_relaxed)) begin_ = now_ns();
  fire(CUPTI_API_ENTER);
}

ApiCall::~ApiCall() {
  fire(CUPTI_API_EXIT);
  if (begin_ != 0) {
    CUpti_ActivityKind kind =
        function_.domain == Domain::kDriver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
    if (ActivityRef activity = reserve(kind)) {
      CUpti_ActivityAPI record{};
      record.kind = kind;
      record.cbid = function_.cbid;
      record.start = begin_;
      record.end = now_ns();
      record.processId = static_cast<std::uint32_t>(getpid());
      record.threadId = static_cast<std::uint32_t>(thread_id());
      record.correlationId = current_correlation();
      record.returnValue = static_cast<std::uint32_t>(*static_cast<int*>(result_));
      commit(activity, record, nullptr);
    }
  }
  --this_thread.depth;
}

void ApiCall::fire(CUpti_ApiCallbackSite site) {
  if (function_.cbid == 0) return;
  CUpti_CallbackDomain domain = callback_domain(function_.domain);
  if (!callback_enabled(domain, function_.cbid)) return;
  Subscriber* subscriber = state().subscriber.load(std::memory_order_acquire);
  if (subscriber == nullptr) return;
  CUpti_CallbackData data{};
  data.callbackSite = site;
  data.functionName = function_.cbid_name;
  data.functionParams = params_;
  data.functionReturnValue = result_;
  data.symbolName = symbol_;
  data.context = current_context_handle();
  data.contextUid = current_context_uid();
  data.correlationData = &data_;
  data.correlationId = current_correlation();
  InCallback inside;
  // Seen on hardware: CUPTI does more in this one.
  if (const std::uint32_t ms = faults().profiler_stop_ms; ms != 0 && is_profiler_stop(function_))
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  subscriber->callback(subscriber->user, domain, function_.cbid, &data);
}

std::uint32_t current_correlation() {
  if (this_thread.depth == 0) return 0;
  if (this_thread.correlation == 0) this_thread.correlation = state().next_correlation.fetch_add(1);
  return this_thread.correlation;
}

bool recording_kernels() {
  return state().kinds[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL].load(std::memory_order_relaxed) ||
         state().kinds[CUPTI_ACTIVITY_KIND_KERNEL].load(std::memory_order_relaxed);
}

void fire_resource(CUpti_CallbackIdResource cbid, CUcontext context, CUstream stream, void* descriptor) {
  if (!callback_enabled(CUPTI_CB_DOMAIN_RESOURCE, cbid)) return;
  Subscriber* subscriber = state().subscriber.load(std::memory_order_acquire);
  if (subscriber == nullptr) return;
  CUpti_ResourceData data{};
  data.context = context;
  data.resourceHandle.stream = stream;
  data.resourceDescriptor = descriptor;
  InCallback inside;
  subscriber->callback(subscriber->user, CUPTI_CB_DOMAIN_RESOURCE, cbid, &data);
}

// CUPTI gives up: it says so and is finalized when the callback returns.
static void fail_for_good() {
  Subscriber* subscriber = state().subscriber.load(std::memory_order_acquire);
  if (subscriber != nullptr && callback_enabled(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR)) {
    CUpti_StateData data{};
    data.notification.result = CUPTI_ERROR_UNKNOWN;
    data.notification.message = "simulated fatal error";
    InCallback inside;
    subscriber->callback(subscriber->user, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &data);
  }
  finalize(false);
}

ActivityRef reserve(CUpti_ActivityKind kind) {
  State& shared = state();
  if (!shared.kinds[kind].load(std::memory_order_acquire)) return nullptr;
  if (faults().fatal_error.load(std::memory_order_relaxed) && faults().fatal_error.exchange(false)) {
    fail_for_good();
    return nullptr;
  }
  auto activity = std::make_shared<Activity>();
  activity->kind = kind;
  activity->zero_time = Faults::take(faults().zero_time);
  activity->repeated = Faults::take(faults().repeat);
  bool drop = Faults::take(faults().drop);

  std::unique_lock lock(shared.mutex);
  activity->size = record_size(kind, shared.sizes);
  std::size_t bytes = activity->size * (activity->repeated ? 2 : 1);
  if (drop || shared.requested == nullptr) {
    ++shared.dropped;
    return nullptr;
  }
  bool per_thread = attribute_or(shared, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, 1) != 0;
  pid_t key = per_thread ? thread_id() : 0;
  auto place = shared.current.find(key);
  if (place != shared.current.end() && !has_room(*place->second, bytes)) {
    shared.full.push_back(place->second);
    shared.current.erase(place);
    place = shared.current.end();
    shared.wake_worker.notify_one();
  }
  if (place == shared.current.end()) {
    CUpti_BuffersCallbackRequestFunc requested = shared.requested;
    bool zeroed = attribute_or(shared, CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, 0) != 0;
    lock.unlock();
    BufferRef buffer = request_buffer(requested, zeroed);
    lock.lock();
    if (buffer == nullptr || !has_room(*buffer, bytes)) {
      ++shared.dropped;
      if (buffer != nullptr) shared.full.push_back(buffer);
      return nullptr;
    }
    // With one buffer for all, another thread may have brought one meanwhile: the older goes back.
    auto [existing, fresh] = shared.current.try_emplace(key, buffer);
    if (!fresh) {
      shared.full.push_back(existing->second);
      existing->second = buffer;
    }
    place = existing;
  }
  // CUPTI writes what it knows by now on the launching thread, which is the first to use that memory.
  std::memcpy(place->second->data + place->second->used, &activity->kind, sizeof activity->kind);
  place->second->used += bytes;
  place->second->records.push_back(activity);
  return activity;
}

void overwrite_end(const ActivityRef& activity, OpRef op) {
  const std::lock_guard lock(state().mutex);
  activity->end_of = std::move(op);
}

void commit_bytes(const ActivityRef& activity, const void* bytes, std::size_t size, std::size_t time_offset,
                  OpRef op) {
  if (activity == nullptr) return;
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (activity->gone) {
    ++shared.dropped;
    return;
  }
  std::memcpy(activity->bytes.data(), bytes, std::min(size, activity->size));
  activity->time_offset = time_offset;
  activity->op = std::move(op);
  activity->committed = true;
}

namespace {

// Seen on hardware: as another thread is inside its first cuInit, the context that it creates next is
// spoiled; inside nvmlInit, NVML leaves a lock behind that the next cuInit waits for, for ever.
void attach_beside_initialisation(State& state) {
  if (state.initialisations - this_thread.initialisations > 0) ++state.misuse;
}

}  // namespace

CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* user,
                      CUpti_SubscriberParams* params) {
  if (handle == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (params != nullptr && params->structSize < CUpti_SubscriberParams_STRUCT_SIZE)
    return CUPTI_ERROR_INVALID_PARAMETER;
  attach_beside_initialisation(state());
  if (std::uint32_t delay = faults().attach_ms.load())
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  auto* subscriber = new Subscriber{
      callback, user,  // leaked: a callback may be under way when it unsubscribes
      params == nullptr || params->subscriberName == nullptr ? nullptr : intern(params->subscriberName)};
  Subscriber* holder = nullptr;
  if (faults().subscriber_taken.load() || !state().subscriber.compare_exchange_strong(holder, subscriber)) {
    delete subscriber;
    const char* name = holder != nullptr ? holder->name : faults().holder.load();
    // The vendor's own words (libcupti.so.13.0).
    if (params != nullptr && params->oldSubscriberName != nullptr && params->oldSubscriberSize > 0)
      std::snprintf(params->oldSubscriberName, params->oldSubscriberSize, "CUPTI for %s",
                    name == nullptr ? "<not provided>" : name);
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(subscriber);
  counters::subscribed();
  state().used = true;
  return CUPTI_SUCCESS;
}

CUptiResult unsubscribe(CUpti_SubscriberHandle handle) {
  if (!valid_handle(handle)) return CUPTI_ERROR_INVALID_PARAMETER;
  counters::unsubscribing();
  clear_callbacks();
  state().subscriber = nullptr;
  if (std::uint32_t delay = faults().detach_ms.load())
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  return CUPTI_SUCCESS;
}

CUptiResult enable_callback(bool enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                            CUpti_CallbackId cbid) {
  if (!valid_handle(handle) || domain <= CUPTI_CB_DOMAIN_INVALID || domain >= CUPTI_CB_DOMAIN_SIZE ||
      cbid == 0 || cbid >= kMaxCbid)
    return CUPTI_ERROR_INVALID_PARAMETER;
  state().callbacks[domain][cbid] = enable;
  return CUPTI_SUCCESS;
}

CUptiResult enable_domain(bool enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain) {
  if (!valid_handle(handle) || domain <= CUPTI_CB_DOMAIN_INVALID || domain >= CUPTI_CB_DOMAIN_SIZE)
    return CUPTI_ERROR_INVALID_PARAMETER;
  for (auto& enabled : state().callbacks[domain]) enabled = enable;
  return CUPTI_SUCCESS;
}

CUptiResult callback_state(std::uint32_t* enabled, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                           CUpti_CallbackId cbid) {
  if (enabled == nullptr || !valid_handle(handle) || domain <= CUPTI_CB_DOMAIN_INVALID ||
      domain >= CUPTI_CB_DOMAIN_SIZE || cbid >= kMaxCbid)
    return CUPTI_ERROR_INVALID_PARAMETER;
  *enabled = callback_enabled(domain, cbid) ? 1 : 0;
  return CUPTI_SUCCESS;
}

CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                             CUpti_BuffersCallbackCompleteFunc completed) {
  if (requested == nullptr || completed == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.requested = requested;
  shared.completed = completed;
  return CUPTI_SUCCESS;
}

CUptiResult register_timestamp(CUpti_TimestampCallbackFunc callback) {
  if (callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  std::int64_t offset = ahead(callback);
  if (offset > -50'000 && offset < 50'000) offset = 0;  // the client's clock is ours
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.timestamp = callback;
  shared.timestamp_offset = offset;
  return CUPTI_SUCCESS;
}

namespace {

// Seen on hardware: where the two overlap, the program ends by a segmentation fault in CUPTI as the context
// has been created.
class Switch {
 public:
  Switch(State& state, bool counts, std::uint32_t ms) : switches_(counts ? &state.switches : nullptr) {
    if (switches_ == nullptr) return;
    ++*switches_;
    ++this_thread.switches;
    if (state.creations != 0) ++state.misuse;
    attach_beside_initialisation(state);
    if (ms != 0) std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  }
  ~Switch() {
    if (switches_ == nullptr) return;
    --this_thread.switches;
    --*switches_;
  }
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

 private:
  std::atomic<int>* switches_;
};

}  // namespace

CUptiResult enable_activity(CUpti_ActivityKind kind, const RecordSizes& sizes) {
  if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= CUPTI_ACTIVITY_KIND_COUNT)
    return CUPTI_ERROR_INVALID_KIND;
  State& shared = state();
  bool attaching = is_kernel_kind(kind) && !shared.kinds[kind].load();
  const Switch enabling(shared, attaching, faults().enable_ms);
  if (attaching) touch_broken_graphs();
  if (attaching && !faults().no_attach_wait.load()) {
    // Seen on hardware: kernel tracing is switched on only when the kernels that run have ended.
    for (const OpRef& op : timeline::running(now_ns())) timeline::wait(op);
  }
  std::lock_guard lock(shared.mutex);
  if (is_kernel_kind(kind)) shared.disabled_kernels = false;
  shared.sizes = sizes;
  shared.used = true;
  shared.kinds[kind] = true;
  start_worker(shared);
  return CUPTI_SUCCESS;
}

CUptiResult disable_activity(CUpti_ActivityKind kind) {
  if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= CUPTI_ACTIVITY_KIND_COUNT)
    return CUPTI_ERROR_INVALID_KIND;
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  if (is_kernel_kind(kind) && shared.kinds[kind].load()) shared.disabled_kernels = true;
  shared.kinds[kind] = false;
  return CUPTI_SUCCESS;
}

CUptiResult flush_all(std::uint32_t flag) {
  if (this_thread.delivering) return CUPTI_ERROR_INVALID_OPERATION;
  State& shared = state();
  struct Flush {
    explicit Flush(State& state) : shared(state) { ++shared.flushes; }
    ~Flush() { --shared.flushes; }
    State& shared;
  } in_progress(shared);
  bool forced = (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) != 0;
  std::vector<BufferRef> ready;
  std::vector<OpRef> unfinished;
  {
    std::lock_guard lock(shared.mutex);
    if (shared.completed == nullptr) return CUPTI_ERROR_INVALID_OPERATION;
    ready = take_buffers(shared, forced, false);
    if (shared.disabled_kernels && !forced) {
      for (const auto& [thread, buffer] : shared.current)
        for (const ActivityRef& activity : buffer->records)
          if (activity->op != nullptr) unfinished.push_back(activity->op);
    }
  }
  for (const BufferRef& buffer : ready) deliver(buffer);
  {
    // What the worker has taken is part of what a flush hands over.
    std::unique_lock lock(shared.mutex);
    shared.worker_delivered.wait(lock, [&] { return !shared.worker_delivers; });
  }
  // Seen on hardware: once kernel tracing is disabled, the unforced flush blocks until the work in flight is
  // over, and yet hands nothing of it back; the next flush does.
  Nanoseconds deadline = now_ns() + 1'000'000'000;
  for (const OpRef& op : unfinished)
    if (!timeline::wait_until(op, deadline)) break;
  return CUPTI_SUCCESS;
}

CUptiResult flush_period(std::uint32_t milliseconds) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.period_ms = milliseconds;
  shared.wake_worker.notify_one();
  return CUPTI_SUCCESS;
}

CUptiResult dropped_records(std::size_t* dropped) {
  if (dropped == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  *dropped = shared.dropped;
  shared.dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult attribute(CUpti_ActivityAttribute name, std::size_t* size, void* value, bool set) {
  if (size == nullptr || value == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  std::size_t number = 0;
  if (set) {
    std::memcpy(&number, value, std::min(*size, sizeof number));
    shared.attributes[name] = number;
    return CUPTI_SUCCESS;
  }
  number = attribute_or(shared, name, name == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER ? 1 : 0);
  std::size_t width = name == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER ||
                              name == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER
                          ? sizeof(std::uint8_t)
                          : sizeof(std::size_t);
  if (*size < width) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
  std::memcpy(value, &number, width);
  *size = width;
  return CUPTI_SUCCESS;
}

CUptiResult finalize(bool by_client) {
  State& shared = state();
  // Seen on hardware: it takes from under other threads what they use.
  const int own = this_thread.in_callback > 0 ? 1 : 0;
  if (by_client && (shared.flushes != 0 || shared.callbacks_in - own > 0)) ++shared.misuse;
  // A thread that creates a context is inside CUPTI as well: not tried on hardware.
  // Over before it is counted, which tests wait for.
  { const Switch finalizing(shared, by_client, faults().finalize_ms); }
  counters::finalized(by_client);
  break_traced_graphs();
  // Seen on hardware (studies/cupti_cycles.py): some 0.6 MB stay, whatever had been enabled.
  if (shared.used.exchange(false) && !faults().finalize_keeps_nothing.load()) lose_bytes(600'000);
  clear_callbacks();
  shared.subscriber = nullptr;
  for (auto& kind : shared.kinds) kind = false;
  std::thread worker;
  {
    std::lock_guard lock(shared.mutex);
    for (auto& [thread, buffer] : shared.current)
      for (const ActivityRef& activity : buffer->records) activity->gone = true;
    for (const BufferRef& buffer : shared.full)
      for (const ActivityRef& activity : buffer->records) activity->gone = true;
    shared.current.clear();
    shared.full.clear();
    shared.requested = nullptr;
    shared.completed = nullptr;
    shared.timestamp = nullptr;
    shared.timestamp_offset = 0;
    shared.attributes.clear();
    shared.period_ms = 0;
    shared.disabled_kernels = false;
    shared.next_correlation = 1;  // ids are unique within one attachment only
    if (shared.stop_worker) *shared.stop_worker = true;
    shared.wake_worker.notify_all();
    worker = std::move(shared.worker);
  }
  if (worker.joinable()) {
    if (worker.get_id() == std::this_thread::get_id())
      worker.detach();
    else
      worker.join();
  }
  return CUPTI_SUCCESS;
}

Nanoseconds timestamp() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return now_ns() + static_cast<std::uint64_t>(clock_offset(shared));
}

Nanoseconds sample_clock_ahead() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  const std::int64_t offset = faults().pm_wall_clock.load()
                                  ? static_cast<std::int64_t>(clock_ns(CLOCK_REALTIME) - now_ns())
                                  : clock_offset(shared);
  return static_cast<Nanoseconds>(offset);
}

void note_client_call() {
  if (this_thread.in_callback > 0 || this_thread.delivering) state().calls_in_callbacks.fetch_add(1);
}

std::uint64_t misuse() {
  return state().misuse.load();
}

void note_misuse() {
  ++state().misuse;
}

Initialisation::Initialisation() {
  ++state().initialisations;
  ++this_thread.initialisations;
  if (state().switches - this_thread.switches > 0) ++state().misuse;
}
Initialisation::~Initialisation() {
  --this_thread.initialisations;
  --state().initialisations;
}

ContextCreation::ContextCreation() {
  ++state().creations;
  if (state().switches != 0) ++state().misuse;
}
ContextCreation::~ContextCreation() {
  --state().creations;
}

std::uint64_t calls_in_callbacks() {
  return state().calls_in_callbacks.load();
}

std::uint64_t records_delivered() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  return shared.delivered;
}

std::uint64_t records_pending() {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  std::uint64_t pending = 0;
  for (const auto& [thread, buffer] : shared.current) pending += buffer->records.size();
  for (const BufferRef& buffer : shared.full) pending += buffer->records.size();
  return pending;
}

}  // namespace inject::sim::trace

extern "C" {
uint64_t cudasim_records_delivered(void) {
  return inject::sim::trace::records_delivered();
}
uint64_t cudasim_cupti_misuse(void) {
  return inject::sim::trace::misuse();
}

uint64_t cudasim_calls_in_callbacks(void) {
  return inject::sim::trace::calls_in_callbacks();
}
uint64_t cudasim_records_pending(void) {
  return inject::sim::trace::records_pending();
}
}
