"""The attention layers of a model: known by their class, by attributes, or because you said so."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from mhattn.core.modules import MultiHeadAttention
from mhattn.variants.latent import LatentAttention

__all__ = ["AttentionLayer", "attention_layers", "register"]

OURS = (MultiHeadAttention, LatentAttention)
# In this order: short names at the end, as layers have other parts called so.
PROJECTIONS = ("o_proj", "out_proj", "c_proj", "dense", "out_lin", "wo", "o", "linear_out", "proj")
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")  # in a layer or its config


class AttentionLayer(NamedTuple):
    """An attention layer of a model.

    Attributes:
        name: where it is in the model, as `torch.nn.Module.get_submodule` takes it.
        module: the layer.
        projection: its output projection, for `mhattn.inside.edit_heads`; None if its name is
            unknown.
        num_heads: H, of the query.
    """

    name: str
    module: nn.Module
    projection: nn.Module | None
    num_heads: int


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    """Find the attention layers of a model.

    A layer of transformers is known by two attributes: its config's ``_attn_implementation``, and
    ``is_causal``. Those of Bloom, MPT, DeBERTa-v2 and others have neither: `mhattn.inside.register`
    makes their classes known.

    Args:
        model: any module; it may be an attention layer itself.

    Returns:
        The layers in the order of `torch.nn.Module.named_modules`. `ablate_heads`, `head_outputs`
        and `patch_heads` number them so, from 0.

    Raises:
        TypeError: model is not a `torch.nn.Module`.
        ValueError: it holds no attention layer of a known kind.

    Examples:
        >>> block = nn.TransformerEncoderLayer(12, 3, batch_first=True)
        >>> encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        >>> [(layer.name, layer.num_heads) for layer in attention_layers(encoder)]
        [('layers.0.self_attn', 3), ('layers.1.self_attn', 3)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    found = known_layers(model)
    if not found:
        kinds = "mhattn, torch.nn.MultiheadAttention or transformers"
        known = "with is_causal and a config with _attn_implementation"
        got = type(model).__name__
        got += "".join(advice(model, found))
        raise ValueError(f"model must hold an attention layer of {kinds} {known}, got {got}")
    return found


def known_layers(model: nn.Module) -> list[AttentionLayer]:
    found = []
    for name, module in model.named_modules():
        if isinstance(module, (*OURS, nn.MultiheadAttention)):
            found.append(AttentionLayer(name, module, module.out_proj, module.num_heads))
        elif kind_of(module) or is_of_transformers(module):
            projection = projection_found(model, name, module)
            found.append(AttentionLayer(name, module, projection, heads_found(name, module)))
    return found


def suspects(model: nn.Module, known: Sequence[AttentionLayer]) -> dict[str, nn.Module]:
    """Innermost modules that are called attention by their class, and are not known."""
    names = [layer.name for layer in known]
    called = {
        name: module
        for name, module in model.named_modules()
        if type(module).__name__.lower().endswith(("attention", "attn"))
        # Without parameters it is a kernel or a dropout, called by the layer that is meant.
        and any(True for _ in module.parameters())
        and not any(inside(name, other) or inside(other, name) for other in names)
    }
    return {
        name: module
        for name, module in called.items()
        if not any(other != name and inside(other, name) for other in called)
    }


def advice(model: nn.Module, known: Sequence[AttentionLayer]) -> list[str]:
    names = sorted({type(module).__name__ for module in suspects(model, known).values()})
    return [f"; if {name} is attention, mhattn.inside.register({name})" for name in names]


def inside(name: str, of: str) -> bool:
    """Whether a module of this name is the other or a part of it."""
    return not of or name == of or name.startswith(f"{of}.")


class Kind(NamedTuple):
    """What `register` was told of a class of layers."""

    num_heads: str | None
    projection: str | None


# One list for the whole process: what is registered once is known wherever layers are looked for.
REGISTERED: dict[type[nn.Module], Kind] = {}


def register(
    kind: type[nn.Module], *, num_heads: str | None = None, projection: str | None = None
) -> None:
    """Make the layers of a class known to `attention_layers`, and so to all that build on it.

    Their maps are those of the one call of `torch.nn.functional.scaled_dot_product_attention`, or
    of the one softmax over the last axis, that a layer makes. Their heads are what the output
    projection is given: ``(B, L, H * D)``, one head beside the other.

    Args:
        kind: the class; its subclasses are known then as well.
        num_heads: where a layer has its number of heads, as ``"n_head"`` or ``"config.n_head"``.
            Default: ``num_heads`` and the like, in the layer or its config.
        projection: where it has its output projection, as ``"c_proj"``. Default: ``out_proj`` and
            the like, in the layer or, as in BERT, beside it.

    Raises:
        TypeError: kind is not a class of `torch.nn.Module`, or num_heads or projection no string.
        ValueError: num_heads or projection is no name, or several with dots between.

    Examples:
        >>> class Own(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.heads, self.qkv, self.out = 3, nn.Linear(12, 36), nn.Linear(12, 12)
        ...     def forward(self, x):  # (B, L, 12)
        ...         qkv = self.qkv(x).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
        ...         y = nn.functional.scaled_dot_product_attention(*qkv)  # (B, 3, L, 4)
        ...         return self.out(y.transpose(1, 2).flatten(2))
        >>> register(Own, num_heads="heads", projection="out")
        >>> [(layer.name, layer.num_heads) for layer in attention_layers(nn.Sequential(Own()))]
        [('0', 3)]
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise TypeError(f"kind must be a class of torch.nn.Module, got {kind!r}")
    for argument, path in {"num_heads": num_heads, "projection": projection}.items():
        rule = f'{argument} must be where the layer has it, as "config.n_head" or "0.out"'
        if not isinstance(path, str | None):
            raise TypeError(f"{rule}, got {path!r}")
        parts = [] if path is None else path.split(".")
        if not all(part.isidentifier() or part.isdigit() for part in parts):
            raise ValueError(f"{rule}, got {path!r}")
    REGISTERED[kind] = Kind(num_heads, projection)


def kind_of(module: nn.Module) -> Kind | None:
    """What is known of its class, or of the nearest that it derives from."""
    return next((REGISTERED[kind] for kind in type(module).__mro__ if kind in REGISTERED), None)


def is_of_transformers(module: nn.Module) -> bool:
    """Its layers hold the model's config, and say whether they are causal."""
    config = getattr(module, "config", None)
    # Both, for every module of a model may hold its config, and only attention says whether it is
    # causal.
    return hasattr(config, "_attn_implementation") and hasattr(module, "is_causal")


def heads_found(name: str, module: nn.Module) -> int:
    kind = kind_of(module)
    if kind and kind.num_heads:
        number: Any = module
        for part in kind.num_heads.split("."):
            number = getattr(number, part, None)
        if not isinstance(number, int):
            rule = f"num_heads must be where {type(module).__name__} has an integer"
            raise ValueError(f"{rule}, got {kind.num_heads!r}, which is {number!r}")
        return number
    for owner in (module, getattr(module, "config", None)):
        for attribute in HEADS:
            if isinstance(number := getattr(owner, attribute, None), int):
                return number
    rule = f"number of heads of {name!r} must be {', '.join(HEADS)} of the module or its config"
    cure = f"mhattn.inside.register({type(module).__name__}, num_heads=...)"
    raise ValueError(f"{rule}, or name it: {cure}, got {module!r}")


def projection_found(model: nn.Module, name: str, module: nn.Module) -> nn.Module | None:
    """A part of the layer, or, as in BERT, of the module beside it."""
    kind = kind_of(module)
    if kind and kind.projection:
        try:
            return module.get_submodule(kind.projection)
        except AttributeError as error:
            got = [part for part, _ in module.named_modules() if part]
            rule = f"projection must be a part of {type(module).__name__}"
            raise ValueError(f"{rule}, one of {got}, got {kind.projection!r}") from error
    parts = {part.lower(): child for part, child in module.named_children()}  # ModernBERT: Wo
    for part in PROJECTIONS:
        if part in parts:
            return parts[part]
    beside = getattr(model.get_submodule(name.rpartition(".")[0]), "output", None)
    projection = getattr(beside, "dense", None)
    return projection if isinstance(projection, nn.Module) else None


def projection_of(layer: AttentionLayer) -> nn.Module:
    if layer.projection is None:
        rule = f"the output projection of {layer.name!r} must be one of {', '.join(PROJECTIONS)}"
        got = [name for name, _ in layer.module.named_children()]
        cure = f"mhattn.inside.register({type(layer.module).__name__}, projection=...)"
        raise ValueError(f"{rule}, got {got}; name yours: {cure}, or pass it to edit_heads")
    return layer.projection
