"""What a file of llama.cpp's format, GGUF, holds: fields under names, and tensors.

The package gguf reads both as well, but as arrays that stay in the file, two for each of a
tokenizer's 98,000 strings: that took three quarters of the time in which a model is loaded. Here
the bytes are read once, and strings are cut from them. What a block of few bits means, gguf knows.
"""

from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mhattn.models.encoder import Fields

__all__: list[str] = []  # it serves load_gguf alone

STRING, ARRAY = 8, 9  # kinds of values; the others are numbers, of these types:
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
ALIGNMENT = 32  # where the file names no other, tensors begin at multiples of it


def read_gguf(path: str | PathLike[str]) -> tuple[dict[str, Any], Iterator[tuple[str, Tensor]]]:
    """Read a file's fields, and its tensors one after the other.

    Args:
        path: of a GGUF file whose numbers are little-endian.

    Returns:
        The fields by their names: numbers, strings, lists of these. And the tensors with their
        names, computed back to float32 when they are asked for.

    Raises:
        ValueError: the file is no such file, ends too early, or has a field of an unknown kind.
        FileNotFoundError: there is no such file.
    """
    with open(path, "rb") as opened:
        file = Fields(opened.read(), path)
    kind, version = file.take("4sI")
    if kind != b"GGUF" or version not in (2, 3):
        rule = f"{path} must begin with b'GGUF' and version 2 or 3, little-endian"
        raise ValueError(f"{rule}, got {kind!r} and {version}")
    tensor_count, field_count = file.take("2Q")
    fields = {}
    for _ in range(field_count):
        name = string(file)
        fields[name] = value(file, *file.take("I"))
    return fields, tensors_of(file, tensor_count, fields.get("general.alignment", ALIGNMENT))


def tensors_of(file: Fields, count: int, alignment: int) -> Iterator[tuple[str, Tensor]]:
    """Where each tensor lies stands first; their bytes follow, behind the last of these lines."""
    from gguf import GGMLQuantizationType, dequantize
    from gguf.quants import quant_shape_to_byte_shape

    places = []
    for _ in range(count):
        name = string(file)
        (axes,) = file.take("I")
        *sizes, kind, start = file.take(f"{axes}QIQ")  # the last axis first
        places.append((name, sizes[::-1], GGMLQuantizationType(kind), start))
    begin = file.start + -file.start % alignment
    for name, shape, kind, start in places:
        in_bytes = quant_shape_to_byte_shape(shape, kind)
        stored = np.frombuffer(file.cut(int(np.prod(in_bytes)), begin + start), dtype=np.uint8)
        yield name, torch.tensor(dequantize(stored.reshape(in_bytes), kind))


def value(file: Fields, kind: int) -> Any:
    """The next value: a number, a string, or a list of one kind."""
    if kind == STRING:
        return string(file)
    if kind == ARRAY:
        kind, count = file.take("IQ")
        if kind in NUMBERS:  # all of them at once
            return list(file.take(f"{count}{NUMBERS[kind]}"))
        return [value(file, kind) for _ in range(count)]
    if kind not in NUMBERS:
        known = sorted([*NUMBERS, STRING, ARRAY])
        raise ValueError(f"the kind of a field in {file.path} must be of {known}, got {kind}")
    return file.take(NUMBERS[kind])[0]


def string(file: Fields) -> str:
    (length,) = file.take("Q")
    return file.cut(length).decode()
