# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# INJECT_SANITIZE=address (with undefined behaviour), thread or fuzzer (with both of address). Such builds
# have the unit tests alone, but with INJECT_SANITIZE_LIBRARY (scripts/sanitize.sh).
if(INJECT_SANITIZE STREQUAL "address")
  # An object's size is AddressSanitizer's to check; its type would be a sixth of all compiling, for two class hierarchies.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize=object-size,vptr -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(INJECT_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(INJECT_SANITIZE STREQUAL "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "INJECT_SANITIZE is \"fuzzer\", which needs Clang: -DCMAKE_CXX_COMPILER=clang++")
  endif()
  # Without a call for each comparison a second holds three to seven times as many executions; the words that are compared
  # with are in the corpora.
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-coverage=trace-cmp
                      -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(INJECT_SANITIZE)
  message(FATAL_ERROR "INJECT_SANITIZE is \"${INJECT_SANITIZE}\": it can be address, thread, fuzzer or empty")
endif()
if(INJECT_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With its instrumentation in between, GCC 12 takes libstdc++'s own members for uninitialised.
  add_compile_options(-Wno-maybe-uninitialized)
endif()
if(INJECT_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # GCC says by these which one is there.
  if(INJECT_SANITIZE STREQUAL "thread")
    add_compile_definitions(__SANITIZE_THREAD__=1)
  else()
    add_compile_definitions(__SANITIZE_ADDRESS__=1)
  endif()
  # GNU's linker takes three times as long, for a dozen programs that have all layers each.
  find_program(INJECT_LLD ld.lld)
  if(INJECT_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()
if(INJECT_SANITIZE_LIBRARY)
  # Programs hand over numbers that are no value of an enumeration, which has to be passed on.
  add_compile_options(-fno-sanitize=enum)
  # The run-time libraries are this machine's.
  set(INJECT_GLIBC_FLOOR "" CACHE STRING "" FORCE)
endif()
