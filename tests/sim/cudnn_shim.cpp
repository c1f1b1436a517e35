// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcudnn.so.9: as the vendor's, it does nothing itself. Every function is there again, under its own name,
// in a library that the first call loads (with the vendor there are several).
#include <cudnn.h>
#include <dlfcn.h>

#include <string>

#include "tests/sim/arity.h"
#include "tests/sim/core/base.h"

using namespace inject::sim;

namespace {

void* implementation(const char* name) {
  static void* library = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&implementation), &info);
    std::string path(info.dli_fname);
    path.resize(path.rfind('/') + 1);
    return dlopen((path + "libcudnn_graph.so.9").c_str(), RTLD_NOW | RTLD_LOCAL);
  }();
  return library != nullptr ? dlsym(library, name) : nullptr;
}

template <class Function>
Function* implementation_of(const char* name) {
  return reinterpret_cast<Function*>(implementation(name));
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): a function's name can't stand in them
#define FORWARD(name, arity)                                                                          \
  extern "C" Result<decltype(::name)> name(SIM_PARAMETERS_##arity(decltype(::name))) {                \
    static_assert(Signature<decltype(::name)>::kArity == arity, #name);                               \
    static constinit FunctionSlot slot;                                                               \
    Function& function = slot.get("libcudnn.so.9", #name, Domain::kNone);                             \
    static auto* real = implementation_of<decltype(::name)>(#name);                                   \
    int fault = function.enter();                                                                     \
    return fault != 0 ? status_result<Result<decltype(::name)>>(fault) : real(SIM_ARGUMENTS_##arity); \
  }
// NOLINTEND(bugprone-macro-parentheses)

#define SIM_PLAIN(name, arity) FORWARD(name, arity)
#include "tests/sim/cudnn_plain.def"

#define INJECT_HOOK(name, arity, category) FORWARD(name, arity)
#include "libinject/model/cudnn.def"
