# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Does a folder keep what the documentation promises of its columns? The rules are written from docs/ alone; docs/check.md lists them."""
