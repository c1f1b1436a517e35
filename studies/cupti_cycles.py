# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For docs/reliability.md, "Hundreds of windows that attach CUPTI anew": tests/gpu/run_all.sh cupti_cycles

What CUPTI keeps in memory each time that it is attached and detached, without libinject. Where it is only unsubscribed, it keeps
nothing; where it is finalized, it keeps some memory. That is why libinject finalizes it a bounded number of times
(libinject/session/cupti_attachment.h).
"""

import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests", "gpu"))
from gputest import clean_environment, main, run  # noqa: E402

CYCLES, KERNELS = 60, 500
GRANULE = 2 << 20  # bytes, the driver's allocation unit of device memory


def program(library):
    for name in ("studies/inject-cupti-cycles", "inject-cupti-cycles"):
        for folder in (os.path.dirname(library), os.path.dirname(os.path.dirname(library))):
            if os.access(os.path.join(folder, name), os.X_OK):
                return os.path.join(folder, name)
    return None


def test(options, report):
    path = program(options.library)
    if path is None:
        report.skip("cupti_cycles", "the program is not built: there was no nvcc")
        return
    found = {}
    for mode in ("unsubscribe", "finalize", "finalize_in_callback", "nothing_enabled"):
        result = run([path, mode, str(CYCLES), str(KERNELS)], clean_environment(), timeout=60)
        if not report.check(f"{mode}: program ends well", result.rc == 0, result.why() if result.rc else ""):
            return
        found[mode] = json.loads(result.out)
    report.data["found"] = found
    for mode, one in found.items():
        text = (f"a cycle leaves {one['device'] / CYCLES / 1e3:.0f} kB on the device, {one['host'] / CYCLES / 1e3:.0f} kB on the host; "
                f"a launch {one['bare_ns']:.0f} ns bare, {one['after_ns']:.0f} after")
        if mode == "unsubscribe":
            report.check("unsubscribe: device memory stays as it was", one["device"] <= GRANULE, text)
        else:
            # If CUPTI leaves nothing, the bound is unnecessary.
            report.check(f"{mode}: at most what libinject reckons with", one["device"] <= CYCLES * 700_000 + GRANULE, text)
        if mode != "nothing_enabled":
            report.check(f"{mode}: every record", one["records"] >= (CYCLES + 1) * KERNELS, one["records"])


if __name__ == "__main__":
    main("cupti_cycles", test)
