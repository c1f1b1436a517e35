# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The command `inject`, and a reader of the folders that libinject writes (result.py)."""

__version__ = "0.1.0"
