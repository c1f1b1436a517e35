# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Sums that must agree between tables: the same kernels, copies, calls and FLOPs, split in different ways."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from libinject.check.folder import Folder, Number, Place, Table, is_others, named
from libinject.check.rows import SHAPES, executed, is_derived
from libinject.check.rules import ERROR, rule

# The columns of work that windows, iterations and phases share.
WORK = ("Kernels", "Kernel Time (ns)", "Copies", "Copy Time (ns)", "Memsets", "Memset Time (ns)", "Unattributed")
SIZES = ("Copy Size (MB)", "Memset Size (MB)")
IDLE_CAUSES = ("Start-up", "Synchronization", "Copy Call", "Launch Call", "Other Call", "Host Compute", "Host Wait", "Other Stream", "Collective",
               "Queue", "Graph", "Unknown")
_ALL = "all"


def idle_columns(table: Table | None) -> list[str]:
    """Idle time by cause. Tables from before gaps within graphs had a cause of their own lack that one."""
    columns = [f"Idle: {cause} (ns)" for cause in IDLE_CAUSES]
    graph = "Idle: Graph (ns)"
    return columns if table is None or table.has(graph) else [column for column in columns if column != graph]


def rows_of(table: Table, scope: str) -> list[int]:
    """scope: 'all' for the rows with the totals of all devices, 'each' for those of a single device."""
    return [index for index, device in enumerate(table.cells("Device")) if (device == _ALL) == (scope == _ALL)]


def _differs(table: Table, column: str, found: Number, expected: Number, source: str) -> Place:
    return table.place(None, column, f"{found} in all, {expected} in {source}")


# Every kernel is in exactly one row of each of these; where a table has devices, in one row with Device 'all' and in
# one with its own device.
_KERNEL_TABLES = (("cuda_gpu_kern_gb_sum", "Instances", "Total Time (ns)", None), ("kernel_detail", "Instances", "Total Time (ns)", None),
                  ("family_sum", "Instances", "Total Time (ns)", None), ("thread_kern_sum", "Instances", "Total Time (ns)", None),
                  ("window_sum", "Kernels", "Kernel Time (ns)", _ALL), ("window_sum", "Kernels", "Kernel Time (ns)", "each"),
                  ("iteration_sum", "Kernels", "Kernel Time (ns)", _ALL), ("iteration_sum", "Kernels", "Kernel Time (ns)", "each"),
                  ("phase_sum", "Kernels", "Kernel Time (ns)", None), ("op_sum", "Self Instances", "Self Time (ns)", None),
                  ("module_sum", "Self Instances", "Self Time (ns)", None), ("line_sum", "Self Instances", "Self Time (ns)", None))
# These only cover windows that are settled.
_SETTLED = ("phase_sum", "op_sum", "module_sum", "line_sum")


def phases_complete(folder: Folder) -> bool:
    """Phases cover work that arrived in time for its window, once the window is settled."""
    return folder.ended and not folder.lost("device_time_records")


def without_devices(table: Table) -> bool:
    """Windows and iterations beyond those listed share a row, which has no device."""
    return any(is_others(window) for window in table.cells("Window"))


@rule("kernel-sum", ERROR, "The kernels and their time are the same in all tables that split them.", compares=True)
def kernel_sum(folder: Folder) -> Iterator[Place]:
    source = folder.table("cuda_gpu_kern_sum", "Instances", "Total Time (ns)")
    if source is None:
        return
    expected = source.sum("Instances"), source.sum("Total Time (ns)")
    for name, count, time, scope in _KERNEL_TABLES:
        table = folder.table(name, count, time, *(["Device", "Window"] if scope else []))
        if table is None or scope == "each" and without_devices(table):
            continue
        if name in _SETTLED and not phases_complete(folder):
            continue
        rows = rows_of(table, scope) if scope else None
        told = f"{source.path.name}" + (f" (rows of {'all devices' if scope == _ALL else 'one device'})" if scope else "")
        for column, wanted in zip((count, time), expected):
            if table.sum(column, rows) != wanted:
                yield _differs(table, column, table.sum(column, rows), wanted, told)


def _by_name(table: Table, name: str, *columns: str) -> dict[str, list[Number]]:
    found: dict[str, list[Number]] = {}
    for index, key in enumerate(table.cells(name)):
        sums = found.setdefault(key, [0] * len(columns))
        for place, column in enumerate(columns):
            sums[place] += table.numbers(column)[index] or 0
    return found


@rule("kernel-name-sum", ERROR, "A kernel has the same count and time by name, by name and launch shape, and in kernel_detail.csv.", compares=True)
def kernel_name_sum(folder: Folder) -> Iterator[Place]:
    columns = ("Instances", "Total Time (ns)")
    source = folder.table("cuda_gpu_kern_sum", "Name", *columns)
    if source is None:
        return
    for name in ("cuda_gpu_kern_gb_sum", "kernel_detail"):
        table = folder.table(name, "Name", *columns)
        if table is None:
            continue
        found = _by_name(table, "Name", *columns)
        if any(is_others(key) for key in found):  # more launch shapes than rows
            continue
        for index, key in enumerate(source.cells("Name")):
            if is_others(key):
                continue
            for column, sums in zip(columns, found.get(key, [0, 0])):
                if source.numbers(column)[index] != sums:
                    yield source.place(index, column, f"{source.cells(column)[index]}, {sums} in {table.path.name}: {named(key)}")


@rule("kernel-extremes", ERROR, "The shortest and the longest kernel of a name, and of all, are the same in all tables that split them.", compares=True)
def kernel_extremes(folder: Folder) -> Iterator[Place]:
    columns = ("Min (ns)", "Max (ns)")
    source = folder.table("cuda_gpu_kern_sum", "Name", *columns)
    if source is None or not len(source):
        return
    for name in ("cuda_gpu_kern_gb_sum", "kernel_detail", "family_sum", "thread_kern_sum"):
        table = folder.table(name, *columns)
        if table is None or not len(table):
            continue
        for column, pick in zip(columns, (min, max)):
            ours, theirs = (pick((number for number in each.numbers(column) if number is not None), default=None) for each in (table, source))
            if ours != theirs:
                yield table.place(None, column, f"{ours} of all, {theirs} in {source.path.name}")
            elif name in ("cuda_gpu_kern_gb_sum", "kernel_detail") and table.has("Name") and not any(map(is_others, table.cells("Name"))):
                found: dict[str, Number] = {}
                for key, number in zip(table.cells("Name"), table.numbers(column)):
                    if number is not None:
                        found[key] = pick(found.get(key, number), number)
                for index, key in enumerate(source.cells("Name")):
                    if not is_others(key) and key in found and source.numbers(column)[index] != found[key]:
                        yield source.place(index, column, f"{source.cells(column)[index]}, {found[key]} in {table.path.name}: {named(key)}")


@rule("copy-sum", ERROR, "Copies and memsets, their time and size are the same in all tables that split them.", compares=True)
def copy_sum(folder: Folder) -> Iterator[Place]:
    times = folder.table("cuda_gpu_mem_time_sum", "Operation", "Count", "Total Time (ns)")
    if times is None:
        return
    operations = _by_name(times, "Operation", "Count", "Total Time (ns)")
    sizes = folder.table("cuda_gpu_mem_size_sum", "Operation", "Count", "Total (MB)")
    if sizes is not None:
        counts = {key: values[0] for key, values in operations.items()}
        for index, key in enumerate(sizes.cells("Operation")):
            if sizes.numbers("Count")[index] != counts.pop(key, 0):
                yield sizes.place(index, "Count", f"{sizes.cells('Count')[index]}, {operations.get(key, [0])[0]} in {times.path.name}")
        for key in counts:
            yield sizes.place(None, "Operation", f"no row of {named(key)}, which {times.path.name} has")
    copies = folder.table("copy_sum", "Direction", "Count", "Total Time (ns)", "Total (MB)")
    if copies is not None and not any(is_others(cell) for column in copies.columns[:4] for cell in copies.cells(column)):
        split = _by_name(copies, "Direction", "Count", "Total Time (ns)", "Total (MB)")
        megabytes = {key: values[0] for key, values in _by_name(sizes, "Operation", "Total (MB)").items()} if sizes is not None else {}
        for operation, expected in operations.items():
            if operation.startswith("[CUDA memcpy "):
                direction = operation.removeprefix("[CUDA memcpy ").removesuffix("]")
                found = split.get(direction, [0, 0, 0.0])
                rows = sum(cell == direction for cell in copies.cells("Direction"))
                for column, mine, wanted in zip(("Count", "Total Time (ns)"), found[:2], expected):
                    if mine != wanted:
                        yield copies.place(None, column, f"{mine} {direction}, {wanted} in {times.path.name}")
                if operation in megabytes and abs(found[2] - megabytes[operation]) > 0.0005 * (rows + 1.01):
                    yield copies.place(None, "Total (MB)", f"{found[2]:.3f} {direction}, {megabytes[operation]:.3f} in {sizes.path.name}")
    expected = [[sum(values[place] for key, values in operations.items() if (key == "[CUDA memset]") == memset) for place in (0, 1)]
                for memset in (False, True)]
    lines = folder.table("line_sum", "User Code Copies", "User Code Copy Time (ns)")
    if lines is not None and phases_complete(folder):
        for place, column in enumerate(("User Code Copies", "User Code Copy Time (ns)")):
            if lines.sum(column) != (wanted := sum(values[place] for values in operations.values())):
                yield _differs(lines, column, lines.sum(column), wanted, times.path.name)
    for name in ("window_sum", "iteration_sum", "phase_sum"):
        table = folder.table(name, "Device", "Window", *WORK)
        if table is None or name == "phase_sum" and not phases_complete(folder):
            continue
        for scope in (_ALL, "each"):
            if name == "phase_sum" and scope == _ALL or scope == "each" and without_devices(table):
                continue
            rows = rows_of(table, scope)
            for (count, time), wanted in zip((("Copies", "Copy Time (ns)"), ("Memsets", "Memset Time (ns)")), expected):
                for column, total in zip((count, time), wanted):
                    if table.sum(column, rows) != total:
                        yield _differs(table, column, table.sum(column, rows), total, f"{times.path.name} (rows of {scope})")
            if sizes is not None and table.has(*SIZES):
                found = sum(table.sum(column, rows) for column in SIZES)
                if abs(found - sizes.sum("Total (MB)")) > 0.0005 * (2 * len(rows) + len(sizes) + 0.01):
                    yield _differs(table, SIZES[0], round(found, 3), round(sizes.sum("Total (MB)"), 3), sizes.path.name)


@rule("gap-sum", ERROR, "The idle time by line, and the host's own work, is that of the windows, cause by cause, and a line's causes add up to it.", compares=True)
def gap_sum(folder: Folder) -> Iterator[Place]:
    causes = idle_columns(folder.table("gap_line_sum"))
    lines = folder.table("gap_line_sum", "Idle Time (ns)", *causes)
    windows = folder.table("window_sum", "Window", "Device", "Idle (ns)", *causes)
    if lines is None or windows is None or without_devices(windows) or not phases_complete(folder):
        return
    rows = rows_of(windows, "each")
    own = ["Own Work (ns)"] if lines.has("Own Work (ns)") and windows.has("Own Work (ns)") else []
    for column, source in (("Idle Time (ns)", "Idle (ns)"), *((cause, cause) for cause in (*causes, *own))):
        if lines.sum(column) != windows.sum(source, rows):
            yield _differs(lines, column, lines.sum(column), windows.sum(source, rows), windows.path.name)
    for index, (total, *parts) in lines.each("Idle Time (ns)", *causes):
        if sum(parts) != total:
            yield lines.place(index, "Idle Time (ns)", f"{total} is not the sum of its causes, {sum(parts)}")


@rule("device-sum", ERROR, "A row for all devices has the sums over the rows of the devices.")
def device_sum(folder: Folder) -> Iterator[Place]:
    times = (*WORK, "GPU Busy (ns)", "Device Time (ns)", "Kernel Busy (ns)", "Copy Only (ns)", "Idle (ns)", "Exposed Collective (ns)",
             "H2D Busy (ns)", "D2H Busy (ns)")
    for name, keys in (("window_sum", ("Window",)), ("iteration_sum", ("Window", "Iteration", "Label", "Start (ns)"))):
        table = folder.table(name, "Device", *keys)
        if table is None or without_devices(table):
            continue
        columns = [column for column in table.columns if column in times or column.startswith(("Idle: ", "Own Work", "Input in Fetch: "))]
        groups: dict[tuple, list[int]] = collections.defaultdict(list)
        for index, key in enumerate(zip(*(table.cells(column) for column in keys))):
            groups[key].append(index)
        devices = table.cells("Device")
        for rows in groups.values():
            whole = [index for index in rows if devices[index] == _ALL]
            parts = [index for index in rows if devices[index] != _ALL]
            for column in columns if len(whole) == 1 else ():
                both = table.numbers(column)[whole[0]]
                if both is not None and both != table.sum(column, parts):
                    yield table.place(whole[0], column, f"{both}, {table.sum(column, parts)} in the rows of its {len(parts)} devices")


@rule("window-split", ERROR, "The phases and the iterations of a window add up to the window, on each device.", compares=True)
def window_split(folder: Folder) -> Iterator[Place]:
    windows = folder.table("window_sum", "Window", "Device", *WORK)
    if windows is None or without_devices(windows):
        return
    keys = list(zip(windows.cells("Window"), windows.cells("Device")))
    for name in ("iteration_sum", "phase_sum"):
        table = folder.table(name, "Window", "Device", *WORK)
        if table is None or without_devices(table) or name == "phase_sum" and not phases_complete(folder):
            continue
        sums: dict[tuple[str, str], list[Number]] = collections.defaultdict(lambda: [0] * len(WORK))
        for index, key in enumerate(zip(table.cells("Window"), table.cells("Device"))):
            for place, column in enumerate(WORK):
                sums[key][place] += table.numbers(column)[index] or 0
        for index, key in enumerate(keys):
            if name == "phase_sum" and key[1] == _ALL:
                continue
            for column, found in zip(WORK, sums[key]):
                if (windows.numbers(column)[index] or 0) != found:
                    yield windows.place(index, column, f"{windows.cells(column)[index]}, {found} in the window's rows of {table.path.name}")


@rule("launch-sum", ERROR, "The launches of a window's iterations add up to the window's submissions.", compares=True)
def launch_sum(folder: Folder) -> Iterator[Place]:
    windows = folder.table("window_sum", "Device", "Submissions")
    iterations = folder.table("iteration_sum", "Device", "Launches")
    if windows is not None and iterations is not None:
        expected, found = windows.sum("Submissions", rows_of(windows, _ALL)), iterations.sum("Launches", rows_of(iterations, _ALL))
        if found != expected:
            yield _differs(iterations, "Launches", found, expected, f"{windows.path.name} (Submissions)")


@rule("call-sum", ERROR, "The windows have as many API calls, library calls and ranges, and as much API time, as the tables of these.", compares=True)
def call_sum(folder: Folder) -> Iterator[Place]:
    windows = folder.table("window_sum", "Device")
    if windows is None:
        return
    rows = rows_of(windows, _ALL)
    for name, theirs, column in (("cuda_api_sum", ("Num Calls",), "API Calls"), ("cuda_api_sum", ("Total Time (ns)",), "API Time (ns)"),
                                 ("library_sum", ("Calls",), "Library Calls"), ("nvtx_sum", ("Instances",), "Ranges")):
        table = folder.table(name, *theirs)
        if table is not None and windows.has(column):
            expected = sum(table.sum(mine) for mine in theirs)
            if windows.sum(column, rows) != expected:
                yield _differs(windows, column, windows.sum(column, rows), expected, table.path.name)


@rule("library-kernels", ERROR, "Library calls launched no more kernels than there are, and the outermost calls account for all of these.", compares=True)
def library_kernels(folder: Folder) -> Iterator[Place]:
    table = folder.table("library_sum", "Depth")
    kernels = folder.table("cuda_gpu_kern_sum", "Instances", "Total Time (ns)")
    if table is None:
        return
    depths = table.cells("Depth")
    outermost = [index for index, depth in enumerate(depths) if depth in ("0", "")]
    for own, nested, total in (("Kernels", "Kernels incl. Nested", "Instances"),
                               ("GPU Time (ns)", "GPU Time incl. Nested (ns)", "Total Time (ns)")):
        if table.has(own, nested):
            mine = table.sum(own)
            if mine != table.sum(nested, outermost):
                yield _differs(table, own, mine, table.sum(nested, outermost), f"'{nested}' of the outermost calls")
            if kernels is not None and mine > kernels.sum(total):
                yield _differs(table, own, mine, kernels.sum(total), kernels.path.name)


@rule("range-kernels", ERROR, "A kernel is in a range no more often, and for no longer, than it ran.", compares=True)
def range_kernels(folder: Folder) -> Iterator[Place]:
    table = folder.table("nvtx_kern_sum", "Kernel Name", "Kern Inst", "Total Time (ns)")
    kernels = folder.table("cuda_gpu_kern_sum", "Name", "Instances", "Total Time (ns)")
    if table is None or kernels is None or any(map(is_others, kernels.cells("Name"))):
        return
    ran = _by_name(kernels, "Name", "Instances", "Total Time (ns)")
    for index, name in enumerate(table.cells("Kernel Name")):
        if not is_others(name):
            for column, most in zip(("Kern Inst", "Total Time (ns)"), ran.get(name, [0, 0])):
                if (table.numbers(column)[index] or 0) > most:
                    yield table.place(index, column, f"{table.cells(column)[index]}, {most} in {kernels.path.name}: {named(name)}")


def _flops_of_shapes(folder: Folder) -> int | None:
    """None if rows are missing, or several shapes share one."""
    total = 0
    for name in SHAPES[:4]:
        table = folder.table(name, "Calls", "FLOPs")
        if table is None:
            return None
        for index, flops in enumerate(table.numbers("FLOPs")):
            if is_derived(table, index):
                continue
            if flops is not None:
                total += int(flops) * executed(table, index)
            elif (table.numbers("Calls")[index] or 0) > 0:
                return None
    return total


def _all_have_flops(table: Table) -> bool:
    return all(table.numbers("FLOPs")[index] is not None for index in rows_of(table, _ALL))


@rule("flop-sum", ERROR, "The FLOPs of calls by shape, of windows, iterations and families are the same.", compares=True)
def flop_sum(folder: Folder) -> Iterator[Place]:
    windows = folder.table("window_sum", "Device", "FLOPs")
    # Where records were lost, some have none.
    if windows is None or not _all_have_flops(windows):
        return
    expected = windows.sum("FLOPs", rows_of(windows, _ALL))
    iterations = folder.table("iteration_sum", "Device", "FLOPs")
    if iterations is not None and _all_have_flops(iterations):
        found = iterations.sum("FLOPs", rows_of(iterations, _ALL))
        if found != expected and not folder.lost("iteration_records"):
            yield _differs(iterations, "FLOPs", found, expected, windows.path.name)
    families = folder.table("family_sum", "FLOPs")
    # Calls without kernels are not in any family.
    if families is not None and families.sum("FLOPs") > expected:
        yield _differs(families, "FLOPs", families.sum("FLOPs"), expected, windows.path.name)
    shapes = _flops_of_shapes(folder)
    if shapes is not None and shapes != expected and not folder.lost():
        yield _differs(windows, "FLOPs", expected, shapes, "the tables by shape, of the calls that ran")


@rule("shape-kernels", ERROR, "Calls of one kind, by shape, have no more kernels and GPU time than all kernels.", compares=True)
def shape_kernels(folder: Folder) -> Iterator[Place]:
    kernels = folder.table("cuda_gpu_kern_sum", "Instances", "Total Time (ns)")
    for name in SHAPES if kernels is not None else ():
        if (table := folder.table(name, "Kernels", "GPU Time (ns)")) is not None:
            for column, total in (("Kernels", "Instances"), ("GPU Time (ns)", "Total Time (ns)")):
                if table.sum(column) > kernels.sum(total):
                    yield _differs(table, column, table.sum(column), kernels.sum(total), kernels.path.name)


def _products_by_call(table: Table) -> Iterator[tuple[int, list[int]]]:
    """Rows of calls that contain products, each with the rows of these products, which follow it."""
    call, parts = None, []
    for index, kind in enumerate([*table.cells("Derived"), ""]):
        if kind == "product" and call is not None:
            parts.append(index)
            continue
        if call is not None:
            yield call, parts
        call, parts = (index, []) if kind == "call" else (None, [])


@rule("derived-products", ERROR, "The products inside the calls of rnn_sum.csv have the FLOPs of these calls, function by function, and no more than their time.",
      compares=True)
def derived_products(folder: Folder) -> Iterator[Place]:
    table = folder.table("gemm_sum", "API", "Derived", "Batch", "Calls", "FLOPs", "GPU Time (ns)")
    source = folder.table("rnn_sum", "API", "Calls", "FLOPs", "GPU Time (ns)")
    if table is None or source is None:
        return
    batch, flops, calls = table.numbers("Batch"), table.numbers("FLOPs"), table.cells("Derived")
    whole = dict(_products_by_call(table))
    known = [index for index in range(len(table)) if calls[index] == "product"]
    if stray := set(known).difference(*whole.values()):
        yield table.place(min(stray), "Derived", "a product behind no call")
    for index, parts in whole.items():
        for column, cells in (("Batch", batch), ("FLOPs", flops)):
            found = sum(cells[part] or 0 for part in parts)
            if parts and found != cells[index]:
                yield table.place(index, column, f"{cells[index]}, {found} in its {len(parts)} products")
        if not parts and batch[index] is not None:
            yield table.place(index, "Batch", f"{batch[index]}, and no products")
    # Products that exceed the counter are not listed.
    listed = all(parts or not flops[index] for index, parts in whole.items())
    for kind in ("call", "product") if listed else ("call",):
        found, expected = ({name: 0 for name in {*table.cells("API"), *source.cells("API")}} for _ in range(2))
        for index, name in enumerate(table.cells("API")):
            if calls[index] == kind:
                found[name] += int(flops[index] or 0) * executed(table, index)
        for index, name in enumerate(source.cells("API")):
            expected[name] += int(source.numbers("FLOPs")[index] or 0) * executed(source, index)
        for name in expected:
            if found[name] != expected[name]:
                yield _differs(table, "FLOPs", found[name], expected[name], f"{source.path.name}: {named(name)}, rows of '{kind}'")
    times = {}
    for kept, rows in ((table, whole), (source, range(len(source)))):
        for index in rows:
            name = kept.cells("API")[index]
            times.setdefault(name, [0, 0])[kept is source] += kept.numbers("GPU Time (ns)")[index] or 0
    for name, (mine, all_of_it) in times.items():
        if mine > all_of_it:
            yield _differs(table, "GPU Time (ns)", mine, all_of_it, f"{source.path.name}: {named(name)}")


@rule("product-time", ERROR, "Kernels of the family GEMM take no longer than the rows of gemm_sum.csv.", compares=True)
def product_time(folder: Folder) -> Iterator[Place]:
    table, families = folder.table("gemm_sum", "Derived", "GPU Time (ns)"), folder.table("family_sum", "Family", "Total Time (ns)")
    if table is None or families is None or folder.lost():
        return
    # A row for what found no room may combine calls of several kinds.
    if any(is_others(cell) for name in SHAPES[:5] if (kind := folder.table(name, "API")) is not None for cell in kind.cells("API")):
        return
    expected = sum(time or 0 for family, time in zip(families.cells("Family"), families.numbers("Total Time (ns)")) if family == "GEMM")
    if (found := table.sum("GPU Time (ns)")) < expected:
        yield _differs(table, "GPU Time (ns)", found, expected, f"{families.path.name} (GEMM)")
