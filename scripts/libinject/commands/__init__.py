# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The subcommands of `inject`: each module has add_to(app)."""
