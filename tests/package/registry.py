"""What every layer owes its user: one table of all that attends, and of what each can do.

A new layer, function that attends, or position enters `TABLE` with one `Entry`: how it is built,
its formula, and what it can't do. `test_registry.py` holds each entry to every duty, and says who
is missing; test_layers.py, test_compile.py and test_types.py take their layers from here. What an
entry can't do is declared with the error that says so, and the test of that duty then is that this
error is raised; what means nothing for it is ``absent``, with the reason.

``python tests/package/registry.py`` prints the table.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import formulas
import pytest
import torch
from torch import nn

import mhattn
from mhattn import Alibi, KVCache, MultiHeadAttention, Rotary, attention, pack_linears
from mhattn.core import LinearState, Position, fused_attention, yarn_frequencies
from mhattn.costs import layer_costs
from mhattn.costs.layer_costs import UNCOUNTED
from mhattn.lessons import AttentionOnly, Echo, GatherModel, RecallModel
from mhattn.models import (
    Encoder,
    EncoderBlock,
    LanguageModel,
    LanguageModelBlock,
    PackedLinear,
    SharedEncoder,
)
from mhattn.variants import (
    GatedDelta,
    LatentAttention,
    LearnedBias,
    NormedAttention,
    RelativePosition,
    block_sums,
    gated_delta_attention,
    latent_attention,
    latent_attention_absorbed,
    latent_attention_expanded,
    linear_attention,
    local_attention,
    recurrent_linear_attention,
    relative_attention,
    soft_capped_attention,
    strided_attention,
    tiled_attention,
    top_k_attention,
    window_block_mask,
)

B, E, H, H_KV, D, D_V, MAX = 2, 33, 6, 2, 10, 7, 53
WINDOW, STRIDE, BLOCK, REACH, KEPT, CAP = 4, 3, 5, 3, 3, formulas.CAP

DUTIES = {
    "formula": "for as many queries as keys, the output is that of the formula written out",
    "shorter": "the same for fewer queries than keys: the last stand beside each other",
    "longer": "and for more queries than keys",
    "all keys": "is_causal=False is understood",
    "causal": "with is_causal=True, keys change no query before them, and all that see them",
    "mask of keys": "a mask of each sequence, True may attend, is the same as cutting the rest out",
    "mask of pairs": "a key changes exactly the queries whose mask shows it",
    "nothing to attend": "a query that sees no key gets zeros, and no gradient is NaN",
    "no queries": "an empty query gives an empty output",
    "no keys": "without any key it gives zeros",
    "no batch": "an empty batch gives an empty output",
    "one": "one query and one key",
    "grouped heads": "heads of the query share heads of the key and value",
    "half precision": "float16 and bfloat16 in and out, close to float64",
    "autocast": "under autocast, close to float64 as well, with finite gradients",
    "gradients": "finite, and the slopes of the output, down to inputs and parameters",
    "compile": "torch.compile makes one graph that serves all lengths",
    "export": "torch.export with a dynamic length",
    "vmap": "torch.vmap gives what a loop gives",
    "sample gradients": "vmap of grad gives the gradients of each sample alone",
    "copies": "deepcopy and pickle compute the same",
    "state": "a state_dict carries all that is learned",
    "empty memory": "meta device, to_empty and reset_parameters set every number",
    "dropout": "changes the output in training, and only then",
    "weights": "return_weights gives the shares, which sum to one, or to less if the entry says so",
    "positions": "given positions can be the usual ones",
    "cache": "token by token with a cache is the full pass",
    "trace": "trace names its steps from the input to the output",
    "flops": "measure_flops counts what LayerCost says, in closed form",
    "peaks": "peak_bytes measures what peak_activation_bytes counts",
    "types": "type checkers know what it returns, with and without weights",
}


# What a row of weights may be. Softmax shares out one; what may keep a part to itself, as softmax
# plus one, shares out less.
SHARES, SHARES_OR_LESS = "shares", "shares, or less"


def place(file: Path | str, start: str) -> str:
    """File and line of the first line that begins so: where to add what a test misses."""
    file, root = Path(file).resolve(), Path(__file__).parents[2]
    lines = file.read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines, 1) if line.startswith(start))
    return f"{file.relative_to(root).as_posix()}:{number}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row of the table.

    Attributes:
        of: what of the package it stands for.
        make: builds the module; takes num_kv_heads, dropout, device, dtype.
        inputs: of B, L, S and the number of heads of the key and value: what forward takes.
        formula: the output of module, inputs and what is seen, without the package.
        pattern: which keys each query of L sees of S, besides what masks hide.
        keys: which of the inputs have an axis of keys, the one before the last.
        front: whether cutting off the first keys, not the last, leaves positions as they were.
        cut: inputs without the first keys, where these are not all that gets shorter.
        default: its is_causal where none is given.
        parameters: options of the call that a test always gives.
        cannot: duties that it refuses, each with the error.
        absent: duties that mean nothing for it, each with the reason.
        dtype: in which it is compared.
        caches: what the layer can be asked to decode with.
        costs: kinds of LayerCost, and the options of the call that computes so.
        block: how many positions it computes at once.
        graph_for_each_length: whether compiling writes out a loop over the sequence.
        typed: an expression that calls it, as a type checker reads it.
        weights: what a row of its weights is: shares, which sum to one, or shares, or less.
    """

    name: str = ""
    of: tuple[object, ...]
    make: Callable[..., nn.Module]
    inputs: Callable[[int, int, int, int], tuple[torch.Tensor, ...]]
    formula: Callable[..., torch.Tensor] | None = None
    pattern: Callable[[int, int], torch.Tensor] = lambda L, S: torch.ones(L, S, dtype=torch.bool)
    keys: tuple[int, ...] = (1, 2)
    front: bool = True
    cut: Callable[..., tuple[torch.Tensor, ...]] | None = None
    default: bool = False
    cannot: dict[str, tuple[type[Exception], str]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64
    caches: tuple[Callable[[], KVCache | LinearState], ...] = ()
    costs: dict[str, dict[str, object]] = field(default_factory=dict)
    block: int = BLOCK
    graph_for_each_length: bool = False
    typed: str = ""
    weights: str = SHARES

    def module(self, dtype: torch.dtype | None = None, **options: object) -> nn.Module:
        """With numbers in all that is learned, also in what starts at zero or one."""
        made = self.make(**options).to(dtype or self.dtype)
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.3)
        return made

    def drawn(
        self,
        L: int,
        S: int | None = None,
        *,
        batch: int = B,
        kv_heads: int = H,
        dtype: torch.dtype | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Inputs, numbers in the entry's dtype."""
        found = self.inputs(batch, L, L if S is None else S, kv_heads)
        return tuple(x.to(dtype or self.dtype) if x.is_floating_point() else x for x in found)

    def call(
        self,
        module: nn.Module,
        inputs: tuple[torch.Tensor, ...],
        *,
        is_causal: bool | None = None,
        **options: object,
    ) -> torch.Tensor:
        """The output alone; is_causal is said where it isn't what the entry does anyway."""
        if is_causal is not None and is_causal != self.default:
            options["is_causal"] = is_causal
        output = module(*inputs, **options)
        return output[0] if isinstance(output, tuple) else output

    def ways(self) -> list[bool]:
        """Which is_causal it can."""
        named = {False: "all keys", True: "causal"}
        return [way for way, duty in named.items() if duty not in {**self.cannot, **self.absent}]

    def seen(self, L: int, S: int, is_causal: bool) -> torch.Tensor:
        """Booleans, ``(L, S)``."""
        seen = self.pattern(L, S)
        return seen & (formulas.distances(L, S) <= 0) if is_causal else seen

    def alone(self, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """For self-attention, where the layer takes the key from the query."""
        return inputs[:1] if self.inputs is of_tokens else inputs

    def kinds(self) -> dict[str, dict[str, object]]:
        """Its kinds of LayerCost, or what LayerCost knows of that it does not count."""
        names = [getattr(thing, "__name__", "") for thing in self.of]
        kinds = self.costs or {name: {} for name in names if name in UNCOUNTED}
        if not kinds:
            costs = layer_costs.__file__
            raise LookupError(
                f"{self.name}: mhattn.costs counts nothing for {' or '.join(names)}. Add its kind "
                f"in {place(costs, 'KINDS: ')} and {place(costs, 'COUNTED = ')}, and costs={{...}} "
                f"to its entry; or in UNCOUNTED, {place(costs, 'UNCOUNTED = ')}, why not."
            )
        return kinds

    def can(self, duty: str) -> bool:
        return duty not in self.cannot and duty not in self.absent


def public() -> dict[str, object]:
    """All that the package's rooms export, by name."""
    rooms = (found.name for found in pkgutil.iter_modules(mhattn.__path__) if found.ispkg)
    doors = [importlib.import_module(f"mhattn.{room}") for room in rooms]
    return {name: getattr(door, name) for door in doors for name in door.__all__}


def how_to_enter(name: str) -> str:
    """What to do for a name that must have a row and has none."""
    table = "FUNCTIONS" if inspect.isfunction(public().get(name)) else "LAYERS"
    return (
        f"{name}: add an entry with of=({name},) to {table} in {place(__file__, f'{table} = ')}, "
        f"or the reason why it needs none to EXCEPTIONS in {place(__file__, 'EXCEPTIONS = ')}"
    )


def how_to_trace(function: Callable[..., object]) -> str:
    """What to do for a function that attends and is no step of a trace."""
    file, name = inspect.getsourcefile(function), function.__name__
    return (
        f'{name}: add step({name}, "mix") behind it in {place(file, f"def {name}(")}; it is in '
        "mhattn.core.steps. beside=True: it returns weights that it computes itself. "
        "in_blocks=True: it calls other steps block by block, and is one"
    )


def unknown(*names: str) -> tuple[type[Exception], str]:
    """Python's own error for an argument that the signature does not have."""
    return TypeError, "unexpected keyword argument '(" + "|".join(names) + ")'"


# Functions of the query, key and value of each head


class Function(nn.Module):
    """A function as a module, so that all is called in one way."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor, **options: object) -> object:
        return self.function(*inputs, **options)


def in_each_head(B: int, L: int, S: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    shapes = (B, H, L, D), (B, kv_heads, S, D), (B, kv_heads, S, D_V)
    return tuple(torch.randn(shape) for shape in shapes)


def of_heads(core: Callable[..., torch.Tensor], **fixed: object) -> Callable[..., torch.Tensor]:
    return lambda module, inputs, seen: core(*inputs, seen, **fixed)


A_FUNCTION = {
    "state": "a function learns nothing",
    "empty memory": "a function holds nothing",
    "trace": "the layer is traced, and the function is a step of it",
    "flops": "LayerCost counts layers; functions are counted by hand in test_flops",
    "peaks": "LayerCost counts layers: projections are part of the worst moment",
}
A_KEY = {"no keys": (ValueError, "key must have at least one position")}
OF_A_LAYER = A_KEY | {"positions": unknown("positions"), "cache": unknown("cache")}


def function(call: Callable[..., object], *of: object, **settings: object) -> Entry:
    """An entry of a function; what its signature lacks is refused by Python."""
    cannot = OF_A_LAYER | settings.pop("cannot", {})
    for able in settings.pop("can", ()):
        del cannot[able]
    absent = A_FUNCTION | settings.pop("absent", {})
    options = {"make": lambda **o: Function(call), "inputs": in_each_head}
    options |= settings
    return Entry(of=of, cannot=cannot, absent=absent, **options)


IN_ITS_LAYER = dict.fromkeys(("compile", "export"), "its layer goes through the compiler")
NO_MASK = dict.fromkeys(("mask of keys", "mask of pairs", "nothing to attend"), unknown("mask"))
NO_WEIGHTS = {"weights": unknown("return_weights")}
NO_DROPOUT = {"dropout": unknown("dropout")}
ONE_LENGTH = {"export": (AssertionError, "^Guard failed: .* == 11$")}
NO_CHOICE = {"all keys": unknown("is_causal")}
SAME_LENGTH = {
    "shorter": (ValueError, "as (many|long)"),
    "longer": (ValueError, "as (many|long)"),
    "no queries": (ValueError, "as (many|long)"),
}
NOT_LONGER = {
    "longer": (ValueError, "query must not be longer than key"),
}
UNION = {"types": (TypeError, 'has no attribute "shape"|Cannot access attribute "shape"')}
KEYS_ONLY = {
    "mask of pairs": (ValueError, r"mask must (be the same|broadcast to \(\.\.\., 1, S\))")
}


def near(L: int, S: int) -> torch.Tensor:
    return formulas.distances(L, S).abs() < WINDOW


def near_or_far(L: int, S: int) -> torch.Tensor:
    back = -formulas.distances(L, S)
    return (back < WINDOW) | (back % STRIDE == 0)


def chosen(q, k, v, scores, seen):
    """The formula of top-k: the columns of the best scores among those that are seen."""
    ranked = torch.where(seen, scores, -torch.inf).expand(B, *scores.shape[1:])
    best = ranked >= ranked.topk(min(KEPT, ranked.shape[-1])).values[..., -1:]
    return formulas.softmax(q, k, v, best & seen)


def with_scores(B, L, S, kv_heads):
    return *in_each_head(B, L, S, kv_heads), torch.randn(B, 1, L, S)


def with_vectors(B, L, S, kv_heads):
    shapes = (B, H, L, D), (B, kv_heads, S, D), (B, kv_heads, S, D_V)
    vectors = torch.randn(2 * REACH + 1, D), torch.randn(2 * REACH + 1, D_V)
    return *(torch.randn(shape) for shape in shapes), *vectors


def latents(B, L, S, kv_heads):
    shapes = (B, H, L, 5 + 4), (B, 1, S, 8 + 4), (H, 5, 8), (H, D_V, 8)
    return tuple(torch.randn(shape) for shape in shapes)


def of_length_one(B: int, L: int, S: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    """Longer keys would make the state of the delta rule grow without bound."""
    query, key, value = in_each_head(B, L, S, kv_heads)
    return query, key / key.norm(dim=-1, keepdim=True), value


def sums(*inputs, **options):
    return block_sums(*inputs, **options).output.to(inputs[0].dtype)


def flex(query, key, value, **options):
    """A window by torch's FlexAttention, with the package's table of blocks."""
    from torch.nn.attention.flex_attention import flex_attention

    mask = window_block_mask(query.shape[2], key.shape[2], WINDOW)
    grouped = query.shape[1] != key.shape[1]
    return flex_attention(query, key, value, block_mask=mask, enable_gqa=grouped, **options)


def delta_of_numbers(q, k, v, seen):
    rates = (torch.full(k.shape[:3], rate, dtype=q.dtype) for rate in (0.9, 0.7))
    return formulas.delta(q, k, v, *rates)


LATENT_FORM = {
    "inputs": latents,
    "formula": of_heads(formulas.latent),
    "keys": (1,),
    "cannot": NO_DROPOUT,
    "absent": IN_ITS_LAYER | {"grouped heads": "all heads share one key already"},
}

FUNCTIONS = {
    "attention()": function(
        attention,
        attention,
        formula=of_heads(formulas.softmax),
        absent=IN_ITS_LAYER,
        typed="attention(x, x, x)",
    ),
    "fused_attention()": function(
        fused_attention,
        fused_attention,
        formula=of_heads(formulas.softmax),
        cannot=NO_WEIGHTS,
        absent=IN_ITS_LAYER,
        typed="fused_attention(x, x, x)",
    ),
    "tiled_attention()": function(
        functools.partial(tiled_attention, block_size=BLOCK),
        tiled_attention,
        formula=of_heads(formulas.softmax),
        cannot=NO_WEIGHTS | NO_DROPOUT,
        absent=IN_ITS_LAYER,
        typed="tiled_attention(x, x, x)",
    ),
    "block_sums()": function(
        sums,
        block_sums,
        formula=of_heads(formulas.softmax),
        cannot={"causal": unknown("is_causal")} | NO_WEIGHTS | NO_DROPOUT,
        typed="block_sums(x, x, x).output",
    ),
    "soft_capped_attention()": function(
        functools.partial(soft_capped_attention, cap=CAP),
        soft_capped_attention,
        formula=of_heads(formulas.softmax, cap=CAP),
        cannot=UNION,
        absent=IN_ITS_LAYER,
        typed="soft_capped_attention(x, x, x, cap=1.0)",
    ),
    "local_attention()": function(
        functools.partial(local_attention, window=WINDOW),
        local_attention,
        formula=of_heads(formulas.softmax),
        pattern=near,
        cannot=NOT_LONGER | KEYS_ONLY | NO_WEIGHTS | NO_DROPOUT,
        absent=IN_ITS_LAYER,
        typed="local_attention(x, x, x, 4)",
    ),
    "strided_attention()": function(
        functools.partial(strided_attention, window=WINDOW, stride=STRIDE),
        strided_attention,
        formula=of_heads(formulas.softmax),
        pattern=near_or_far,
        default=True,
        cannot={"all keys": (ValueError, "with a stride, is_causal must be True, got False")}
        | NOT_LONGER
        | NO_MASK
        | NO_WEIGHTS
        | NO_DROPOUT,
        absent=IN_ITS_LAYER,
        typed="strided_attention(x, x, x, 4, 3)",
    ),
    "top_k_attention()": function(
        functools.partial(top_k_attention, k=KEPT),
        top_k_attention,
        inputs=with_scores,
        formula=of_heads(chosen),
        cut=lambda inputs, c: (
            *(x[..., c:, :] if i in (1, 2) else x for i, x in enumerate(inputs[:3])),
            inputs[3][..., c:],
        ),
        cannot=NO_WEIGHTS | NO_DROPOUT,
        typed="top_k_attention(x, x, x, x, 3)",
    ),
    "relative_attention()": function(
        relative_attention,
        relative_attention,
        inputs=with_vectors,
        formula=lambda module, inputs, seen: formulas.softmax(
            *inputs[:3], seen, vectors=inputs[3:]
        ),
        can=("positions",),
        typed="relative_attention(x, x, x, x, x)[0]",
    ),
    "linear_attention()": function(
        functools.partial(linear_attention, chunk_size=BLOCK),
        linear_attention,
        formula=of_heads(formulas.linear),
        cannot=KEYS_ONLY | NO_WEIGHTS | NO_DROPOUT,
        absent=IN_ITS_LAYER,
        typed="linear_attention(x, x, x)",
    ),
    "recurrent_linear_attention()": function(
        recurrent_linear_attention,
        recurrent_linear_attention,
        graph_for_each_length=True,
        formula=of_heads(formulas.linear),
        default=True,
        cannot=ONE_LENGTH | SAME_LENGTH | NO_CHOICE | NO_MASK | NO_WEIGHTS | NO_DROPOUT,
        typed="recurrent_linear_attention(x, x, x)",
    ),
    "gated_delta_attention()": function(
        functools.partial(gated_delta_attention, decay=0.9, beta=0.7, chunk_size=BLOCK),
        gated_delta_attention,
        inputs=of_length_one,
        formula=of_heads(delta_of_numbers),
        default=True,
        cannot=SAME_LENGTH | NO_CHOICE | NO_MASK | NO_WEIGHTS | NO_DROPOUT,
        absent=IN_ITS_LAYER,
        typed="gated_delta_attention(x, x, x)",
    ),
    "latent_attention()": function(
        latent_attention, latent_attention, **LATENT_FORM, typed="latent_attention(x, x, x, x)"
    ),
    "latent_attention_expanded()": function(
        latent_attention_expanded,
        latent_attention_expanded,
        **LATENT_FORM,
        typed="latent_attention_expanded(x, x, x, x)",
    ),
    "latent_attention_absorbed()": function(
        latent_attention_absorbed,
        latent_attention_absorbed,
        **LATENT_FORM,
        typed="latent_attention_absorbed(x, x, x, x)",
    ),
    "flex_attention()": function(
        flex,
        window_block_mask,
        formula=of_heads(formulas.softmax),
        pattern=near,
        cannot={"causal": unknown("is_causal")}
        | NO_MASK
        | NO_WEIGHTS
        | NO_DROPOUT
        | {"no queries": (ValueError, "^L must be at least 1, got 0")}
        | {"no keys": (ValueError, "^S must be at least 1, got 0")},
        absent=dict.fromkeys(
            ("no batch", "autocast", "gradients", "vmap", "sample gradients", "compile", "export"),
            "torch's own function; the table of blocks is the package's",
        )
        | {"types": "torch's own function"},
    ),
}


# Layers: projections, and an attend or a position in them


def of_tokens(B: int, L: int, S: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(B, n, E) for n in (L, S, S))


def itself(B: int, L: int, S: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    """Self-attention only; another length is a key of its own."""
    return (torch.randn(B, L, E),) if L == S else (torch.randn(B, L, E), torch.randn(B, S, E))


def where(options: dict[str, object], *names: str) -> dict[str, object]:
    return {name: options[name] for name in names if name in options}


def layer(
    *of: object,
    attend: Callable[..., object] = lambda kv_heads, options: attention,
    position: Callable[..., Position | None] = lambda options: None,
    core: Callable[..., torch.Tensor] = formulas.plain_core,
    **settings: object,
) -> Entry:
    """An entry of MultiHeadAttention with this attend and position."""

    def make(num_kv_heads: int = H, **options: object) -> nn.Module:
        parts = {"attend": attend(num_kv_heads, options), "position": position(options)}
        sizes = {"head_dim": D, "num_kv_heads": num_kv_heads}
        return MultiHeadAttention(E, H, **sizes, **parts, **options)

    options = {"make": make, "inputs": of_tokens, "formula": formulas.in_heads(core)} | settings
    options.setdefault("caches", (lambda: KVCache(MAX),))
    options["cannot"] = A_KEY | options.get("cannot", {})
    return Entry(of=(MultiHeadAttention, *of), **options)


def attending(call: Callable[..., object]) -> Callable[..., object]:
    return lambda kv_heads, options: call


def cannot(attend: str, *names: str) -> dict[str, tuple[type[Exception], str]]:
    """What the layer says of an attend that has no such argument."""
    return {
        duty: (ValueError, rf"^{name} must be \w+ with attend={attend}.*, got ")
        for name in names
        for duty in REFUSED[name]
    }


REFUSED = {
    "mask": ("mask of keys", "mask of pairs", "nothing to attend"),
    "return_weights": ("weights",),
    "dropout": ("dropout",),
}
NO_POSITION = {"positions": (ValueError, "^positions need a layer with a position, got position=")}
STRIDED = functools.partial(strided_attention, window=WINDOW, stride=STRIDE)
LOCAL = functools.partial(local_attention, window=WINDOW)
SLOWER = yarn_frequencies(D, 10_000.0, 4.0, length=64)
PARTIAL = torch.cat([0.5 ** torch.arange(3).double(), torch.zeros(2, dtype=torch.float64)])
USUAL = 10_000.0 ** (-torch.arange(0, D, 2).double() / D)
SAME_TYPES = {"types": "its forward is that of the plain layer"}
# Blocks are computed again for their gradients, by hooks that torch.func does not know yet.
NO_HOOKS = "don't yet support saved tensor hooks|vmap over _NoopSaveInputs"  # since 2.10 | 2.9
NO_HOOKS = {"sample gradients": (RuntimeError, NO_HOOKS)}
SAME_GRAPH = dict.fromkeys(("compile", "export"), "the graph is that of the entry before it")
NO_KIND = dict.fromkeys(("flops", "peaks"), (ValueError, "^kind must be one of .*, got '\\w+'; .+"))


def rotary(frequencies: torch.Tensor | None = None) -> Callable[..., Position]:
    return lambda options: Rotary(D, frequencies=frequencies, **where(options, "device"))


def parts_of(options: dict[str, object]) -> dict[str, object]:
    return where(options, "device", "dtype")


WINDOWED = {
    "pattern": near,
    "cannot": NOT_LONGER | KEYS_ONLY | cannot("local_attention", "return_weights", "dropout"),
}
LAYERS = {
    "plain": layer(
        cannot=NO_POSITION,
        costs={"fused": {}, "written": {"return_weights": True}},
        typed="MultiHeadAttention(12, 3).forward(x)",
    ),
    "rotary": layer(
        Rotary,
        position=rotary(),
        core=formulas.rotary_core(USUAL),
        cannot=NO_KIND,
        absent=SAME_TYPES,
    ),
    "partial rotary": layer(
        Rotary,
        position=rotary(PARTIAL),
        core=formulas.rotary_core(PARTIAL),
        cannot=NO_KIND,
        absent=SAME_TYPES | SAME_GRAPH,
    ),
    "yarn": layer(
        Rotary,
        yarn_frequencies,
        position=rotary(SLOWER),
        core=formulas.rotary_core(SLOWER),
        cannot=NO_KIND,
        absent=SAME_TYPES | SAME_GRAPH,
    ),
    "alibi": layer(
        Alibi,
        position=lambda options: Alibi(H, **where(options, "device")),
        core=formulas.alibi_core,
        costs={"alibi": {}},
        absent=SAME_TYPES,
    ),
    "bias": layer(
        LearnedBias,
        cannot=NO_HOOKS,
        position=lambda options: LearnedBias(H, MAX, **parts_of(options)),
        core=formulas.learned_core,
        costs={"learned": {}},
        absent=SAME_TYPES,
    ),
    "vectors": layer(
        RelativePosition,
        cannot=NO_HOOKS,
        position=lambda options: RelativePosition(D, REACH, **parts_of(options)),
        core=formulas.vectors_core,
        costs={"relative": {}},
        absent=SAME_TYPES,
    ),
    "window": layer(
        local_attention,
        attend=attending(LOCAL),
        **WINDOWED | {"cannot": WINDOWED["cannot"] | NO_POSITION},
        caches=(lambda: KVCache(MAX), lambda: KVCache(window=WINDOW)),
        costs={"local": {}},
        absent=SAME_TYPES,
    ),
    "turned window": layer(
        local_attention,
        Rotary,
        attend=attending(LOCAL),
        position=rotary(),
        core=formulas.rotary_core(USUAL),
        **WINDOWED | {"cannot": WINDOWED["cannot"] | NO_KIND},
        caches=(lambda: KVCache(MAX), lambda: KVCache(window=WINDOW)),
        absent=SAME_TYPES,
    ),
    "stride": layer(
        strided_attention,
        attend=attending(STRIDED),
        pattern=near_or_far,
        cannot={"all keys": (ValueError, "with a stride, is_causal must be True, got False")}
        | NOT_LONGER
        | NO_POSITION
        | cannot("strided_attention", "mask", "return_weights", "dropout"),
        costs={"strided": {}},
        absent=SAME_TYPES,
    ),
    "tiled": layer(
        tiled_attention,
        attend=attending(functools.partial(tiled_attention, block_size=BLOCK)),
        graph_for_each_length=True,
        cannot=ONE_LENGTH | NO_POSITION | cannot("tiled_attention", "return_weights", "dropout"),
        costs={"tiled": {}},
        absent=SAME_TYPES,
    ),
    "linear": layer(
        linear_attention,
        attend=attending(linear_attention),
        core=formulas.linear_core,
        cannot=NO_POSITION | KEYS_ONLY | cannot("linear_attention", "return_weights", "dropout"),
        caches=(lambda: KVCache(MAX), LinearState),
        block=64,
        costs={"linear": {}},
        absent=SAME_TYPES,
    ),
    "delta": layer(
        GatedDelta,
        gated_delta_attention,
        attend=lambda kv_heads, options: GatedDelta(kv_heads, D, **parts_of(options)),
        core=formulas.delta_core,
        cannot={"all keys": (ValueError, "^with GatedDelta, is_causal must be True, got False")}
        | SAME_LENGTH
        | NO_POSITION
        | NO_KIND
        | cannot("GatedDelta", "mask", "return_weights", "dropout"),
        caches=(LinearState,),
        absent=SAME_TYPES,
    ),
    "normed": layer(
        NormedAttention,
        attend=lambda kv_heads, options: NormedAttention(D, **parts_of(options)),
        core=formulas.normed_core,
        cannot=UNION | NO_POSITION | NO_KIND,
        typed="NormedAttention(4).forward(x, x, x)",
    ),
    "capped": layer(
        soft_capped_attention,
        attend=attending(functools.partial(soft_capped_attention, cap=CAP)),
        core=formulas.capped_core,
        cannot=NO_POSITION | NO_KIND,
        absent=SAME_TYPES,
    ),
}


def latent_layer(q_lora_rank: int | None = None) -> Callable[..., nn.Module]:
    def make(**options: object) -> nn.Module:
        sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4}
        return LatentAttention(E, H, **sizes, v_head_dim=D_V, q_lora_rank=q_lora_rank, **options)

    return make


NO_KEY = (TypeError, r"positional argument")
SELF = {
    "inputs": itself,
    "keys": (0,),
    "formula": formulas.latent_layer,
    "caches": (lambda: KVCache(MAX),),
}
NO_OTHER = dict.fromkeys(("shorter", "longer", "no keys"), NO_KEY)
NO_OTHER |= {"no queries": A_KEY["no keys"]}
LATENT_CANNOT = NO_OTHER | {"dropout": unknown("dropout"), "grouped heads": unknown("num_kv_heads")}
LAYERS |= {
    "latent": Entry(
        of=(LatentAttention,),
        make=latent_layer(),
        **SELF,
        cannot=LATENT_CANNOT,
        costs={"latent": {"absorb": False}, "absorbed": {"absorb": True}},
        typed="LatentAttention(12, 3, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=2)"
        ".forward(x)",
    ),
    "latent queries": Entry(
        of=(LatentAttention,),
        make=latent_layer(q_lora_rank=9),
        **SELF,
        cannot=LATENT_CANNOT,
        absent=SAME_GRAPH
        | {"flops": "counted at latent", "peaks": "counted at latent"}
        | {"types": "its forward is that of latent"},
    ),
}


# Models: what has layers in it


def tokens_below(count: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    return lambda B, L, S, kv_heads: (torch.randint(count, (B, L)),) * (1 if L == S else 2)


def narrow(B: int, L: int, S: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(B, L, 12),) * (1 if L == S else 2)


def labels(B: int, L: int, S: int, kv_heads: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(B, L, 12), torch.randn(B, S, 1)


A_MODEL = {
    "types": "test_types asks for layers and functions",
    "formula": "in test_encoder, test_reactions, test_language_model, test_lookup, test_recall, "
    "test_tasks",
    "shorter": "it reads one sequence",
    "longer": "it reads one sequence",
    "no keys": "it reads one sequence: its keys are its queries",
    "flops": "test_flops, test_model_costs",
    "peaks": "LayerCost is a layer's",
    "trace": "its layers are traced one by one",
}
BUILT = {
    "no queries": A_KEY["no keys"],
    "grouped heads": unknown("num_kv_heads"),
    "dropout": unknown("dropout"),
    "positions": unknown("positions"),
}


def model(*of: object, make: Callable[..., nn.Module], **settings: object) -> Entry:
    """An entry of a model, which takes no device: it is built in one, `with torch.device`."""

    def build(**options: object) -> nn.Module:
        with torch.device(options.pop("device", torch.get_default_device())):
            return make(**options)

    absent = A_MODEL | IN_ITS_LAYER
    refused = BUILT | settings.pop("cannot", {})
    for able in settings.pop("can", ()):
        del refused[able]
    options = {"keys": (0,)} | settings
    return Entry(of=of, make=build, cannot=refused, absent=absent, **options)


LLAMA = {"num_heads": 6, "num_kv_heads": 2, "mlp_dim": 7, "base": 100.0, "eps": 1e-5}
ONLY_CAUSAL = {"all keys": unknown("is_causal")}
NEVER_CAUSAL = {"causal": unknown("is_causal")}
MODELS = {
    "encoder": model(
        Encoder,
        make=lambda **o: Encoder(11, MAX, 1, embed_dim=12, num_heads=3, mlp_dim=7, **o),
        inputs=tokens_below(11),
        front=False,
        cannot=NEVER_CAUSAL | {"weights": unknown("return_weights"), "cache": unknown("cache")},
    ),
    "shared encoder": model(
        SharedEncoder,
        make=lambda **o: SharedEncoder(
            11, MAX, 2, token_dim=5, embed_dim=12, num_heads=3, mlp_dim=7, **o
        ),
        inputs=tokens_below(11),
        front=False,
        cannot=NEVER_CAUSAL | {"weights": unknown("return_weights"), "cache": unknown("cache")},
    ),
    "encoder block": model(
        EncoderBlock,
        make=lambda **o: EncoderBlock(12, 3, 7, 1e-6, **o),
        inputs=narrow,
        cannot=NEVER_CAUSAL | {"weights": unknown("return_weights"), "cache": unknown("cache")},
    ),
    "language model": model(
        LanguageModel,
        make=lambda **o: LanguageModel(11, 2, embed_dim=24, **LLAMA | o),
        inputs=tokens_below(11),
        default=True,
        can=("grouped heads",),
        cannot=ONLY_CAUSAL | NO_MASK,
        caches=(lambda: [KVCache(MAX), KVCache(MAX)],),
    ),
    "language model block": model(
        LanguageModelBlock,
        make=lambda **o: LanguageModelBlock(12, **LLAMA | o),
        inputs=narrow,
        default=True,
        can=("grouped heads", "positions"),
        cannot={"all keys": (TypeError, "multiple values for keyword argument 'is_causal'")},
        caches=(lambda: KVCache(MAX),),
    ),
    "attention only": model(
        AttentionOnly,
        make=lambda **o: AttentionOnly(11, MAX, embed_dim=12, num_heads=3, **o),
        inputs=tokens_below(11),
        default=True,
        cannot=ONLY_CAUSAL | NO_MASK | {"cache": unknown("cache")},
    ),
    "echo": model(
        Echo,
        make=lambda **o: Echo(**o),
        inputs=tokens_below(27),
        default=True,
        cannot=ONLY_CAUSAL | NO_MASK | {"cache": unknown("cache")},
    ),
    "recall model": model(
        RecallModel,
        make=lambda **o: RecallModel([Rotary(4), Alibi(3)], embed_dim=12, num_heads=3, **o),
        inputs=tokens_below(9),
        default=True,
        cannot=ONLY_CAUSAL | NO_WEIGHTS | {"cache": unknown("cache")},
    ),
    "gather model": model(
        GatherModel,
        make=lambda **o: GatherModel(12, 3, 5, **o),
        inputs=labels,
        keys=(1,),
        cannot=NEVER_CAUSAL | NO_MASK | {"cache": unknown("cache")},
    ),
}


def packed_layer(**options: object) -> nn.Module:
    """MultiHeadAttention for inference; its formula is that of the layer it was made of."""
    plain = MultiHeadAttention(E, H, head_dim=D, **options)
    for parameter in plain.parameters():
        nn.init.normal_(parameter, std=0.3)
    made = pack_linears(plain)
    object.__setattr__(made, "plain", plain)  # not a part of it
    return made


UNSAVED = (TypeError, "^a PackedLinear can.t be saved")
NO_GRADIENT = (ValueError, "x must not need a gradient of a packed layer")
ONLY_SINGLE = (TypeError, r"must be a tensor of torch.float32, got torch.b?float16")
LAYERS |= {
    "packed": Entry(
        of=(PackedLinear,),
        make=packed_layer,
        inputs=of_tokens,
        formula=lambda module, *o: formulas.in_heads(formulas.plain_core)(module.plain, *o),
        dtype=torch.float32,
        caches=(lambda: KVCache(MAX),),
        cannot=A_KEY
        | NO_POSITION
        | dict.fromkeys(("gradients", "sample gradients", "trace"), NO_GRADIENT)
        | dict.fromkeys(("half precision", "autocast"), ONLY_SINGLE)
        | dict.fromkeys(("copies", "state"), UNSAVED)
        | {"empty memory": (ValueError, "^linear must be in float32 on the CPU, got .* on meta")},
        absent=SAME_TYPES | {"flops": "those of the plain layer", "peaks": "those of plain"},
    )
}
TABLE = {name: replace(entry, name=name) for name, entry in (FUNCTIONS | LAYERS | MODELS).items()}

# What has no row of its own: the name as the package has it, and why.
EXCEPTIONS = {
    "Position": "the base class, which does nothing",
    "attend_in_groups": "what fused_attention calls, on its four axes; test_functional holds it",
    "compressed_attention": "one row is key and value, and entries stand beside; test_compressed",
    "attention_gradients": "the backward pass of attention; test_gradients",
    "attention_scores": "a part of attention; test_functional",
    "attention_weights": "a part of attention; test_functional",
    "linear_attention_weights": "the table that linear_attention never computes; test_linear",
    "weights_of_call": "the table that a fused call never gives; test_capture",
}
EXCEPTIONS |= dict.fromkeys(
    ["exchange_attention", "ring_attention", "split_attention"],
    "needs processes of its own; tests/parallel compares it with one process",
)
EXCEPTIONS |= dict.fromkeys(
    [
        *("AttentionCost", "AttentionGradients", "AttentionLayer", "AttentionMaps"),
        *("assert_attention", "check_attention", "attention_cost"),
        *("attention_distance", "attention_entropy", "attention_layers", "attention_maps"),
        *("attention_rollout", "attention_share"),
    ],
    "looks at attention or counts it, and does not attend",
)


def duty(name: str, *, now: int | None = None) -> Callable[..., Callable[..., None]]:
    """A test for every entry to which it means something; one that refuses must raise its error.

    ``now``: how many of the entries plain `pytest` draws, if the test is a slow one.
    """
    assert name in DUTIES
    from drawn import few_now  # pytest has its folder on the path; to print the table is without

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(entry: Entry, **others: object) -> None:
            if name not in entry.cannot:
                return test(entry, **others)
            kind, message = entry.cannot[name]
            with pytest.raises(kind, match=message):
                test(entry, **others)

        entries = [entry for entry in TABLE.values() if name not in entry.absent]
        run.duty = name
        number = len(entries) if now is None else now
        parameters = few_now(entries, number, of=name, name=lambda entry: entry.name)
        return pytest.mark.parametrize("entry", parameters)(run)

    return decorate


def near(entry: Entry, got: torch.Tensor, expected: torch.Tensor, **options: float) -> None:
    if entry.dtype == torch.float32:
        options = {"atol": 1e-5, "rtol": 1e-5} | options
    torch.testing.assert_close(got, expected, **options)


def cell(entry: Entry, duty: str) -> str:
    if duty in entry.absent:
        return "–"
    return "error" if duty in entry.cannot else "yes"


def table() -> str:
    """Entries by duties, in Markdown, with the duties numbered."""
    lines = ["| | " + " | ".join(str(i) for i in range(1, len(DUTIES) + 1)) + " |"]
    lines.append("|---" * (len(DUTIES) + 1) + "|")
    for name, entry in TABLE.items():
        marks = {"yes": "✓", "error": "E", "–": "–"}
        lines.append(f"| {name} | " + " | ".join(marks[cell(entry, d)] for d in DUTIES) + " |")
    legend = [f"{i}. **{duty}**: {text}" for i, (duty, text) in enumerate(DUTIES.items(), 1)]
    cells = [cell(entry, duty) for entry in TABLE.values() for duty in DUTIES]
    counts = ", ".join(f"{cells.count(x)} {y}" for x, y in KINDS_OF_CELLS.items())
    return "\n".join([*lines, "", counts, "", *legend])


KINDS_OF_CELLS = {
    "yes": "✓ held by a test",
    "error": "E refused with a declared error, which is tested",
    "–": "– mean nothing there, with a reason in the table",
}

if __name__ == "__main__":
    print(table())
