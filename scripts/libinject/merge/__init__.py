# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Merges the result folders of a distributed job. `collect` finds and reads them, `store` holds their tables in DuckDB, `jobs` determines
which folder is which rank of which job; `steps`, `collectives`, `usage`, `links` and `scaling` each answer one question, and `report`
combines the answers. docs/merge.md has the rules."""
