# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# inject_cuda_headers: the vendor's headers, nothing to link. INJECT_HAVE_CUDNN and INJECT_HAVE_NCCL say whether those
# optional headers were found.
find_path(INJECT_CUDA_INCLUDE cuda_runtime_api.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include REQUIRED)
add_library(inject_cuda_headers INTERFACE)
target_include_directories(inject_cuda_headers SYSTEM INTERFACE ${INJECT_CUDA_INCLUDE})
