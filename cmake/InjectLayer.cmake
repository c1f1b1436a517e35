# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_layer(NAME SOURCES FILE... [DEPENDS LAYER...] [ALONE FILE...]): a folder of libinject/ as a static library,
# inject_NAME. ALONE: sources that can't be compiled together with others (INJECT_JOIN): both have a name of their own, or a
# test replaces one of them.
#
# Its sources are included as "libinject/NAME/…". Each layer has an include directory of its own in the build folder, with
# nothing in it but a link to the layer's sources, and hands it on to the layers that depend on it: what a layer must not
# know, its sources can't include.
function(inject_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;ALONE" ${ARGN})
  set(headers ${PROJECT_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${headers}/libinject)
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${headers}/libinject/${name} SYMBOLIC)
  set(target inject_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  target_include_directories(${target} PUBLIC ${headers})
  target_link_libraries(${target} PUBLIC inject_warnings inject_cuda_headers)
  foreach(lower IN LISTS arg_DEPENDS)
    target_link_libraries(${target} PUBLIC inject_${lower})
  endforeach()
  # All of its files at once: half the time, most of which goes into their headers. Two files that use the same name in their unnamed
  # namespaces do not compile then.
  if(INJECT_JOIN)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    set_source_files_properties(${arg_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  # A sixth of what these files take to compile. Not with ThreadSanitizer, where GCC 12 then warns of its own library.
  if(INJECT_JOIN AND NOT INJECT_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    if(name STREQUAL base)
      target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <cstdint> <deque> <map> <memory> <mutex>
        <optional> <span> <string> <string_view> <unordered_map> <utility> <vector>)
    else()
      target_precompile_headers(${target} REUSE_FROM inject_base)
    endif()
  endif()
endfunction()
