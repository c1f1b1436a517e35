# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The page of `inject report`. model.py makes a model of each folder (what the page shows, and what --json prints), section by section;
page.py writes it into one HTML file with report.html and libinject.page."""
