# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_spdlog: spdlog and fmt as headers alone, so that neither becomes a needed library of libinject.so.
# inject_json: nlohmann/json, for the tests that read JSON.
# inject_zlib: zlib as an archive, for the same reason as spdlog.
find_package(Threads REQUIRED)

find_path(INJECT_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
add_library(inject_spdlog INTERFACE)
target_include_directories(inject_spdlog SYSTEM INTERFACE ${INJECT_SPDLOG_INCLUDE})
target_link_libraries(inject_spdlog INTERFACE Threads::Threads)
if(EXISTS ${INJECT_SPDLOG_INCLUDE}/spdlog/fmt/bundled/core.h)
  target_compile_definitions(inject_spdlog INTERFACE SPDLOG_HEADER_ONLY)
else()
  # Debian's package has fmt taken out of it.
  find_path(INJECT_FMT_INCLUDE fmt/core.h REQUIRED)
  target_include_directories(inject_spdlog SYSTEM INTERFACE ${INJECT_FMT_INCLUDE})
  # Debian's spdlog/tweakme.h defines SPDLOG_FMT_EXTERNAL itself, and a second definition would have to be the same.
  file(STRINGS ${INJECT_SPDLOG_INCLUDE}/spdlog/tweakme.h external REGEX "^#define SPDLOG_FMT_EXTERNAL")
  target_compile_definitions(inject_spdlog INTERFACE SPDLOG_HEADER_ONLY FMT_HEADER_ONLY
                                                     $<$<NOT:$<BOOL:${external}>>:SPDLOG_FMT_EXTERNAL>)
endif()

find_path(INJECT_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
add_library(inject_json INTERFACE)
target_include_directories(inject_json SYSTEM INTERFACE ${INJECT_JSON_INCLUDE})

# Not by find_package(ZLIB): it takes the shared library where both are there, and asks for CMake 3.24 to be told otherwise.
find_path(INJECT_ZLIB_INCLUDE zlib.h REQUIRED)
find_library(INJECT_ZLIB_ARCHIVE NAMES libz.a DOC "zlib's static library (Debian: zlib1g-dev, Fedora: zlib-static)")
if(NOT INJECT_ZLIB_ARCHIVE)
  message(FATAL_ERROR "libinject: no libz.a found (Debian: zlib1g-dev, Fedora: zlib-static); INJECT_ZLIB_ARCHIVE names one")
endif()
add_library(inject_zlib INTERFACE)
target_include_directories(inject_zlib SYSTEM INTERFACE ${INJECT_ZLIB_INCLUDE})
target_link_libraries(inject_zlib INTERFACE ${INJECT_ZLIB_ARCHIVE})
