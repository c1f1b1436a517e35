# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Whether a folder keeps what the documentation promises of its columns: rules made of docs/ alone, as docs/check.md lists them."""
