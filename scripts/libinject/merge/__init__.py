# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The result folders of a distributed job as one. `collect` finds and reads them, `store` holds their tables in DuckDB, `jobs`
says which folder is which rank of which job; `steps`, `collectives`, `usage`, `links` and `scaling` each answer one question,
`report` puts the answers together. docs/merge.md has the rules."""
