# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What is done with libinject besides preloading it: the command `inject`, and a reader of its folders (result.py)."""

__version__ = "0.1.0"
