# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For program.py: trees of modules like PyTorch's, and each module's path in them as libinject reads it."""

import collections
import ctypes
import random
import sys
import threading
import time

import damaged

# The file name by which its frames are recognised.
FILE = "/anywhere/torch/nn/modules/module.py"
SOURCE = """
import collections

class Module:
    kept = dict
    def __init__(self):
        object.__setattr__(self, "training", True)
        object.__setattr__(self, "_parameters", {})
        object.__setattr__(self, "_modules", self.kept())

    def __setattr__(self, name, value):
        modules = self.__dict__.get("_modules")
        if isinstance(value, Module):
            modules[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name):
        if name in self.__dict__["_modules"]:
            return self.__dict__["_modules"][name]
        raise AttributeError(name)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    def _call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = _wrapped_call_impl

    def add_module(self, name, module):
        if not hasattr(self, name) or name in self._modules:
            self._modules[name] = module

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

class Ordered(Module):
    kept = collections.OrderedDict

class ModuleList(Module):
    pass

class Sequential(ModuleList):
    pass

class ModuleDict(Ordered):
    pass

class Slots(Module):
    __slots__ = ("one",)

class Many(Module):
    def __init__(self):
        super().__init__()
        for i in range(40):
            object.__setattr__(self, f"attribute_{i}", i)

class Fresh(Module):
    "Nothing asks for its __dict__: from 3.11 on there is none."
    def __init__(self):
        object.__setattr__(self, "_modules", self.kept())

    def __setattr__(self, name, value):
        self._modules[name] = value

class FreshSlots(Fresh):
    __slots__ = ("one", "two")

class FreshOrdered(Fresh):
    kept = collections.OrderedDict
    def __init__(self):
        for name in ("one", "two", "three"):
            object.__setattr__(self, name, name)
        super().__init__()
        object.__delattr__(self, "two")

class OwnSlot:
    "The only one that has a slot for the dictionary itself."
    __slots__ = ("__dict__",)

class Own(Module, OwnSlot):
    def __init__(self):
        super().__init__()
        self.__dict__ = dict(self.__dict__)

class Hidden(Fresh):
    "What it calls its __dict__ is another one."
    @property
    def __dict__(self):
        return {}
"""
CLASSES = ("Module", "Ordered", "ModuleList", "Sequential", "ModuleDict", "Slots", "Many", "Fresh", "FreshSlots", "FreshOrdered", "Own",
           "Hidden")
NAMES = ("layer", "größe", "名前", "0", "attn", "q_proj", "𝔘", "x" * 90)


def path_of(probe, parent, child, room=512):
    text = ctypes.create_string_buffer(b"~" * room)
    length = probe.frames_module_path(ctypes.c_void_p(id(parent)), ctypes.c_void_p(id(child)), text, room)
    return text.raw[:length].decode() if 0 <= length < room else f"a length of {length}"


def expected_path(parent, child, levels=4):
    """The first of the shortest paths, in the order in which they were added."""
    queue = collections.deque([(parent, "", 0)])
    while queue:
        module, path, level = queue.popleft()
        if level == levels or not hasattr(module, "_modules"):
            continue
        children = list(module._modules.items())
        for name, other in children:
            if other is child:
                return path + name
        queue.extend((other, f"{path}{name}.", level + 1) for name, other in children if other is not None)
    return ""


def run(probe, seed, count, result):
    space = {"__name__": "modules"}
    exec(compile(SOURCE, FILE, "exec"), space)
    classes = [space[name] for name in CLASSES]
    choice = random.Random(seed)
    for number in range(count // 4 + 5):
        modules = [choice.choice(classes)()]
        for _ in range(choice.randint(1, 40)):
            parent, module = choice.choice(modules[-6:]), choice.choice(classes)()
            name = choice.choice(NAMES) + str(choice.randint(0, 9))
            if isinstance(parent, space["ModuleList"]):
                parent.add_module(str(len(parent._modules)), module)
            else:
                setattr(parent, name, module)
            modules.append(module)
        compare_names(probe, modules[0], result)
        for _ in range(choice.randint(0, 6)):
            change(choice, modules, choice.choice(modules), classes)
        for parent in modules:
            for child in choice.sample(modules, min(len(modules), 6)):
                found, expected = path_of(probe, parent, child), expected_path(parent, child)
                result["modules"] += 1
                if found != expected:
                    result["differences"].append(f"tree {number}: {found!r}, not {expected!r}")
    wide_trees(probe, classes[0], result)
    calls(probe, classes[0], result)
    strangers(probe, choice, classes[0](), result)
    rooms(probe, classes[0], result)
    damages(probe, choice, space, count * 20, result)
    threads(probe, choice, space, result)
    torch(probe, result)


def compare_names(probe, root, result):
    """Compares with named_modules(), as long as nothing occurs twice."""
    for path, module in root.named_modules():
        if path and path.count(".") < 4:
            result["named"] += 1
            if path_of(probe, root, module) != path:
                result["differences"].append(f"{path_of(probe, root, module)!r}, not {path!r}")


def change(choice, modules, module, classes):
    """Shared modules, None, removed ones, replaced ones, and rebuilt dictionaries."""
    kind = choice.randint(0, 6)
    children = module._modules
    if kind == 0:
        choice.choice(modules[modules.index(module):]).shared = modules[-1]
    elif kind == 1:
        children["nothing"] = None
    elif kind == 2 and children:
        for name in choice.sample(list(children), choice.randint(1, len(children))):
            del children[name]
    elif kind == 3:
        # A table for keys of all kinds.
        children[7] = None
    elif kind == 4 and children:
        children[choice.choice(list(children))] = choice.choice(classes)()
    elif kind == 5:
        for i in range(choice.choice((5, 30, 300))):
            children[f"passing_{i}"] = module
        for name in [name for name in children if str(name).startswith("passing")]:
            del children[name]
    else:
        object.__setattr__(module, "_modules", type(children)(children))


def wide_trees(probe, module_class, result):
    """The search is bounded: it looks at the children of 4,096 modules."""
    wide = module_class()
    for i in range(2000):
        setattr(wide, str(i), module_class())
    last = wide._modules["1999"]
    last.inner, wide._modules["0"].inner = module_class(), module_class()
    last.inner.inner, wide._modules["0"].inner.inner = module_class(), module_class()
    for path, module in (("1999", last), ("1999.inner", last.inner), ("1999.inner.inner", last.inner.inner)):
        if path_of(probe, wide, module) != path:
            result["differences"].append(f"{path} of 2000 is not found")
    started = time.perf_counter()
    if path_of(probe, wide, module_class()) != "":
        result["differences"].append("one that is not in 2000 is found")
    result["milliseconds_of_2000"] = round((time.perf_counter() - started) * 1000, 2)
    for i in range(2000, 5000):
        setattr(wide, str(i), module_class())
    wide._modules["4999"].inner = module_class()
    for expected, module in (("4999", wide._modules["4999"]), ("0.inner", wide._modules["0"].inner), ("", wide._modules["4999"].inner)):
        if path_of(probe, wide, module) != expected:
            result["differences"].append(f"of 5000: {path_of(probe, wide, module)!r}, not {expected!r}")


def rooms(probe, module_class, result):
    """Every buffer size, for a path whose characters have one to four bytes."""
    outer, names = module_class(), ("größe", "名𝔘", "q")
    inner = outer
    for name in names:
        setattr(inner, name, module_class())
        inner = inner._modules[name]
    path = ".".join(names).encode()
    for room in range(1, len(path) + 3):
        found, expected = path_of(probe, outer, inner, room), path[:room - 1].decode(errors="ignore")
        if found != expected:
            result["differences"].append(f"in {room} bytes: {found!r}, not {expected!r}")


def damages(probe, choice, space, count, result):
    """Whatever the memory contains, nothing crashes, and the result is text."""
    for name, is_asked in ((name, is_asked) for name in CLASSES for is_asked in (False, True)):
        module_class = space[name]
        module, middle, inner = module_class(), module_class(), module_class()
        if is_asked:
            # From 3.11 on this creates the dictionaries.
            vars(module), vars(middle)
        for i in range(choice.choice((1, 3, 20))):
            module._modules[f"first_{i}"] = None
        module._modules["größe"], middle._modules["inner"], middle._modules["名前"] = middle, None, inner
        for names in (module._modules, middle._modules):
            names["gone"] = None
            del names["gone"]
        copy, below = damaged.Module(module), damaged.Module(middle)
        result["with_dictionary" if copy.has_dictionary else "without_dictionary"] += 1
        copy.replace(id(middle), below.module)
        copy.parts += below.parts
        copy.pages += below.pages

        def ask(copy=copy, inner=inner):
            text = ctypes.create_string_buffer(b"~" * 64)
            length = probe.frames_module_path(ctypes.c_void_p(copy.module), ctypes.c_void_p(id(inner)), text, 64)
            return text.raw[:length].decode() if 0 <= length < 64 else length

        if ask() != "größe.名前":
            result["differences"].append(f"the copy of {name} has {ask()!r}")
        for _ in range(count):
            changes = copy.damage(choice)
            result["damaged"] += 1
            said = ask()
            if not isinstance(said, str):
                result["differences"].append(f"of damaged memory {said}")
            result["damaged_and_read"] += said == "größe.名前"
            copy.repair(changes)
        if ask() != "größe.名前":
            result["differences"].append(f"the repaired copy of {name} has {ask()!r}")
        copy.free()


def threads(probe, choice, space, result):
    """Another thread changes the modules that are read. A module that it leaves alone is found all the same."""
    asking, interval = ctypes.CDLL(probe._name), sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    root, going = space["Module"](), [True]
    root.same, root.other = space["Fresh"](), space["Ordered"]()
    root.same.inner = space["Module"]()

    def change_others():
        while going[0]:
            others = root.other._modules
            for i in range(choice.randint(1, 100)):
                others[f"passing_{i}"] = space["Module"]()
            for name in list(others)[::2]:
                del others[name]
            object.__setattr__(root.other, "_modules", type(others)())

    thread = threading.Thread(target=change_others)
    thread.start()
    nobody = space["Module"]()
    for _ in range(1000):
        for expected, module in (("same.inner", root.same.inner), ("", nobody)):
            if path_of(asking, root, module) != expected:
                result["differences"].append(f"while others change: {path_of(asking, root, module)!r}, not {expected!r}")
    going[0] = False
    thread.join()
    sys.setswitchinterval(interval)




def calls(probe, module_class, result):
    """Which frames are calls of modules."""
    called = (ctypes.c_void_p * 64)()

    class Inner(module_class):
        def forward(self, value):
            count = probe.frames_called_modules(called, 64)
            return [called[i] for i in range(count)]

    class Outer(module_class):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, value):
            return self.inner(value)

    outer = Outer()
    if outer(1) != [id(outer.inner), id(outer)]:
        result["differences"].append("a module's call is another's")
    space = {"__name__": "other"}
    exec(compile(SOURCE, FILE.replace("torch", "other"), "exec"), space)

    class Other(space["Module"]):
        forward = Inner.forward

    if Other()(1) != []:
        result["differences"].append("the call of something else is a module's")


def strangers(probe, choice, module, result):
    """Objects that are not modules, and memory that is no object at all, have no path."""
    class Empty:
        pass

    class Odd:
        _modules = {"class": module}

    class Own(dict):
        pass

    odd = [None, 1, "text", b"bytes", (), [module], {"_modules": {"a": module}}, Empty(), Odd(), Own(_modules={"a": module}), sys, len, run, Empty,
           type("Text", (), {})()]
    odd[-1]._modules = "no dictionary"
    for one in odd:
        if path_of(probe, one, module) != "":
            result["differences"].append(f"{one!r} has a module")
    for _ in range(2000):
        # Any memory: part of an object, or nowhere.
        address = choice.choice((id(choice.choice(odd)) + 8 * choice.randint(-4, 40), choice.getrandbits(47) & ~7, choice.getrandbits(64)))
        text = ctypes.create_string_buffer(64)
        probe.frames_module_path(ctypes.c_void_p(address), ctypes.c_void_p(id(module)), text, 64)
        result["strangers"] += 1


def torch(probe, result):
    """The real PyTorch, if there is one."""
    try:
        import torch as real
    except ImportError:
        return
    nn = real.nn
    block = nn.ModuleDict({"attn": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), "mlp": nn.Sequential(nn.Linear(2, 2), nn.ReLU())})
    model = nn.Sequential(nn.Embedding(2, 2), nn.ModuleList([block, nn.TransformerEncoderLayer(4, 2)]))
    for path, module in model.named_modules():
        if path and path.count(".") < 4:
            result["torch"] += 1
            if path_of(probe, model, module) != path:
                result["differences"].append(f"torch: {path_of(probe, model, module)!r}, not {path!r}")
    calls(probe, nn.Module, result)
