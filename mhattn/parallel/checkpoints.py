"""Files of a layer that is shared out, which any number of processes can read.

`torch.distributed.checkpoint` writes each share once, by its place in the whole, and reads what a
process needs. Ours: heads that were copied are written once, the optimizer's numbers go with their
parameters, and a checkpoint has its name only when all of it is written.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from mhattn.core.modules import MultiHeadAttention
from mhattn.parallel.heads import copies_of
from mhattn.parallel.local import agree, note

__all__ = ["load_shares", "save_shares"]

LIST = "files.json"  # what the folder holds, written last


# --8<-- [start:save_shares]
def save_shares(
    folder: str | Path, layer: MultiHeadAttention, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Write a layer, whole or shared out, and its optimizer. All processes call it.

    The files are written to a folder beside it, which gets its name at the end: whatever stops in
    between, no half of a checkpoint has that name.

    Args:
        folder: does not exist yet; the same for all processes, which see the same disk.
        layer: as it is, or as `mhattn.parallel.share_heads` has left it.
        optimizer: of the layer's parameters.

    Raises:
        TypeError: layer is not a `MultiHeadAttention`.
        ValueError: the folder exists, or is another on another process.

    Examples:
        >>> import tempfile
        >>> layer, other = (MultiHeadAttention(embed_dim=8, num_heads=4) for _ in range(2))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     save_shares(Path(place, "step-1"), layer)
        ...     load_shares(Path(place, "step-1"), other)
        >>> torch.equal(layer.q_proj.weight, other.q_proj.weight)
        True
    """
    folder = Path(folder)
    problem = ValueError(f"folder must not exist, got {folder}") if folder.exists() else None
    agree("save a checkpoint", {"folder": str(folder)}, problem=problem)
    state = whole_heads(layer, optimizer)
    unfinished = folder.with_name(folder.name + ".unfinished")
    if is_first():
        shutil.rmtree(unfinished, ignore_errors=True)  # of a run that was stopped
        unfinished.mkdir(parents=True)
    agree("save a checkpoint", {})  # wait for the folder
    note("save a checkpoint: write")
    with alone_in_silence():
        save(state, checkpoint_id=unfinished, no_dist=not dist.is_initialized())
    if is_first():
        note("save a checkpoint: finish")
        text = json.dumps({file.name: digest(file) for file in sorted(unfinished.iterdir())})
        (unfinished / LIST).write_text(text, encoding="utf-8")
        os.replace(unfinished, folder)
    agree("save a checkpoint", {})  # it is there for all of them
    # --8<-- [end:save_shares]


def load_shares(
    folder: str | Path, layer: MultiHeadAttention, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Read what `save_shares` wrote, on this number of processes. All of them call it.

    Args:
        folder: of the checkpoint.
        layer: of the same sizes, whole or shared out; its weights are replaced.
        optimizer: of the layer's parameters; its numbers are replaced.

    Raises:
        TypeError: layer is not a `MultiHeadAttention`.
        ValueError: there is no finished checkpoint in the folder, a file was cut off or changed, or
            it holds a layer of other sizes, or another optimizer's numbers.

    Examples:
        >>> try:
        ...     load_shares("nowhere", MultiHeadAttention(embed_dim=8, num_heads=4))
        ... except ValueError as error:
        ...     print(error)
        folder must hold a finished checkpoint, got nowhere without files.json
    """
    folder = Path(folder)
    problem = unfinished_or_changed(folder)
    agree("read a checkpoint", {"folder": str(folder)}, problem=problem)
    held = FileSystemReader(folder).read_metadata().state_dict_metadata
    if optimizer is not None:
        make_room(held, layer, optimizer)
    state = whole_heads(layer, optimizer)
    agree("read a checkpoint", {}, problem=other_sizes(held, state))
    note("read a checkpoint")
    with alone_in_silence():
        load(state, checkpoint_id=folder, no_dist=not dist.is_initialized())
    with torch.no_grad():
        for name, own in numbers(layer, optimizer).items():
            take_over(own, state[name], copies_of(layer, name.split(".")[1]))


def unfinished_or_changed(folder: Path) -> ValueError | None:
    """What keeps this folder from being read, if something does."""
    if not (folder / LIST).exists():
        rule = "folder must hold a finished checkpoint"
        return ValueError(f"{rule}, got {folder} without {LIST}")
    listed = json.loads((folder / LIST).read_text(encoding="utf-8"))
    for name, expected in listed.items():
        if not (folder / name).exists() or digest(folder / name) != expected:
            return ValueError(f"folder must hold the files that were written, got another {name}")
    return None


def other_sizes(held: dict[str, Any], state: dict[str, Any]) -> ValueError | None:
    """The first tensor that the checkpoint has not, or in another size."""
    for name, x in state.items():
        size = getattr(held.get(name), "size", None)
        if size is None or tuple(size) != tuple(x.shape):
            got = "none" if size is None else str(tuple(size))
            return ValueError(f"folder must hold {name} of shape {tuple(x.shape)}, got {got}")
    return None


def make_room(held: dict[str, Any], layer: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """An optimizer that has not stepped yet holds no numbers: zeros, for those of the file."""
    parameters = dict(layer.named_parameters())
    for name, about in held.items():
        first, _, rest = name.partition(".")
        own, _, kind = rest.rpartition(".")
        if (
            first == "optimizer"
            and own in parameters
            and kind not in optimizer.state[parameters[own]]
        ):
            like = parameters[own].detach()
            zeros = torch.zeros_like(like) if len(about.size) else torch.zeros(())
            optimizer.state[parameters[own]][kind] = zeros


# --8<-- [start:whole_heads]
def numbers(layer: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Every tensor by a name that says nothing of processes."""
    if not isinstance(layer, MultiHeadAttention):
        raise TypeError(f"layer must be a MultiHeadAttention, got {type(layer).__name__}")
    found: dict[str, Any] = {}
    for name, parameter in layer.named_parameters():
        found[f"layer.{name}"] = parameter
        for kind, x in (optimizer.state[parameter] if optimizer else {}).items():
            if isinstance(x, Tensor):
                found[f"optimizer.{name}.{kind}"] = x
    return found


def whole_heads(layer: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """The same, with each head of keys once, however many processes have a copy of it."""
    found = {}
    for name, x in numbers(layer, optimizer).items():
        copies = copies_of(layer, name.split(".")[1])
        if copies > 1 and x.dim():
            heads = x.full_tensor().detach().unflatten(0, (-1, copies, layer.head_dim))
            x = heads[:, 0].flatten(0, 1).clone()
        found[name] = x.detach()
    return found
    # --8<-- [end:whole_heads]


def take_over(own: Any, read: Tensor, copies: int) -> None:
    """Put what was read into this process's tensor; copied heads are cut out of the whole."""
    if copies > 1 and own.dim():
        mesh = own.device_mesh
        local = own.to_local()
        head = mesh.get_local_rank() // copies
        local.copy_(read.unflatten(0, (-1, len(local)))[head])
    elif own is not read:
        own.copy_(read)


@contextmanager
def alone_in_silence() -> Iterator[None]:
    """PyTorch warns a process that saves alone; ours may."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable")
        yield


def is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
