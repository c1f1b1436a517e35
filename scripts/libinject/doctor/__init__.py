# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What `inject doctor` looks at: the machine (machine.py), and a trial that profiles a few calls (trial.py)."""
