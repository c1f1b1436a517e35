// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/program_python.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <new>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"
#include "libinject/base/log.h"
#include "libinject/capture/python/interpreter.h"
#include "libinject/capture/python/memory_reading.h"
#include "libinject/record/library_buffers.h"
#include "libinject/record/thread_registry.h"
#include "memory_reading_source.h"

namespace inject {

namespace {

constexpr const char* kFile = "<libinject>/memory_reading.py";
constexpr int kFileInput = 257;  // Py_file_input
constexpr std::size_t kMaxReadingText = std::size_t{32} << 10u;
constexpr std::size_t kMaxPath = 4096;

/// Tasks of the pending call.
enum Task : unsigned { kReadMemory = 1, kWatchErrors = 2 };

constinit std::atomic<unsigned> tasks{0};
constinit std::atomic<pid_t> owner{0};  // the process that requested it; 0: nothing is run
enum class Reading : unsigned char { kNone, kExpected, kAsked };
constinit std::atomic<Reading> reading{Reading::kNone};
constinit std::atomic<bool> reading_at_step{false};

/// The buffers passed to libraries, in the form that read() takes. Used only by the main thread.
constexpr std::size_t kBufferText = 2 * 20 + 4;  // two numbers, a digit and what is between
constinit std::array<char, LibraryBuffers::kRoom * kBufferText + 1> handed_text{};

// Written on the main thread, before the corresponding flags.
constinit std::array<char, kMaxReadingText> memory_text{};
constinit std::atomic<bool> memory_told{false};
constinit std::atomic<bool> errors_watched{false};
/// Where oom.json goes. Written once, before kWatchErrors.
constinit std::array<char, kMaxPath> error_path{};
enum class PathState : unsigned char { kNone, kBeingWritten, kKnown };
constinit std::atomic<PathState> error_path_state{PathState::kNone};

/// The functions of memory_reading.py. Used only by the main thread, with the GIL; never released.
void* functions = nullptr;
bool has_failed = false;

constexpr int kOneArgument = 8;  // METH_O

/// The types met in a walk through objects, which are few.
class KnownTypes {
 public:
  /// One bit for each of `kinds` from which it is derived.
  unsigned kinds_of(const PythonCalls& python, void* type, void* kinds) noexcept {
    Known& known = known_[(reinterpret_cast<std::uintptr_t>(type) >> 4u) % known_.size()];
    if (known.type == type) return known.kinds;
    known = {type, 0};
    for (std::ptrdiff_t kind = 0; kind < python.list_size(kinds); ++kind) {
      if (python.is_subtype(type, python.list_item(kinds, kind)) != 0)
        known.kinds |= 1u << static_cast<unsigned>(kind);
    }
    return known.kinds;
  }

 private:
  struct Known {
    void* type = nullptr;
    unsigned kinds = 0;
  };
  std::array<Known, 512> known_{};
};

struct ObjectCounts {
  std::ptrdiff_t objects = 0;  ///< that were looked at
  std::ptrdiff_t kinds = 0;    ///< those requested types that are among the objects themselves
  std::ptrdiff_t in_time = 1;  ///< 0: not all objects were looked at
};

/// Appends the objects that the garbage collector knows of each type to its list. While a list of all objects
/// exists, no Python instruction may run: another thread would find an additional reference to an object that
/// should have only one, and its operation (such as a generator's on a tuple) would fail with an error; and
/// objects that it releases would be destroyed here.
bool find_objects(const PythonCalls& python, void* kinds, Nanoseconds until, void* lists,
                  ObjectCounts& counts) noexcept {
  constexpr std::ptrdiff_t kAtOnce = 1 << 16;
  void* get_objects = python.get_item(functions, "get_objects");
  void* objects = get_objects == nullptr ? nullptr : python.call(get_objects, nullptr);
  if (objects == nullptr) return false;
  KnownTypes types;
  bool done = true;
  for (const std::ptrdiff_t size = python.list_size(objects); done && counts.objects < size;
       ++counts.objects) {
    if (counts.objects % kAtOnce == 0 && now() > until) {
      counts.in_time = 0;
      break;
    }
    void* object = python.list_item(objects, counts.objects);
    void* type = python.type_of(object);
    const unsigned found = types.kinds_of(python, type, kinds);
    python.release(type);
    for (std::ptrdiff_t kind = 0; kind < python.list_size(kinds); ++kind)
      counts.kinds += python.list_item(kinds, kind) == object ? 1 : 0;
    for (std::ptrdiff_t kind = 0; done && found >> static_cast<unsigned>(kind) != 0; ++kind) {
      if ((found >> static_cast<unsigned>(kind) & 1u) != 0)
        done = python.append(python.list_item(lists, kind), object) == 0;
    }
  }
  python.release(objects);
  return done;
}

/// find_objects([kinds, until]) of memory_reading.py, with a list of types, and the time at which it gives
/// up: returns a list of lists, the last of which has the ObjectCounts.
void* find_for_python(void* /*self*/, void* arguments) noexcept {
  const PythonInterpreter* interpreter = found_python();
  if (interpreter == nullptr) return nullptr;
  const PythonCalls& python = interpreter->calls;
  void* kinds = python.list_item(arguments, 0);
  const auto until = static_cast<Nanoseconds>(python.as_integer(python.list_item(arguments, 1)));
  void* lists = python.new_list(0);
  bool done = lists != nullptr;
  const auto take = [&](void* to, void* item) {
    done = done && item != nullptr && python.append(to, item) == 0;
    if (item != nullptr) python.release(item);
  };
  for (std::ptrdiff_t kind = 0; done && kind <= python.list_size(kinds); ++kind)
    take(lists, python.new_list(0));
  ObjectCounts counts;
  done = done && find_objects(python, kinds, until, lists, counts);
  for (const std::ptrdiff_t count : {counts.objects, counts.kinds, counts.in_time}) {
    if (done) take(python.list_item(lists, python.list_size(kinds)), python.new_number(count));
  }
  if (!done && lists != nullptr) python.release(lists);
  return done ? lists : nullptr;
}

/// unrecorded(function) of memory_reading.py: its calls are not attributed to the program.
void* call_unrecorded(void* /*self*/, void* function) noexcept {
  const PythonInterpreter* interpreter = found_python();
  if (interpreter == nullptr) return nullptr;
  const CallerState caller;
  const UnrecordedScope unrecorded;
  return interpreter->calls.call(function, nullptr);
}

constexpr PythonFunction kFindObjects{"find_objects", &find_for_python, kOneArgument, nullptr};
constexpr PythonFunction kUnrecordedCall{"unrecorded", &call_unrecorded, kOneArgument, nullptr};

bool add_function(const PythonCalls& python, void* globals, const PythonFunction& function) noexcept {
  void* made = python.new_function(&function, nullptr, nullptr);
  const bool done = made != nullptr && python.set_item(globals, function.name, made) == 0;
  if (made != nullptr) python.release(made);
  return done;
}

/// Null if they can't be loaded; `is_programs`: because of an error of the program, from a signal handler
/// that ran in between.
void* load_functions(const PythonCalls& python, bool& is_programs) noexcept {
  is_programs = false;
  if (functions != nullptr || has_failed) return functions;
  has_failed = true;
  void* globals = python.new_dict();
  void* file = python.new_text(kFile);
  void* code = python.compile(kMemoryReadingSource, kFile, kFileInput);
  void* done = nullptr;
  if (globals != nullptr && file != nullptr && code != nullptr &&
      python.set_item(globals, "__file__", file) == 0 && python.set_item(globals, "__name__", file) == 0 &&
      python.set_item(globals, "__builtins__", python.builtins()) == 0 &&
      add_function(python, globals, kFindObjects) && add_function(python, globals, kUnrecordedCall))
    done = python.evaluate(code, globals, globals);
  if (done != nullptr) {
    functions = globals;
    has_failed = false;
  } else {
    is_programs = code != nullptr && python.error_matches(*python.memory_error) == 0 &&
                  python.error_matches(*python.import_error) == 0 &&
                  python.error_matches(*python.recursion_error) == 0;
    if (!is_programs) python.clear_error();
    if (globals != nullptr) python.release(globals);
  }
  for (void* object : {file, code, done}) {
    if (object != nullptr) python.release(object);
  }
  return functions;
}

/// Stores the text that a function has returned; false if it has raised an exception of the program.
bool keep_text(const PythonCalls& python, void* result, char* to, std::size_t size) noexcept {
  if (result == nullptr) return false;
  std::ptrdiff_t length = 0;
  const char* text = python.utf8(result, &length);
  if (text == nullptr) python.clear_error();
  if (text != nullptr && static_cast<std::size_t>(length) < size)
    std::memcpy(to, text, static_cast<std::size_t>(length) + 1);
  python.release(result);
  return true;
}

const char* text_of(const LibraryBuffers& buffers) noexcept {
  char* to = handed_text.data();
  const auto number = [&](std::uint64_t value, char end) {
    to = std::to_chars(to, handed_text.data() + handed_text.size() - 2, value).ptr;
    *to++ = end;
  };
  buffers.each([&](std::uintptr_t address, std::uint64_t bytes, BufferUse use) {
    number(address, ',');
    number(bytes, ',');
    number(static_cast<std::uint64_t>(use), ';');
  });
  *to = '\0';
  return handed_text.data();
}

bool read_memory(const PythonCalls& python, void* globals) noexcept {
  void* function = python.get_item(globals, "read");
  if (function == nullptr || memory_told.load(std::memory_order_relaxed)) return true;
  library_buffers.close();
  const bool done =
      keep_text(python, python.call(function, "sI", text_of(library_buffers), library_buffers.incomplete()),
                memory_text.data(), memory_text.size());
  memory_told.store(done, std::memory_order_release);
  return done;
}

bool watch_errors(const PythonCalls& python, void* globals) noexcept {
  void* function = python.get_item(globals, "watch_for_errors");
  if (function == nullptr || errors_watched.load(std::memory_order_relaxed)) return true;
  std::array<char, 8> told{};
  const bool done =
      keep_text(python, python.call(function, "yi", error_path.data(), static_cast<int>(getpid())),
                told.data(), told.size());
  if (told[0] != '\0') errors_watched.store(true, std::memory_order_release);
  return done;
}

/// The pending call: -1 with the program's exception, if one of its signal handlers has raised one in the
/// meantime.
int run_tasks(void* /*argument*/) noexcept {
  const unsigned asked = tasks.exchange(0, std::memory_order_acq_rel);
  const PythonInterpreter* interpreter = found_python();
  if (asked == 0 || interpreter == nullptr || owner.load(std::memory_order_acquire) != getpid() ||
      interpreter->is_finalizing() != 0)
    return 0;
  const CallerState caller;
  const UnrecordedScope unrecorded;
  const PythonCalls& python = interpreter->calls;
  bool is_programs = false;
  void* globals = load_functions(python, is_programs);
  if (globals == nullptr) return is_programs ? -1 : 0;
  if ((asked & kWatchErrors) != 0 && !watch_errors(python, globals)) return -1;
  if ((asked & kReadMemory) != 0 && !read_memory(python, globals)) return -1;
  return 0;
}

void ask(Task task) noexcept {
  const PythonInterpreter* interpreter = found_python();
  if (interpreter == nullptr || !interpreter->calls.complete() || interpreter->is_finalizing() != 0) return;
  // One call runs all waiting tasks. Its queue may be full: then the next request tries again.
  if (tasks.fetch_or(task, std::memory_order_acq_rel) != 0) return;
  if (interpreter->calls.add_pending_call(&run_tasks, nullptr) != 0)
    tasks.store(0, std::memory_order_release);
}

}  // namespace

void expect_memory_reading(bool sees_collectives) noexcept {
  Reading none = Reading::kNone;
  if (found_python() == nullptr) return;
  owner.store(getpid(), std::memory_order_release);
  if (reading.load(std::memory_order_acquire) == Reading::kNone) library_buffers.open(sees_collectives);
  reading.compare_exchange_strong(none, Reading::kExpected, std::memory_order_acq_rel);
}

bool memory_is_expected() noexcept {
  return reading.load(std::memory_order_relaxed) == Reading::kExpected;
}

void reading_is_due(bool at_step) noexcept {
  Reading expected = Reading::kExpected;
  if (!reading.compare_exchange_strong(expected, Reading::kAsked, std::memory_order_acq_rel)) return;
  const CallerState caller;
  reading_at_step.store(at_step, std::memory_order_release);
  ask(kReadMemory);
}

bool watch_memory_errors(std::string_view folder) noexcept {
  constexpr std::string_view kName = "/oom.json";
  if (errors_watched.load(std::memory_order_acquire)) return true;
  const PythonInterpreter* interpreter = found_python();
  if (interpreter == nullptr) return false;
  if (!interpreter->calls.complete() || folder.size() + kName.size() >= error_path.size()) return true;
  PathState none = PathState::kNone;
  if (error_path_state.compare_exchange_strong(none, PathState::kBeingWritten, std::memory_order_acq_rel)) {
    folder.copy(error_path.data(), folder.size());
    kName.copy(error_path.data() + folder.size(), kName.size());
    error_path_state.store(PathState::kKnown, std::memory_order_release);
  }
  if (error_path_state.load(std::memory_order_acquire) != PathState::kKnown) return false;
  owner.store(getpid(), std::memory_order_release);
  ask(kWatchErrors);
  return false;
}

std::optional<MemoryPurposes> memory_reading() {
  if (!memory_told.load(std::memory_order_acquire)) return std::nullopt;
  std::optional<MemoryPurposes> memory = memory_purposes_of(memory_text.data());
  if (memory) memory->at_step = reading_at_step.load(std::memory_order_acquire);
  return memory;
}

}  // namespace inject
