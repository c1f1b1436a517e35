# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`python -m libinject` is `inject`."""

from libinject.cli import main

if __name__ == "__main__":
    main()
