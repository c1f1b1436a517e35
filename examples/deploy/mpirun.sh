#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# An MPI job by Open MPI, with the tables of each rank in a folder of its own.
# usage: mpirun.sh [MPIRUN_OPTION]... PROGRAM [ARGUMENT]...     mpirun.sh -np 4 ./train
set -euo pipefail

library=${LIBINJECT:-/opt/libinject/lib/libinject.so}
# -x gives the ranks a variable, on every host; mpirun itself goes without.
exec mpirun -x LD_PRELOAD="$library" -x INJECT_OUT="${INJECT_OUT:-$PWD/profile/rank-%r}" -x INJECT_WINDOW="${INJECT_WINDOW:-iter:100+10}" "$@"
