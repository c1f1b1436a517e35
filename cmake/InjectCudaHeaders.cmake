# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_cuda_headers: the vendor's headers, nothing to link. Each is looked for in INJECT_CUDA_ROOT, CUDA_HOME,
# CUDA_PATH, /usr/local/cuda, the compiler's own folders and at last in INJECT_DEPS_DIR, where scripts/setup.sh puts
# what a machine lacks. cuDNN (9.5 or later) and NCCL may be missing: their hooks are left out then, and INJECT_HAVE_CUDNN and
# INJECT_HAVE_NCCL are 0.
# INJECT_NVCC: the CUDA compiler, for the C++ example alone; INJECT_NVCC-NOTFOUND leaves the example out.
set(INJECT_CUDA_ROOT "" CACHE PATH "CUDA toolkit to take headers and nvcc from, before any other")
option(INJECT_FETCH_CUDA "Fetch headers that the machine lacks from the vendor's Python packages, as scripts/setup.sh does" OFF)
set(INJECT_DEPS_DIR ${PROJECT_SOURCE_DIR}/build/deps CACHE PATH "Where scripts/setup.sh puts what a machine lacks")
set(inject_cuda_places ${INJECT_CUDA_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)

function(inject_find_header variable header)
  foreach(place ${inject_cuda_places})
    find_path(${variable} ${header} PATHS ${place} PATH_SUFFIXES include extras/CUPTI/include NO_DEFAULT_PATH)
  endforeach()
  find_path(${variable} ${header})
  find_path(${variable} ${header} PATHS ${INJECT_DEPS_DIR}/cuda/include NO_DEFAULT_PATH)
  mark_as_advanced(${variable})
endfunction()

macro(inject_find_headers)
  inject_find_header(INJECT_CUDA_INCLUDE cuda_runtime_api.h)
  inject_find_header(INJECT_OCCUPANCY_INCLUDE cuda_occupancy.h)
  inject_find_header(INJECT_CRT_INCLUDE crt/host_defines.h)
  inject_find_header(INJECT_CUPTI_INCLUDE cupti.h)
  inject_find_header(INJECT_CUBLAS_INCLUDE cublasLt.h)
  inject_find_header(INJECT_NVTX_INCLUDE nvtx3/nvToolsExt.h)
  inject_find_header(INJECT_PROFILER_API_INCLUDE cuda_profiler_api.h)
  inject_find_header(INJECT_CCCL_INCLUDE nv/target)
  inject_find_header(INJECT_CUDNN_INCLUDE cudnn.h)
  inject_find_header(INJECT_NCCL_INCLUDE nccl.h)
endmacro()

inject_find_headers()
set(needed CUDA OCCUPANCY CRT CUPTI CUBLAS NVTX PROFILER_API CCCL)
set(optional CUDNN NCCL)
if(INJECT_FETCH_CUDA)
  set(lacks FALSE)
  foreach(part ${needed} ${optional})
    if(NOT INJECT_${part}_INCLUDE)
      set(lacks TRUE)
    endif()
  endforeach()
  if(lacks)
    message(STATUS "fetching CUDA headers that this machine lacks into ${INJECT_DEPS_DIR}")
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    # Its exit status says nothing that the search below does not.
    execute_process(COMMAND ${CMAKE_COMMAND} -E env "INJECT_CUDA_ROOT=${INJECT_CUDA_ROOT}" ${Python3_EXECUTABLE}
                            ${PROJECT_SOURCE_DIR}/scripts/fetch_cuda.py ${INJECT_DEPS_DIR}/cuda --headers)
    inject_find_headers()
  endif()
endif()

# Hooks take their prototypes from it.
if(INJECT_CUDNN_INCLUDE AND EXISTS ${INJECT_CUDNN_INCLUDE}/cudnn_graph.h)
  file(STRINGS ${INJECT_CUDNN_INCLUDE}/cudnn_graph.h inject_cudnn_recent REGEX "cudnnBackendPopulateCudaGraph")
endif()
if(INJECT_CUDNN_INCLUDE AND NOT inject_cudnn_recent)
  message(STATUS "${INJECT_CUDNN_INCLUDE}/cudnn.h is older than cuDNN 9.5")
  set(INJECT_CUDNN_INCLUDE "")
endif()

add_library(inject_cuda_headers INTERFACE)
set(missing "")
foreach(part ${needed})
  if(INJECT_${part}_INCLUDE)
    target_include_directories(inject_cuda_headers SYSTEM INTERFACE ${INJECT_${part}_INCLUDE})
  else()
    list(APPEND missing ${part})
  endif()
endforeach()
if(missing)
  list(JOIN missing ", " missing)
  message(FATAL_ERROR "no headers found for: ${missing}. scripts/setup.sh fetches them, and so does "
                      "-DINJECT_FETCH_CUDA=ON; -DINJECT_CUDA_ROOT=DIR names a toolkit that has them.")
endif()

foreach(part ${optional})
  if(INJECT_${part}_INCLUDE)
    set(INJECT_HAVE_${part} 1)
    target_include_directories(inject_cuda_headers SYSTEM INTERFACE ${INJECT_${part}_INCLUDE})
  else()
    set(INJECT_HAVE_${part} 0)
    message(STATUS "no ${part} header found: its hooks are left out")
  endif()
  target_compile_definitions(inject_cuda_headers INTERFACE INJECT_HAVE_${part}=${INJECT_HAVE_${part}})
endforeach()
file(STRINGS ${INJECT_CUDA_INCLUDE}/cuda_runtime_api.h inject_cuda_version REGEX "^#define CUDART_VERSION +[0-9]+")
string(REGEX MATCH "[0-9]+$" inject_cuda_version "${inject_cuda_version}")
message(STATUS "CUDA ${inject_cuda_version} headers: ${INJECT_CUDA_INCLUDE}")

foreach(place ${inject_cuda_places})
  find_program(INJECT_NVCC nvcc PATHS ${place} PATH_SUFFIXES bin NO_DEFAULT_PATH)
endforeach()
find_program(INJECT_NVCC nvcc)
find_program(INJECT_NVCC nvcc PATHS ${INJECT_DEPS_DIR}/cuda/bin NO_DEFAULT_PATH)
