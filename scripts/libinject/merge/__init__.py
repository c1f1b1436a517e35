# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Merges the result folders of a distributed job. `collect` finds and reads them, `store` holds their tables in DuckDB, `jobs`
says which folder is which rank of which job; `steps`, `collectives`, `usage`, `links` and `scaling` each answer one question,
`report` puts the answers together. docs/merge.md has the rules."""
