# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What PyTorch's GPU memory is used for, read inside of the program's interpreter (docs/memory_purpose.md).

libinject carries this file and runs it on the program's main thread, between two of its instructions, or on any thread where PyTorch is
about to raise an out-of-memory error. So it imports nothing that is not part of the interpreter, calls no operator and no method that a
class of the program may have replaced, starts no work on the GPU, and changes no object of the program. A tensor belongs to an allocation
by its address.

Handlers of signals run wherever Python runs, so here as well: what they raise is the program's, and goes on to it.
"""

import bisect
import gc
import os
import sys
import time

PARAMETERS, GRADIENTS, OPTIMIZER, BUFFERS, TENSORS = range(5)
PURPOSES = ("parameters", "gradients", "optimizer state", "buffers", "other tensors", "workspaces", "communication buffers", "no tensor", "rounding",
            "private pools", "cached", "outside of the allocator")
WORKSPACES, COMMUNICATION, NO_TENSOR, ROUNDING, POOLS, CACHED, OUTSIDE = range(5, 12)
NO_MEMORY = ("FakeTensor", "FunctionalTensor")  # a compiler's
MOST_NS = 1_000_000_000
MOST_NESTED = 4  # of lists and dictionaries in an optimizer's state, and of tensors made of tensors
MOST_HOLDERS = 20
MOST_FRAMES = 64


MOST_SHARE = 0.01  # of the time that failed allocations are read for, after the first
FIRST_FAILURES = 16
# Of the collector itself: while all objects are in a list no instruction may run (find_objects in program_python.cpp).
get_objects = gc.get_objects


class Unfinished(Exception):
    """It takes too long."""


class Refused(Exception):
    """What would be read is not all there is."""


# Past what a metaclass may say instead.
name_of = type.__dict__["__name__"].__get__


def is_kind(kind, base):
    return type.__subclasscheck__(base, kind)


def items_of(found):
    """Of a dictionary, also one of a class of the program's; nothing of anything else."""
    return list(dict.items(found)) if is_kind(type(found), dict) else []


def list_of(found):
    kind = type(found)
    return list.copy(found) if is_kind(kind, list) else list(tuple.__iter__(found)) if is_kind(kind, tuple) else []


class Blocks:
    """The allocations of PyTorch's allocator that are in use, by address."""

    def __init__(self, torch, handed):
        self.handed = handed
        self.reserved = {}  # bytes by device
        self.has_requests = True  # the sizes that were asked for are known: from PyTorch 2.0 on
        self.pools = {}  # likewise, not allocated, of pools of their own: what CUDA graphs use again as they are replayed
        found = []
        for segment in segments_of(torch):
            device, at = segment["device"], segment["address"]
            self.reserved[device] = self.reserved.get(device, 0) + segment["total_size"]
            is_private = any(segment.get("segment_pool_id", ()))
            for block in segment["blocks"]:
                size = block["size"]
                # "active_pending_free": another stream still uses it.
                if block["state"] != "inactive":
                    self.has_requests &= "requested_size" in block
                    found.append((at, size, min(block.get("requested_size", size), size), device))
                elif is_private:
                    self.pools[device] = self.pools.get(device, 0) + size
                at += size
        found.sort()
        self.begins, self.sizes, self.requested, self.devices = zip(*found) if found else ((), (), (), ())
        self.ranges = {}  # by block: (begin, end, purpose)

    def add(self, begin, size, purpose):
        """Its device; None if it is in none of the allocations."""
        block = bisect.bisect_right(self.begins, begin) - 1
        if block < 0 or begin >= self.begins[block] + self.sizes[block]:
            return None
        self.ranges.setdefault(block, []).append((begin, min(begin + size, self.begins[block] + self.sizes[block]), purpose))
        return self.devices[block]

    def used(self, in_time):
        """By device, the bytes for each of PURPOSES up to CACHED. A byte counts once, for the first purpose that it has."""
        used = {device: [0] * len(PURPOSES) for device in self.reserved}
        for block, size in enumerate(self.sizes):
            if not block & 0xFF:
                in_time()
            amounts = used[self.devices[block]]
            ranges = self.ranges.get(block)
            covered = 0
            for purpose, part in first_purposes(ranges) if ranges else ():
                amounts[purpose] += part
                covered += part
            left = size - covered
            rounding = min(left, size - self.requested[block])
            amounts[ROUNDING] += rounding
            # Where the allocation that a library was handed has been freed, another has its address, but hardly its size.
            purpose = TENSORS if ranges else self.handed.get((self.begins[block], self.requested[block]), NO_TENSOR)
            amounts[purpose] += left - rounding
        for device, amounts in used.items():
            amounts[POOLS] = self.pools.get(device, 0)
            amounts[CACHED] = self.reserved[device] - sum(amounts)
        return used


def segments_of(torch):
    """The allocator's, without its history, which may be long."""
    snapshot = torch.cuda.memory_snapshot
    code = getattr(snapshot, "__code__", None)
    if code is not None and "include_traces" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return snapshot(include_traces=False)
    is_recorded = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    if is_recorded is not None and is_recorded():
        raise Refused("the history of allocations is being recorded")
    return snapshot()


def first_purposes(ranges):
    """(purpose, bytes) of overlapping ranges (begin, end, purpose): where several overlap, the lowest purpose has them."""
    edges = sorted(edge for begin, end, purpose in ranges for edge in ((begin, purpose, 1), (end, purpose, -1)))
    there, last, found = [0] * len(PURPOSES), 0, []
    for at, purpose, change in edges:
        if at > last:
            first = next((place for place, count in enumerate(there) if count), None)
            if first is not None:
                found.append((first, at - last))
            last = at
        there[purpose] += change
    return found


class Tensors:
    """What is read of a tensor, past anything that its class says."""

    def __init__(self, torch):
        base = torch.Tensor
        self.base = base
        self.dispatch = base.__torch_dispatch__
        # data_ptr() makes a copy-on-write tensor's own copy; the other function has the address of the storage, in some versions.
        self.is_lazy_copy = getattr(torch._C, "_is_cow_tensor", lambda _: False)
        self.lazy_address = getattr(torch._C, "_data_address", None)
        self.address, self.offset = base.data_ptr, base.storage_offset
        self.count, self.element_size, self.strides = base.numel, base.element_size, base.stride
        self.shape_of, self.type_of, self.on_gpu = (getattr(base, name).__get__ for name in ("shape", "dtype", "is_cuda"))
        self.leaf_of, self.gradient_of = (getattr(base, name).__get__ for name in ("is_leaf", "grad"))

    def has(self, found):
        return is_kind(type(found), self.base)

    def gradient(self, found):
        return self.gradient_of(found) if self.leaf_of(found) else None

    def is_wrapper(self, found):
        """Whether its class answers for it: it has no memory of its own, but tensors that have."""
        return type(found).__torch_dispatch__ is not self.dispatch

    def parts(self, found):
        try:
            yield object.__getattribute__(found, "_local_tensor")  # a DTensor's, in a slot
        except AttributeError:
            yield from list(object.__getattribute__(found, "__dict__").values())

    def range(self, found):
        """(address, bytes), of which the address is 0 without memory; None if that can't be told, as for sparse ones."""
        try:
            if not self.count(found):
                return 0, 0
            reach = sum((length - 1) * stride for length, stride in zip(self.shape_of(found), self.strides(found)))
            if self.is_lazy_copy(found):
                if self.lazy_address is None or self.offset(found):
                    return None
                return self.lazy_address(found), (1 + reach) * self.element_size(found)
            return self.address(found), (1 + reach) * self.element_size(found)
        except (RuntimeError, TypeError, ValueError) as error:
            if not is_ours(error):
                raise
            return None


class Reading:
    """All of the process's tensors that Python knows, by purpose."""

    def __init__(self, torch, handed):
        self.torch = torch
        self.until = time.monotonic_ns() + MOST_NS
        self.tensors = Tensors(torch)
        self.blocks = Blocks(torch, handed)
        self.counts = {device: [0] * len(PURPOSES) for device in self.blocks.reserved}
        self.unplaced = [0] * len(PURPOSES)  # whose memory can't be told
        self.largest = {}  # by device and purpose: (bytes, text)
        self.holders = []  # (bytes, device, purpose, text), ascending
        self.seen = {}  # id: the object, which can't be freed meanwhile
        self.objects = 0

    def in_time(self):
        if time.monotonic_ns() > self.until:
            raise Unfinished

    def find(self):
        """The process's modules, optimizers and tensors."""
        if type(get_objects) is not type(len):
            raise Refused("gc.get_objects is not the interpreter's")
        kinds = [self.torch.nn.Module, self.torch.optim.Optimizer, self.tensors.base]
        *found, (self.objects, kinds_seen, in_time) = find_objects([kinds, self.until])  # noqa: F821 (program_python.cpp)
        if not in_time:
            raise Unfinished
        # gc.freeze() hides what is older than it: PyTorch's classes are older than any tensor. gc.get_freeze_count() does not tell: from
        # CPython 3.12 on the collector hides objects of its own in the same place.
        if kinds_seen < len(kinds):
            raise Refused("objects are hidden by gc.freeze()")
        return found

    def run(self):
        # In the order of PURPOSES: a tensor counts for the first purpose for which it is added.
        modules, optimizers, others = self.find()
        parameters = []
        for named in (self.members(modules, "_parameters"), self.optimized(optimizers)):
            parameters += [(found, name) for found, name in named if self.add(found, PARAMETERS, name)]
        for found, name in parameters:
            self.add(self.tensors.gradient(found), GRADIENTS, name)
        for holder in optimizers:
            for _, state in items_of(object.__getattribute__(holder, "__dict__").get("state")):
                self.add_state(state, name_of(type(holder)), MOST_NESTED)
        for found, name in self.members(modules, "_buffers"):
            self.add(found, BUFFERS, name)
        for found in others:
            self.add(found, TENSORS, "")

    def members(self, modules, kind):
        for holder in modules:
            for member, found in items_of(object.__getattribute__(holder, "__dict__").get(kind)):
                yield found, f"{name_of(type(holder))}.{member}"

    def optimized(self, optimizers):
        for holder in optimizers:
            for group in list_of(object.__getattribute__(holder, "__dict__").get("param_groups")):
                for found in list_of(dict(items_of(group)).get("params")):
                    yield found, name_of(type(holder))

    def add_state(self, state, name, levels):
        if self.tensors.has(state):
            self.add(state, OPTIMIZER, name)
        elif levels:
            for key, found in items_of(state):
                self.add_state(found, f"{name}.{key}" if type(key) is str else name, levels - 1)
            for found in list_of(state):
                self.add_state(found, name, levels - 1)

    def add(self, found, purpose, name, levels=MOST_NESTED):
        """Returns whether it is a tensor that has not been seen before."""
        if not self.tensors.has(found) or id(found) in self.seen:
            return False
        self.seen[id(found)] = found
        if not len(self.seen) & 0xFF:
            self.in_time()
        if self.tensors.is_wrapper(found):
            if name_of(type(found)) in NO_MEMORY:
                return True
            added = [self.add(part, purpose, name, levels - 1) for part in self.tensors.parts(found)] if levels else []
            # One that is all made of what others have as well is counted with them.
            if not added:
                self.unplaced[purpose] += 1
            return True
        begin_and_size = self.tensors.range(found)
        if begin_and_size is None:
            self.unplaced[purpose] += self.tensors.on_gpu(found)
        elif begin_and_size[0]:
            self.place(*begin_and_size, purpose, found, name)
        return True

    def place(self, begin, size, purpose, found, name):
        device = self.blocks.add(begin, size, purpose)
        if device is None:
            return  # the host's, or another allocator's
        self.counts[device][purpose] += 1
        is_largest = size > self.largest.get((device, purpose), (0,))[0]
        is_holder = len(self.holders) < MOST_HOLDERS or size > self.holders[0][0]
        if is_largest or is_holder:
            text = f"{name} {tuple(self.tensors.shape_of(found))} {self.tensors.type_of(found)}".strip()
            if is_largest:
                self.largest[device, purpose] = (size, text)
            if is_holder:
                bisect.insort(self.holders, (size, device, purpose, text))
                del self.holders[:-MOST_HOLDERS]


class without_overrides:
    """No class of the program answers for its tensors meanwhile."""

    def __init__(self, torch):
        # Nor a mode, from PyTorch 2.0 on.
        self.guard = torch._C.DisableTorchFunction()

    def __enter__(self):
        self.guard.__enter__()

    def __exit__(self, *error):
        self.guard.__exit__(*error)


def device_figures(torch, reading):
    devices = []
    capturing = torch._C._cuda_isCurrentStreamCapturing() if hasattr(torch._C, "_cuda_isCurrentStreamCapturing") else False
    for device, amounts in sorted(reading.blocks.used(reading.in_time).items()):
        stats = torch.cuda.memory_stats(device)
        if stats.get("reserved_bytes.all.current", reading.blocks.reserved[device]) != reading.blocks.reserved[device]:
            raise Refused("the allocator has memory that its snapshot has not")
        figures = {"device": device, "peak_allocated": stats.get("allocated_bytes.all.peak", 0), "peak_reserved": stats.get("reserved_bytes.all.peak", 0)}
        # There is a context on the device, as it has memory. By all processes together.
        free, total = (0, 0) if capturing else torch.cuda.mem_get_info(device)
        # Not so where the allocator has memory of the host's as well.
        figures["in_use"] = total - free if total - free >= sum(amounts) else 0
        amounts[OUTSIDE] = max(total - free - sum(amounts), 0)
        figures["bytes"] = amounts
        figures["tensors"] = reading.counts[device]
        figures["largest"] = [reading.largest.get((device, purpose), (0, "")) for purpose in range(TENSORS + 1)]
        devices.append(figures)
    return devices


def torch_with_memory():
    """PyTorch, if it is loaded and has GPU memory."""
    torch, cuda = sys.modules.get("torch"), sys.modules.get("torch.cuda")
    if torch is None or cuda is None or not all(hasattr(torch, name) for name in ("Tensor", "nn", "optim", "cuda")):
        return None  # it is being imported
    return torch if cuda.is_initialized() else None


def read_all(handed, unknown):
    """What libinject makes memory_purpose.csv of, as a dictionary; None without PyTorch. `handed`: purposes of what libraries were handed, by
    address and bytes; `unknown`: purposes of which that is not known."""
    begin, cpu = time.monotonic_ns(), time.thread_time_ns()
    torch = torch_with_memory()
    if torch is None:
        return None
    result = {}
    with without_overrides(torch):
        reading = Reading(torch, handed)
        try:
            reading.run()
            result["devices"] = device_figures(torch, reading)
            for figures in result["devices"]:
                for purpose in unknown if reading.blocks.has_requests else (WORKSPACES, COMMUNICATION):
                    figures["bytes"][purpose] = None
        except Unfinished:
            result["unfinished"] = True
    result.update(objects=reading.objects, unplaced=reading.unplaced)
    result["holders"] = [{"bytes": size, "device": device, "purpose": PURPOSES[purpose], "tensor": text}
                         for size, device, purpose, text in reversed(reading.holders)]
    result.update(ns=time.monotonic_ns() - begin, cpu_ns=time.thread_time_ns() - cpu)
    return result


def text_of(value):
    """JSON: its module is the program's to import."""
    if isinstance(value, dict):
        return "{" + ",".join(text_of(str(key)) + ":" + text_of(item) for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(text_of, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(letter if letter.isprintable() and letter not in '"\\' and letter.isascii() else f"\\u{min(ord(letter), 0xFFFF):04x}" for letter in value) + '"'
    return {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(int(value))


def is_ours(error):
    """Whether it came from here, and not from a handler or a trace function of the program's: those are given the frame below theirs."""
    at, caller = error.__traceback__, None
    while at is not None:
        for value in at.tb_frame.f_locals.values() if caller is not None else ():
            if value is caller or (type(value) is tuple and any(part is caller for part in value)):
                return False
        at, caller = at.tb_next, at.tb_frame
    return is_kind(type(error), Exception)


def read(handed, unknown):
    """The same as JSON; "" where there is nothing to tell. `handed`: "address,bytes,use;" of each, where `use` counts from WORKSPACES; `unknown`:
    bits of uses."""
    try:
        numbers = [[int(number) for number in each.split(",")] for each in handed.split(";") if each]
        result = read_all({(address, size): WORKSPACES + use for address, size, use in numbers},
                          [purpose for purpose in (WORKSPACES, COMMUNICATION) if unknown >> (purpose - WORKSPACES) & 1])
        return text_of(result) if result else ""
    except BaseException as error:
        if not is_ours(error):
            raise
        return text_of(told_of(error))


def told_of(error):
    return {"error": f"{name_of(type(error))}: {error}"[:200]}


def stack(frame):
    frames = []
    while frame is not None and len(frames) < MOST_FRAMES:
        code = frame.f_code
        frames.append({"file": code.co_filename, "line": frame.f_lineno or 0, "function": getattr(code, "co_qualname", code.co_name)})
        frame = frame.f_back
    return frames


def write(path, text):
    part = path + b".part"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
    os.replace(part, path)


def version_of(torch):
    numbers = str(torch.__version__).split(".")[:2]
    return tuple(int(number) for number in numbers) if all(number.isdecimal() for number in numbers) else (0, 0)


def watch_for_errors(path, process):
    """From now on an allocation that fails for good leaves a file at `path`, the last one if there are several. "yes" once PyTorch has been
    told, "" while it can't be."""
    torch = torch_with_memory()
    if not torch:
        return ""
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    # Those before call observers with the allocator's lock, and have to wait for the interpreter's.
    if not attach or version_of(torch) < (2, 1):
        return "no"
    failures = 0
    read_again = 0.0

    def read_failure(frame, device, requested, allowed, free):
        told = {"version": 1, "failures": failures, "device": device, "requested": requested, "allowed": allowed, "free": free,
                "time_unix_ns": time.time_ns(), "stack": stack(frame)}
        try:
            result = read_all({}, (WORKSPACES, COMMUNICATION)) or {}
        except BaseException as error:
            if not is_ours(error):
                raise
            result = told_of(error)
        write(path, text_of({**told, **result}) + "\n")

    def on_failure(device, requested, allowed, free):
        nonlocal failures, read_again
        if os.getpid() != process:
            return
        failures += 1
        begin = time.monotonic()
        # Programs that look for the largest batch fail often.
        if failures > FIRST_FAILURES and begin < read_again:
            return
        try:
            # Autograd's own threads have no frame.
            frame = sys._getframe().f_back
            unrecorded(lambda: read_failure(frame, device, requested, allowed, free))  # noqa: F821 (program_python.cpp)
        except BaseException as error:
            if not is_ours(error):
                raise
        end = time.monotonic()
        read_again = end + (end - begin) / MOST_SHARE

    try:
        attach(on_failure)
    except BaseException as error:
        # Allocators of another kind have no observers.
        if not is_ours(error):
            raise
        return "no"
    return "yes"
