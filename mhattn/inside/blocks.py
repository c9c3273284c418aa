"""The blocks of a model, and where each of them adds what its MLP gives to the stream.

No two libraries call an MLP the same, and some have no module for it. But each block has sums, and
`mhattn.inside.stream` follows them: the last one adds what the MLP gives.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mhattn.inside.calls import memory_of
from mhattn.inside.layers import AttentionLayer, attention_layers
from mhattn.inside.stream import (
    IN_PLACE,
    SUMS,
    Block,
    Operands,
    Seen,
    block_of,
    tensors,
    watch_layer,
)

__all__: list[str] = []

Positions = slice | Sequence[int]
Edit = Callable[[Tensor], Tensor]


class Place(NamedTuple):
    """A block: its name in the model, and its attention layers in their order."""

    name: str
    layers: list[AttentionLayer]

    @property
    def length_axis(self) -> int:
        """The axis of positions of its stream: PyTorch's layers may have it in front."""
        module = self.layers[0].module
        return 0 if isinstance(module, nn.MultiheadAttention) and not module.batch_first else 1


def blocks_of(model: nn.Module) -> list[Place]:
    found: dict[str, list[AttentionLayer]] = {}
    layers = attention_layers(model)
    for layer in layers:
        name = block_of(model, layer.name)
        if name is not None:
            found.setdefault(name, []).append(layer)
    if not found:
        rule = f"{layers[0].name!r} must be in an item of a ModuleList or Sequential, a block"
        raise ValueError(f"{rule}, got {type(model).__name__}")
    return [Place(name, layers) for name, layers in found.items()]


def numbers_of(blocks: Sequence[int | str], number: int) -> list[int]:
    """Blocks from 0, of numbers that count so or of names, as on a map, that count from 1."""
    found: list[int] = []
    for given in blocks if not isinstance(blocks, str) else [blocks]:
        is_name = isinstance(given, str) and given.isdecimal() and given[0] != "0"
        if not is_name and (isinstance(given, bool) or not isinstance(given, int)):
            rule = 'blocks must be numbers, from 0, or names such as "24", from 1'
            raise TypeError(f"{rule}, got {given!r}")
        place = int(given) - is_name
        if not 0 <= place < number:
            raise ValueError(f"blocks must be of {number}, from 0, got {given!r}")
        if place in found:
            raise ValueError(f"blocks must not be named twice, got {given!r}")
        found.append(place)
    return found


def put(given: Tensor, source: Tensor, positions: Positions, axis: int, what: str) -> Tensor:
    """A copy with what the source has at these positions of an axis."""
    if given.shape != source.shape:
        rule = f"{what} must be {tuple(given.shape)}, as in this call"
        raise ValueError(f"{rule}, got {tuple(source.shape)}")
    check_positions(positions, given.shape[axis])
    index = (*[slice(None)] * axis, positions)
    changed = given.clone()
    changed[index] = source[index].to(given)
    return changed


def check_positions(positions: Positions, length: int) -> None:
    if isinstance(positions, slice):
        return
    if isinstance(positions, int):
        raise TypeError(f"positions must be a slice or a list of integers, got {positions!r}")
    for position in positions:
        if not -length <= position < length:
            raise ValueError(f"positions must be in [{-length}, {length}), got {position}")


class Adding(Block):
    """A block while it runs, of which each sum is known: whether the MLP's output enters it."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.edit: Edit | None = None
        self.attention: dict[int, Tensor] = {}  # what attention gave, under its memory
        self.times = 0  # that the MLP was added in this call of the block
        self.parts = [layer.module for layer in place.layers]
        self.parts += [layer.projection for layer in place.layers if layer.projection is not None]

    def hooks(self, module: nn.Module) -> list[Any]:
        def begin(module: nn.Module, args: Any) -> None:
            self.attention, self.times = {}, 0

        def end(module: nn.Module, args: Any, result: Any) -> None:
            if self.edit is not None and self.times != 1:
                rule = f"the MLP of {self.place.name!r} must be added once, behind attention"
                raise ValueError(f"{rule}, got {self.times} such sums")

        first = module.register_forward_pre_hook(begin)
        return [first, *super().hooks(module), module.register_forward_hook(end)]

    def passed(self, module: nn.Module, args: Any, result: Any) -> None:
        super().passed(module, args, result)
        if module in self.parts:
            given = result[0] if isinstance(result, tuple | list) else result
            self.attention[memory_of(given)] = given

    def mlp_among(self, terms: Sequence[Tensor]) -> int | None:
        """Which of two terms is what the MLP gives, if one is."""
        if terms[0].shape != terms[1].shape or not self.open:
            return None
        places = [memory_of(x) for x in terms]
        for known in (self.kept, self.normed):
            stream = [i for i, place in enumerate(places) if place in known]
            if stream:  # the first sum of each attention layer adds what that gives
                return 1 - stream[0] if all(seen.sums for seen in self.open) else None
        beside = [i for i, place in enumerate(places) if place in self.attention]
        # Where both are added at once, as in GPT-NeoX: attention and MLP first, the stream then.
        return 1 - beside[0] if len(beside) == 1 else None

    def edited(self, func: Any, args: Any) -> Any:
        terms = tensors(args[:2])
        place = self.mlp_among(terms)
        if self.edit is None or place is None:
            return args
        self.times += 1
        whole = terms[place]
        assert self.first is not None  # since the block runs
        flat = whole.ndim < self.first.ndim and whole.numel() == self.first.numel()
        changed = self.edit(whole.view_as(self.first) if flat else whole).view_as(whole)
        if place == 0 and func in IN_PLACE:
            whole.copy_(changed)
            return args
        return [changed if i == place else x for i, x in enumerate(args)]


class Sums(Operands):
    """While it is entered, each sum of a running block goes to that block."""

    def __init__(self, adding: Sequence[Adding]) -> None:
        super().__init__(adding)
        self.adding = adding

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in SUMS:
            return func(*args, **kwargs)
        if len(tensors(args[:2])) == 2:
            for block in self.adding:
                if block.running:
                    args = block.edited(func, args)
        return self.sum(func, args, kwargs)


@contextmanager
def followed(model: nn.Module, blocks: Sequence[Adding]) -> Iterator[None]:
    """While it is entered, these blocks see their sums, and edit what their MLPs give."""
    found: list[Seen] = []
    with ExitStack() as stack:
        mode = Sums(blocks)
        for block in blocks:
            for handle in block.hooks(model.get_submodule(block.place.name)):
                stack.callback(handle.remove)
            for layer in block.place.layers:
                watch_layer(stack, layer, block, mode, found)
        stack.enter_context(mode)
        yield


def same(x: Tensor, y: Tensor) -> bool:
    """Equal, also where rows of padding are no numbers."""
    return x.shape == y.shape and torch.allclose(x, y, rtol=0, atol=0, equal_nan=True)
