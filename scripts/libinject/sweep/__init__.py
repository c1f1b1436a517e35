# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs a command under libinject for each combination of some values: docs/sweep.md."""
