# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Checks whether a folder keeps what the documentation promises of its columns. The rules are written from docs/ alone; docs/check.md lists
them."""
