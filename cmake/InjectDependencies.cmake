# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_spdlog: spdlog and fmt as headers alone, so that neither becomes a needed library of libinject.so.
# inject_json: nlohmann/json, for the tests that read JSON.
# inject_zlib: zlib as an archive, for the same reason as spdlog.
find_package(Threads REQUIRED)

# inject_need_header(VARIABLE HEADER PACKAGES): one line that names the remedy where it is missing.
function(inject_need_header variable header packages)
  find_path(${variable} ${header})
  if(NOT ${variable})
    message(FATAL_ERROR "no ${header} found: please install ${packages}")
  endif()
endfunction()

inject_need_header(INJECT_SPDLOG_INCLUDE spdlog/spdlog.h "spdlog's headers (Debian: libspdlog-dev, Fedora: spdlog-devel)")
add_library(inject_spdlog INTERFACE)
target_include_directories(inject_spdlog SYSTEM INTERFACE ${INJECT_SPDLOG_INCLUDE})
target_link_libraries(inject_spdlog INTERFACE Threads::Threads)
if(NOT EXISTS ${INJECT_SPDLOG_INCLUDE}/spdlog/fmt/bundled/core.h)
  # Debian's package has fmt taken out of it.
  inject_need_header(INJECT_FMT_INCLUDE fmt/core.h "fmt's headers (Debian: libfmt-dev, Fedora: fmt-devel)")
  target_include_directories(inject_spdlog SYSTEM INTERFACE ${INJECT_FMT_INCLUDE})
  # Debian's spdlog/tweakme.h defines SPDLOG_FMT_EXTERNAL itself, and a second definition would have to be the same.
  file(STRINGS ${INJECT_SPDLOG_INCLUDE}/spdlog/tweakme.h external REGEX "^#define SPDLOG_FMT_EXTERNAL")
  target_compile_definitions(inject_spdlog INTERFACE $<$<NOT:$<BOOL:${external}>>:SPDLOG_FMT_EXTERNAL>)
endif()

if(INJECT_BUILD_TESTS)
  inject_need_header(INJECT_JSON_INCLUDE nlohmann/json.hpp "nlohmann's json (Debian: nlohmann-json3-dev, Fedora: json-devel)")
  add_library(inject_json INTERFACE)
  target_include_directories(inject_json SYSTEM INTERFACE ${INJECT_JSON_INCLUDE})
endif()

# Not by find_package(ZLIB): it takes the shared library where both are there, and asks for CMake 3.24 to be told otherwise.
inject_need_header(INJECT_ZLIB_INCLUDE zlib.h "zlib's headers (Debian: zlib1g-dev, Fedora: zlib-devel)")
find_library(INJECT_ZLIB_ARCHIVE NAMES libz.a DOC "zlib's static library (Debian: zlib1g-dev, Fedora: zlib-static)")
if(NOT INJECT_ZLIB_ARCHIVE)
  message(FATAL_ERROR "no libz.a found: please install zlib's static library (Debian: zlib1g-dev, Fedora: zlib-static)")
endif()
add_library(inject_zlib INTERFACE)
target_include_directories(inject_zlib SYSTEM INTERFACE ${INJECT_ZLIB_INCLUDE})
target_link_libraries(inject_zlib INTERFACE ${INJECT_ZLIB_ARCHIVE})
