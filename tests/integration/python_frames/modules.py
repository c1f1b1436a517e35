# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""For program.py: trees of modules like PyTorch's, and where each module stands in them as libinject reads it."""

import collections
import ctypes
import random
import sys

# The file's name is what its frames are known by.
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

class Ordered(Module):
    kept = collections.OrderedDict

class Slots(Module):
    __slots__ = ("one",)

class Many(Module):
    def __init__(self):
        super().__init__()
        for i in range(40):
            object.__setattr__(self, f"attribute_{i}", i)
"""
NAMES = ("layer", "größe", "名前", "0", "attn", "q_proj", "𝔘", "x" * 90)


def path_of(probe, parent, child, room=512):
    text = ctypes.create_string_buffer(b"~" * room)
    length = probe.frames_module_path(ctypes.c_void_p(id(parent)), ctypes.c_void_p(id(child)), text, room)
    return text.raw[:length].decode()


def expected_path(parent, child, levels=4):
    """The first of the shortest, in the order in which they were added."""
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
    classes = [space[name] for name in ("Module", "Ordered", "Slots", "Many")]
    choice = random.Random(seed)
    for number in range(count // 4 + 5):
        modules = [choice.choice(classes)()]
        for _ in range(choice.randint(1, 40)):
            parent, module = choice.choice(modules[-6:]), choice.choice(classes)()
            setattr(parent, choice.choice(NAMES) + str(choice.randint(0, 9)), module)
            modules.append(module)
        for _ in range(choice.randint(0, 6)):
            module = choice.choice(modules)
            # Shared ones, none, some that have gone, and dictionaries that were made anew.
            kind = choice.randint(0, 3)
            if kind == 0:
                setattr(choice.choice(modules[modules.index(module):]), "shared", modules[-1])
            elif kind == 1:
                module._modules["nothing"] = None
            elif kind == 2 and module._modules:
                del module._modules[choice.choice(list(module._modules))]
            else:
                object.__setattr__(module, "_modules", type(module._modules)(module._modules))
        for parent in modules:
            for child in choice.sample(modules, min(len(modules), 6)):
                found, expected = path_of(probe, parent, child), expected_path(parent, child)
                result["modules"] += 1
                if found != expected:
                    result["differences"].append(f"tree {number}: {found!r}, not {expected!r}")
    wide = classes[0]()
    for i in range(2000):
        setattr(wide, str(i), classes[0]())
    if path_of(probe, wide, wide._modules["1999"]) != "1999":
        result["differences"].append("the last of 2000 is not found")
    calls(probe, classes[0], result)
    strangers(probe, choice, classes[0](), result)
    torch(probe, result)


def calls(probe, module_class, result):
    """Which frames are modules' calls."""
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


def strangers(probe, choice, module, result):
    """What is no module, and what is no object at all, has no path."""
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
    """The real one, where there is one."""
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
