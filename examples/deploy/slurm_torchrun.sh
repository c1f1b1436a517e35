#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
#
# A PyTorch job on two hosts of a SLURM cluster, with the tables of each rank in a folder of its own.
# usage: sbatch slurm_torchrun.sh train.py [ARGUMENT]...
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
set -euo pipefail

# On a file system that all hosts see, as the output folder.
library=${LIBINJECT:-/opt/libinject/lib/libinject.so}
export INJECT_OUT="$SLURM_SUBMIT_DIR/profile-$SLURM_JOB_ID/rank-%r"
export INJECT_WINDOW=${INJECT_WINDOW:-iter:100+10}

hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${hosts%%$'\n'*}
# Preloaded into torchrun alone, whose workers inherit it: not into srun.
srun env LD_PRELOAD="$library" torchrun --nnodes="$SLURM_NNODES" --nproc-per-node="${SLURM_GPUS_ON_NODE:-8}" \
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$first:29500" "$@"
