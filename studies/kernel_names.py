# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Short names of kernels for tables: the part of a name that identifies the kernel."""

import itertools
import re

from gputest import demangle

COLUMNS = 72

# Generic templates: the arguments tell what they run.
GENERIC = re.compile(r"(?:Kernel2?|device_kernel|cutlass_kernel|(?:vectorized_|unrolled_|legacy_)?elementwise_kernel\w*|reduce_kernel"
                     r"|multi_tensor_apply_kernel)$")
# Identified by its name, except for functors that wrap another one.
WHAT = re.compile(r"\b((?!(?:AUnary|BUnary|Unary|Binary|Compare|Foreach|ReduceOp|gpu_kernel_impl)\w*\b)\w*(?:[Ff]unctor\w*|Ops?|_cuda|"
                  r"_kernel_impl|KernelImpl)|launch_\w+|cutlass_\w+|\w*FlashAttn\w+|plus|minus|multiplies|divides)\b(?!::)")
NAMESPACES = re.compile(r"(?:\w+::)+(?!kernel$)")
# In names of cuBLAS and cuDNN: how they are built and launched, except for types, layouts and the tile.
BUILT = re.compile(r"_execute_\w+|__5x_\w+|_implicit_gemm|_warp(?:group)?size\d+x\d+x\d+|_cgasize\d+x\d+x\d+|_stage\d+|_g1(?=_|$)")
GRADIENT = re.compile(r"Conv[23]d(?:Fprop|Dgrad|Wgrad)")


def nesting(text):
    """Nesting depth of each character in template arguments and parameters; a bracket has the depth outside of it."""
    depths = list(itertools.accumulate((character in "<(") - (character in ">)") for character in text))
    return [depth - (character in "<(") for depth, character in zip(depths, text)]


def outside_of_brackets(text, wanted):
    """Positions of these characters outside of template arguments and parameters."""
    return [at for at, (deep, character) in enumerate(zip(nesting(text), text)) if not deep and character in wanted]


def split_name(text):
    """(name without return type and namespaces, template arguments and what follows) of a demangled name."""
    text = text.replace("(anonymous namespace)::", "")
    text = text[:next(iter(outside_of_brackets(text, "(")), len(text))]
    text = text[max(outside_of_brackets(text, " "), default=-1) + 1:]
    begin = next(iter(outside_of_brackets(text, "<")), len(text))
    return NAMESPACES.sub("", text[:begin]), text[begin + 1:]


def first_class(mangled):
    """The first class in a name that no demangler accepts: each identifier is preceded by its length."""
    at = 0
    while number := re.compile(r"\d+").search(mangled, at):
        at = number.end() + int(number[0])
        word = mangled[number.end():at]
        if word[:1].isupper() and not GENERIC.match(word):
            return word
    return None


def last_type(arguments):
    """The last class among template arguments; empty if they are only numbers and built-in types."""
    end = next((at for at, deep in enumerate(nesting(arguments)) if deep < 0), len(arguments))
    commas = [-1, *(at for at in outside_of_brackets(arguments[:end], ",")), end]
    types = [split_name(arguments[begin + 1:until].strip())[0] for begin, until in zip(commas, commas[1:])]
    return next((found for found in reversed(types) if found[:1].isupper()), "")


def essence(name):
    name = demangle(name)
    if name.startswith("_Z"):
        gradient = GRADIENT.search(name)
        return " ".join(filter(None, [first_class(name), gradient and gradient[0]])) or name
    name, arguments = split_name(name)
    if GENERIC.match(name):
        what = WHAT.search(arguments)
        what = what[1] if what else last_type(arguments)
        if not what:
            return name
        return what if what.startswith("cutlass_") else f"{name}<{what}>"
    return BUILT.sub("", name)


def short_name(name):
    """The part of a kernel's name that identifies it."""
    name = essence(name)
    if len(name) > COLUMNS:
        tail = (COLUMNS - 3) // 3
        name = name[:COLUMNS - 3 - tail] + "..." + name[-tail:]
    return name
