// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/python/interpreter.h"

#include <dlfcn.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cstring>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"
#include "libinject/capture/hooks/elf_object.h"

namespace inject {

namespace {

/// The object that contains an interpreter, and the program itself, which is the first of all.
struct PythonObject {
  explicit PythonObject(unsigned long long before) : seen(before) {}
  unsigned long long seen;  // objects that had been loaded by the last search
  unsigned long long adds = 0;
  bool found = false;
  bool is_program = false;
  bool any_looked_at = false;
  SymbolName name{"PyGILState_GetThisThreadState"};
  std::array<char, 4096> path{};
  ElfObject object;
  ElfObject program;
};

int look_for_python(dl_phdr_info* info, std::size_t, void* data) noexcept {
  auto& search = *static_cast<PythonObject*>(data);
  search.adds = info->dlpi_adds;
  if (search.adds == search.seen) return 1;
  const ElfObject object(*info);
  const bool is_first = !search.any_looked_at;
  search.any_looked_at = true;
  if (is_first) search.program = object;
  if (object.find_function(search.name) == nullptr) return 0;
  search.object = object;
  search.is_program = is_first;
  if (!is_first && info->dlpi_name != nullptr)
    std::strncpy(search.path.data(), info->dlpi_name, search.path.size() - 1);
  search.found = true;
  return 1;
}

/// The object's symbols, looked up by the loader. It stays loaded while this exists, and permanently after
/// keep().
class PythonSymbols {
 public:
  explicit PythonSymbols(const PythonObject& found)
      : object_(found.object),
        program_(found.program),
        // Waits until no thread is loading it any more: it is in the loader's list before it is relocated.
        library_(dlopen(found.is_program ? nullptr : found.path.data(), RTLD_LAZY | RTLD_NOLOAD)) {}
  ~PythonSymbols() {
    if (library_ != nullptr) dlclose(library_);
  }
  PythonSymbols(const PythonSymbols&) = delete;
  PythonSymbols& operator=(const PythonSymbols&) = delete;

  bool is_loaded() const noexcept { return library_ != nullptr; }
  void keep() noexcept { library_ = nullptr; }

  /// A symbol that the object itself defines; null if there is none.
  void* find(const char* name) const noexcept {
    void* own = dlsym(library_, name);
    return own != nullptr && object_.contains(own) ? own : nullptr;
  }

  /// Data: a program that was linked at a fixed address may have a copy of it, which the library uses as
  /// well.
  const void* find_data(const char* name) const noexcept {
    const void* used = dlsym(RTLD_DEFAULT, name);
    return used != nullptr && program_.contains(used) ? used : find(name);
  }

 private:
  const ElfObject& object_;
  const ElfObject& program_;
  void* library_;
};

template <typename Function>
void set_function(Function& function, void* address) noexcept {
  if (address != nullptr) function = reinterpret_cast<Function>(address);
}

/// PY_VERSION_HEX: major, minor, micro, level and serial; the level of a final release is 15.
struct PythonVersion {
  unsigned long hex = 0;
  unsigned major() const noexcept { return static_cast<unsigned>(hex >> 24u) & 0xFFu; }
  unsigned minor() const noexcept { return static_cast<unsigned>(hex >> 16u) & 0xFFu; }
  bool is_final() const noexcept { return ((hex >> 4u) & 0xFu) == 0xF; }
};

/// 3.10 can't report its version without a call that writes to memory: it is the one that has PyIter_Send()
/// and lacks what came with 3.11, such as Py_Version. Zero for older ones.
PythonVersion version_of_python(const PythonSymbols& symbols) noexcept {
  if (const void* version = symbols.find_data("Py_Version"); version != nullptr)
    return {read_at<unsigned long>(version, 0)};
  if (symbols.find("PyIter_Send") != nullptr && symbols.find("PyFrame_GetLasti") == nullptr)
    return {0x030A00F0};
  return {};
}

/// Functions of the stable ABI.
void find_calls(const PythonSymbols& symbols, PythonCalls& calls) noexcept {
  set_function(calls.add_pending_call, symbols.find("Py_AddPendingCall"));
  set_function(calls.compile, symbols.find("Py_CompileString"));
  set_function(calls.evaluate, symbols.find("PyEval_EvalCode"));
  set_function(calls.builtins, symbols.find("PyEval_GetBuiltins"));
  set_function(calls.new_dict, symbols.find("PyDict_New"));
  set_function(calls.set_item, symbols.find("PyDict_SetItemString"));
  set_function(calls.get_item, symbols.find("PyDict_GetItemString"));
  set_function(calls.new_text, symbols.find("PyUnicode_FromString"));
  set_function(calls.call, symbols.find("PyObject_CallFunction"));
  set_function(calls.utf8, symbols.find("PyUnicode_AsUTF8AndSize"));
  set_function(calls.new_function, symbols.find("PyCFunction_NewEx"));
  set_function(calls.new_list, symbols.find("PyList_New"));
  set_function(calls.append, symbols.find("PyList_Append"));
  set_function(calls.list_size, symbols.find("PyList_Size"));
  set_function(calls.list_item, symbols.find("PyList_GetItem"));
  set_function(calls.new_number, symbols.find("PyLong_FromSsize_t"));
  set_function(calls.type_of, symbols.find("PyObject_Type"));
  set_function(calls.is_subtype, symbols.find("PyType_IsSubtype"));
  set_function(calls.error_matches, symbols.find("PyErr_ExceptionMatches"));
  set_function(calls.clear_error, symbols.find("PyErr_Clear"));
  set_function(calls.release, symbols.find("Py_DecRef"));
  set_function(calls.take_gil, symbols.find("PyGILState_Ensure"));
  set_function(calls.return_gil, symbols.find("PyGILState_Release"));
  set_function(calls.current_frame, symbols.find("PyEval_GetFrame"));
  set_function(calls.attribute, symbols.find("PyObject_GetAttrString"));
  set_function(calls.mapping_item, symbols.find("PyMapping_GetItemString"));
  set_function(calls.type_flags, symbols.find("PyType_GetFlags"));
  set_function(calls.dict_values, symbols.find("PyDict_Values"));
  set_function(calls.sequence_size, symbols.find("PySequence_Size"));
  set_function(calls.sequence_item, symbols.find("PySequence_GetItem"));
  set_function(calls.as_integer, symbols.find("PyLong_AsLongLong"));
  set_function(calls.error_is_set, symbols.find("PyErr_Occurred"));
  set_function(calls.interrupt, symbols.find("PyErr_SetInterrupt"));
  const auto type = [&](const char* name) { return static_cast<void* const*>(symbols.find_data(name)); };
  calls.memory_error = type("PyExc_MemoryError");
  calls.import_error = type("PyExc_ImportError");
  calls.recursion_error = type("PyExc_RecursionError");
  calls.keyboard_interrupt = type("PyExc_KeyboardInterrupt");
}

/// Why it is refused; null if it is not.
const char* examine(const PythonSymbols& symbols, PythonVersion version, PythonInterpreter& python) noexcept {
  if (!version.is_final()) return "it is not a final release";
  // With Py_REF_DEBUG, which Py_DEBUG implies; Py_TRACE_REFS moves every object's type, which the test
  // detects.
  if (symbols.find("_Py_NegativeRefcount") != nullptr) return "it is a debug build";
  python.layout = version.major() == 3 ? python_layout(version.minor()) : nullptr;
  if (python.layout == nullptr) return "only 3.10 to 3.14 are supported";
  set_function(python.this_thread, symbols.find("PyGILState_GetThisThreadState"));
  set_function(python.is_finalizing, symbols.find("_Py_IsFinalizing"));
  set_function(python.is_finalizing, symbols.find("Py_IsFinalizing"));  // its name since 3.13
  python.code_type = symbols.find_data("PyCode_Type");
  python.text_type = symbols.find_data("PyUnicode_Type");
  python.bytes_type = symbols.find_data("PyBytes_Type");
  python.tuple_type = symbols.find_data("PyTuple_Type");
  python.cell_type = symbols.find_data("PyCell_Type");
  python.frame_type = symbols.find_data("PyFrame_Type");
  find_calls(symbols, python.calls);
  const void* runtime = symbols.find_data("_PyRuntime");
  if (python.this_thread == nullptr || python.is_finalizing == nullptr || python.code_type == nullptr ||
      python.text_type == nullptr || python.bytes_type == nullptr || python.tuple_type == nullptr ||
      python.cell_type == nullptr || python.frame_type == nullptr || runtime == nullptr)
    return "it lacks symbols that are needed to find them";
  return contradiction(*python.layout, version.hex, runtime);
}

}  // namespace

PythonSearch find_interpreter(PythonInterpreter& interpreter, std::string& text) {
  static std::atomic<unsigned long long> adds_seen{0};
  PythonObject found(adds_seen.load(std::memory_order_relaxed));
  const DynamicLoaderGuard guard;
  dl_iterate_phdr(&look_for_python, &found);
  adds_seen.store(found.adds, std::memory_order_relaxed);
  if (!found.found) return PythonSearch::kNotThere;
  PythonSymbols symbols(found);
  if (!symbols.is_loaded()) return PythonSearch::kNotThere;
  const PythonVersion version = version_of_python(symbols);
  const char* refusal = examine(symbols, version, interpreter);
  text = str_format("{} is CPython {}.{}", found.is_program ? "the program" : found.path.data(),
                    version.major(), version.minor());
  if (version.hex == 0) text = "the program's CPython is older than 3.10";
  if (refusal != nullptr) {
    text += str_format(", whose frames are not read: {}", refusal);
    return PythonSearch::kRefused;
  }
  // Its functions may be called at any time from now on.
  symbols.keep();
  return PythonSearch::kFound;
}

}  // namespace inject
