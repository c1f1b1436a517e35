# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For modules.py and stacks.py: copies of modules and of stacks, with everything that is read of them, in memory that may then be damaged.
Each part ends where its page does, and the next page can't be read: code that reads too far does not survive it (or, if the kernel does the
reading, gets nothing)."""

import ctypes
import mmap
import sys

PAGE = mmap.PAGESIZE
WORD = 8
BEFORE = 4 * WORD  # what precedes an object: the collector's links, the dictionary or the values
MINOR = sys.version_info[1]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def word_at(address):
    return ctypes.c_uint64.from_address(address).value


def byte_at(address):
    return ctypes.c_uint8.from_address(address).value


def size_of_keys(keys):
    """PyDictKeysObject with its indices and entries."""
    if MINOR == 10:
        size = word_at(keys + 8)
        return 40 + size * (1 if size <= 0xFF else 2 if size <= 0xFFFF else 4) + 2 * size // 3 * 24
    return 32 + (1 << byte_at(keys + 9)) + (2 << byte_at(keys + 8)) // 3 * (16 if byte_at(keys + 10) else 24)


class Copy:
    """Parts that point to each other."""

    def __init__(self):
        self.pages, self.parts = [], []

    def add(self, address, size, before):
        """Adds a part that ends where a page does."""
        size = (size + before + WORD - 1) // WORD * WORD
        room = (size + PAGE - 1) // PAGE * PAGE
        pages = libc.mmap(None, room + PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        libc.mprotect(pages + room, PAGE, 0)
        place = pages + room - size
        ctypes.memmove(place, address - before, size)
        self.pages.append((pages, room + PAGE))
        self.parts.append((place, size))
        return place + before

    def point(self, copy, original, old, new):
        """Replaces the first word that has the old address by the new one."""
        for offset in range(0, 2048, WORD):
            if word_at(original + offset) == old:
                ctypes.c_uint64.from_address(copy + offset).value = new
                return
        raise LookupError

    def replace(self, old, new):
        for place, size in self.parts:
            for address in range(place, place + size, WORD):
                if word_at(address) == old:
                    ctypes.c_uint64.from_address(address).value = new

    def damage(self, choice):
        """Replaces some bytes or words by others. Returns what restores them."""
        changes = []
        for _ in range(choice.choice((1, 1, 1, 2, 3, 8))):
            place, size = choice.choice(self.parts)
            # Most of a type is not read; damage the part that is read more often.
            address = place + choice.randrange(0, size if size < 512 else choice.choice((48, 200, size)), WORD)
            if choice.random() < 0.3:
                address += choice.randrange(WORD)
                changes.append((ctypes.c_uint8, address, byte_at(address)))
                ctypes.c_uint8.from_address(address).value = choice.choice((0, 1, 2, 3, 0x20, 0x7F, 0xFF, choice.randrange(256)))
                continue
            other, room = choice.choice(self.parts)
            nowhere, length = choice.choice(self.pages)
            changes.append((ctypes.c_uint64, address, word_at(address)))
            ctypes.c_uint64.from_address(address).value = choice.choice((
                0, 1, 8, 2**63, 2**64 - 1, 2**62, 1 << 20, choice.getrandbits(64), choice.getrandbits(47) & ~7, choice.getrandbits(16),
                word_at(address) + choice.choice((-8, 8, 1, 64)) & (2**64 - 1), other, other + choice.randrange(0, room, WORD),
                nowhere + length - PAGE, nowhere + length - PAGE - 8, nowhere + length - PAGE + 8, nowhere + length - 8))
        return changes

    @staticmethod
    def repair(changes):
        for kind, address, value in reversed(changes):
            kind.from_address(address).value = value

    def free(self):
        for pages, size in self.pages:
            libc.munmap(pages, size)


class Module(Copy):
    """A copy of a module. Its children are the module's own, its type and everything else are copied."""

    def __init__(self, module):
        super().__init__()
        kind = type(module)
        new_type = self.add(id(kind), type.__basicsize__, 0)
        cached = word_at(id(kind) + (872 if MINOR < 12 else 880))
        if MINOR >= 11:
            self.point(new_type, id(kind), cached, self.add(cached, size_of_keys(cached), 0))
        inline = WORD + 31 * WORD if MINOR >= 13 else 0
        self.module = self.add(id(module), kind.__basicsize__ + inline, BEFORE)
        self.point(self.module - BEFORE, id(module) - BEFORE, id(kind), new_type)
        # The dictionary or, if there is none, the values.
        place = kind.__dictoffset__ if MINOR == 10 else -3 * WORD
        attributes = word_at(id(module) + place)
        self.has_dictionary = attributes != 0 and attributes & 1 == 0
        if attributes & 1:
            values = self.add(attributes + 1, word_at(cached + 24) * WORD, 0)
            ctypes.c_uint64.from_address(self.module + place).value = values - 1
        elif attributes != 0:
            ctypes.c_uint64.from_address(self.module + place).value = self.add_dict(attributes)
        elif MINOR == 11:
            values = self.add(word_at(id(module) - 4 * WORD), word_at(cached + 24) * WORD, 0)
            ctypes.c_uint64.from_address(self.module - 4 * WORD).value = values
        # In place of _modules, wherever it is kept.
        modules = object.__getattribute__(module, "_modules")
        self.replace(id(modules), self.add_dict(id(modules)))
        for name in modules:
            self.replace(id(name), self.add(id(name), sys.getsizeof(name), 0))

    def add_dict(self, address):
        keys, values = word_at(address + 32), word_at(address + 40)
        new = self.add(address, dict.__basicsize__, 0)
        ctypes.c_uint64.from_address(new + 32).value = self.add(keys, size_of_keys(keys), 0)
        if values != 0:
            count = word_at(keys + (32 if MINOR == 10 else 24))
            before = WORD if MINOR >= 13 else 0
            ctypes.c_uint64.from_address(new + 40).value = self.add(values, before + count * WORD, 0)
        return new


class Layout(ctypes.Structure):
    """As filled by stacks_layout()."""
    _fields_ = [(name, ctypes.c_int) for name in ("current_frame", "cframe_frame", "caller", "code", "instruction", "owner", "instructions",
                                                  "first_line", "file", "name", "qualified_name", "line_table", "first_traceable")]

    def get(self, name):
        offset = getattr(self, name)
        return -WORD if offset == 0xFFFF else offset


class Stack(Copy):
    """A copy of a thread's stack, which must not change meanwhile."""

    def __init__(self, state, layout):
        super().__init__()
        self.copied = {}
        self.layout = layout
        self.state = self.add(state, layout.current_frame + WORD, 0)
        place = self.state + layout.current_frame
        if layout.get("cframe_frame") >= 0:
            place = self.follow(place, layout.cframe_frame + WORD) + layout.cframe_frame
        frame_size = WORD + max(map(layout.get, ("caller", "code", "instruction", "owner")))
        while word_at(place) != 0:
            frame = self.follow(place, frame_size)
            self.copy_code(frame)
            place = frame + layout.caller
        self.last_caller = place

    def follow(self, place, size):
        """Copies what a part points to, and makes it point to the copy."""
        old = word_at(place)
        if old not in self.copied:
            self.copied[old] = self.add(old, size, 0)
        ctypes.c_uint64.from_address(place).value = self.copied[old]
        return self.copied[old]

    def copy_code(self, frame):
        layout, place = self.layout, frame + self.layout.code
        old = word_at(place)
        tag = old & 7
        if word_at((old ^ tag) + 8) != id(type(self.copy_code.__code__)):
            return
        ctypes.c_uint64.from_address(place).value = old ^ tag
        is_new = old ^ tag not in self.copied
        code = self.follow(place, WORD + max(map(layout.get, ("file", "name", "qualified_name", "line_table", "first_traceable"))))
        ctypes.c_uint64.from_address(place).value = code | tag
        if MINOR > 10:
            ctypes.c_uint64.from_address(frame + layout.instruction).value += code - (old ^ tag)
        for member in ("file", "name", "qualified_name", "line_table"):
            if is_new and layout.get(member) >= 0:
                object_there = ctypes.cast(word_at(code + layout.get(member)), ctypes.py_object).value
                self.follow(code + layout.get(member), sys.getsizeof(object_there))
