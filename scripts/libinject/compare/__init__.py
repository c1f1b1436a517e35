# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What differs between runs, and which differences are more than noise: docs/compare.md has the rules."""
