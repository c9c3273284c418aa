"""The heads of known models: what their sources say, and what follows by counting.

The numbers stand in ``model_sizes.toml`` beside this file, each model's with the source that they
were read in. The rest is counted by `mhattn.costs.attention`. Nothing here needs torch.
"""

import difflib
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from mhattn.costs import integers as check
from mhattn.costs.attention import attention_cost, kv_cache_numbers, latent_parameters
from mhattn.costs.hardware import Accelerator
from mhattn.costs.kind_costs import KindCost, kind_cost
from mhattn.costs.layer_sizes import (
    CompressedSizes,
    IndexSizes,
    LatentSizes,
    LayerSizes,
    MlpSizes,
)
from mhattn.costs.model_costs import ModelCost, model_cost
from mhattn.costs.serving import ServingCost, serving_cost

__all__ = ["ModelSizes", "known_model", "known_models"]


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of one model's attention.

    Attributes:
        name: what `known_model` finds it by.
        title: what people call it.
        family: the models that it belongs to.
        kind: ``"encoder"``, ``"decoder"`` or ``"encoder-decoder"``.
        layers: how many; of an encoder-decoder, in each of its halves.
        embed_dim: width of the model.
        num_heads: number of heads of the query.
        num_kv_heads: number of heads of the key and value.
        head_dim: width of a head's query and key.
        source: the address that the numbers come from.
        source_kind: ``"owner"``, the owner's own code or configuration; ``"library"``, a library
            that loads the owner's weights; ``"paper"``, the paper, as reported.
        window: how many tokens a sliding-window layer sees. None: no layer has a window.
        global_layers: how many layers have no window, if others have one.
        latent: the sizes of latent attention. None: it has none.
        index: the sizes of an indexer. None: no keys are chosen.
        mixed: kinds of layers that differ in more than a window. Then ``num_heads``,
            ``num_kv_heads`` and ``head_dim`` are those of most layers with softmax.
        rope_base: base of the rotary positions. None: there are none, or the sources don't say.
        local_rope_base: that of layers with a window, where it differs.
        layers_without_rope: how many layers have no positions, where others have them.
        qk_norm: whether queries and keys are normalised; False also where no source says so.
        soft_cap: what bounds the scores. None: nothing.
        sinks: whether each head has a learned number in the denominator of its softmax.
        more_sources: where what the first source leaves out comes from.
        rotary_dim: how many numbers of a head are turned, where only some are.
        output_gate: whether a gate as wide as the queries multiplies the output of attention.
        mlp: what follows attention. None: the sources don't say.
        vocabulary: rows of the embedding, with padding.
        tied: whether the output has no matrix of its own but takes the embedding's.
        context: longest sequence that the model is made for, by its configuration.
        learned_positions: rows of a table of learned positions.
        published_parameters: how many parameters the model has, by ``published_source``.
        published_source: its address.
        differs: why `parameters` counts something else than is published, by more than 2 %.
        compressed: the sizes of attention with one vector for several tokens. None: it has none.

    Raises:
        ValueError: by a method or `attention_parameters`, as each says.
    """

    name: str
    title: str
    family: str
    kind: str
    layers: int
    embed_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    source: str
    source_kind: str
    window: int | None = None
    global_layers: int | None = None
    latent: LatentSizes | None = None
    index: IndexSizes | None = None
    mixed: tuple[LayerSizes, ...] = ()
    rope_base: int | None = None
    local_rope_base: int | None = None
    layers_without_rope: int | None = None
    qk_norm: bool = False
    soft_cap: int | None = None
    sinks: bool = False
    more_sources: tuple[str, ...] = ()
    rotary_dim: int | None = None
    output_gate: bool = False
    mlp: MlpSizes | None = None
    vocabulary: int | None = None
    tied: bool | None = None
    context: int | None = None
    learned_positions: int = 0
    published_parameters: int | None = None
    published_source: str | None = None
    differs: str | None = None
    compressed: CompressedSizes | None = None

    @property
    def query_width(self) -> int:
        """Numbers in the queries of one token, all heads side by side."""
        return self.num_heads * self.head_dim

    @property
    def splits_width(self) -> bool:
        """Whether the heads share out the model's width: ``head_dim = embed_dim / num_heads``."""
        return self.query_width == self.embed_dim

    @property
    def group_size(self) -> int:
        """How many query heads share one key-value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def v_head_dim(self) -> int:
        """Width of a head's value; of `mixed`, in most layers with softmax."""
        if self.latent:
            return self.latent.v_head_dim
        narrow = (kind.v_head_dim for kind in self.mixed if kind.sees != "state")
        return next(filter(None, narrow), self.head_dim)

    @property
    def attention(self) -> str:
        """``"MHA"``, ``"GQA"``, ``"MQA"`` or ``"MLA"``."""
        if self.latent:
            return "MLA"
        if self.num_kv_heads == self.num_heads:
            return "MHA"
        return "MQA" if self.num_kv_heads == 1 else "GQA"

    @property
    def countable(self) -> bool:
        """Whether `model_cost` can count it: one kind of layers, with or without a window.

        Not an encoder-decoder, a mixture (linear layers, chunks, two sizes of heads, shared or
        compressed caches), nor a model that chooses its keys.
        """
        return not (self.kind == "encoder-decoder" or self.mixed or self.index)

    @property
    def attention_parameters(self) -> int:
        """Weights of the projections, in all layers, without biases.

        In an encoder-decoder, each decoder layer attends twice: to itself and to the encoder.

        Raises:
            ValueError: layers are of several kinds, or choose their keys.
        """
        if self.mixed or self.index:
            _check_countable(self)
        if self.latent:
            weights = latent_parameters(self.embed_dim, self.num_heads, **asdict(self.latent))
        else:
            weights = attention_cost(
                self.embed_dim,
                self.num_heads,
                query_len=1,
                num_kv_heads=self.num_kv_heads,
                head_dim=self.head_dim,
                bias=False,
            ).parameters
        return self.layers * (3 if self.kind == "encoder-decoder" else 1) * weights

    # --8<-- [start:cached]
    @property
    def cached_per_layer(self) -> int:
        """Numbers that one layer of a decoder keeps for each token; of `mixed`, most layers.

        An encoder has no later tokens to keep them for.
        """
        if self.kind == "encoder":
            return 0
        if self.latent:  # a row that all heads share, and no values
            row = self.latent.kv_lora_rank + self.latent.qk_rope_head_dim
            row += self.index.head_dim if self.index else 0  # a second key that all share
            return kv_cache_numbers(1, row, 0)
        if self.compressed:  # a row as well, key and value at once
            return kv_cache_numbers(1, self.head_dim, 0)
        return kv_cache_numbers(self.num_kv_heads, self.head_dim, self.head_dim)

    # --8<-- [end:cached]

    @property
    def layer_kinds(self) -> tuple[LayerSizes, ...]:
        """The kinds of layers; one, or two where only some have a window."""
        if self.mixed:
            return self.mixed
        heads = self.num_heads, self.num_kv_heads, self.head_dim
        whole = LayerSizes("all", self.layers, *heads, self.cached_per_layer)
        if self.window is None:
            return (whole,)
        count = self.global_layers or 0
        local = replace(whole, sees="window", layers=self.layers - count, window=self.window)
        return (local, replace(whole, layers=count)) if count else (local,)

    def parameters(self, *, active: bool = False) -> int:
        """Count the parameters of the whole model: attention, MLPs or experts, embeddings.

        Biases, norms and what is as small are not counted; what else isn't, ``differs`` says.

        Args:
            active: whether to count only those experts that a token is sent to.

        Returns:
            An exact number of what is counted.

        Raises:
            ValueError: the sources don't say enough.

        Examples:
            >>> f"{known_model('deepseek-v3').parameters() / 1e9:.0f} billion"
            '671 billion'
        """
        if self.mlp is None or self.vocabulary is None or self.tied is None:
            raise ValueError(f"MLP, vocabulary and tied must be known, not so of {self.title}")
        halves = 2 if self.kind == "encoder-decoder" else 1
        attention = sum(kind.layers * kind.weights for kind in self.kind_costs())
        attention *= 3 if halves == 2 else 1
        rows = self.vocabulary * (1 if self.tied else 2) + self.learned_positions
        mlp = self.mlp.parameters(self.embed_dim, halves * self.layers, active=active)
        return attention + mlp + rows * self.embed_dim

    def kv_cache_bytes_per_token(self, bytes_per_number: int = 2) -> int:
        """Bytes that one token adds to the KV cache, in all layers, as long as no window is full.

        Of an encoder-decoder: the decoder's self-attention. For its cross-attention the same
        is kept once more for each token of the encoder.

        Args:
            bytes_per_number: 2 for float16 and bfloat16.

        Returns:
            An exact number.

        Raises:
            TypeError: bytes_per_number is not an integer.
            ValueError: bytes_per_number is less than 1.

        Examples:
            >>> known_model("llama-3.1-8b").kv_cache_bytes_per_token()
            131072
        """
        check.positive(bytes_per_number=bytes_per_number)
        kinds = self.layer_kinds
        kept = sum(kind.layers * (kind.numbers + kind.together // kind.every) for kind in kinds)
        return kept * bytes_per_number

    def kv_cache_bytes(self, tokens: int, bytes_per_number: int = 2) -> int:
        """Bytes in the cache of a sequence: the sum over the kinds of layers.

        A window keeps its last tokens only, and the state of linear attention has a fixed size.

        Args:
            tokens: length of the sequence.
            bytes_per_number: 2 for float16 and bfloat16.

        Returns:
            An exact number.

        Raises:
            TypeError: an argument is not an integer.
            ValueError: an argument is less than 1.

        Examples:
            >>> mistral = known_model("mistral-7b-v0.1")  # with a window of 4096
            >>> mistral.kv_cache_bytes(10_000) == 4096 * 131_072
            True
        """
        check.positive(tokens=tokens, bytes_per_number=bytes_per_number)
        return sum(kind.kept(tokens) for kind in self.layer_kinds) * bytes_per_number

    def cost_sizes(self) -> dict[str, int]:
        """The arguments of `model_cost` that the model decides; others have their defaults.

        Returns:
            Names and sizes, without a width of the MLPs, which `ModelSizes` does not know.

        Raises:
            ValueError: the model is not `countable`.

        Examples:
            >>> known_model("mistral-7b-v0.1").cost_sizes()["window"]
            4096
        """
        _check_countable(self)
        names = ("layers", "embed_dim", "num_heads", "num_kv_heads", "head_dim", "window")
        sizes = {name: getattr(self, name) for name in (*names, "global_layers")}
        if self.latent:
            sizes |= asdict(self.latent)
            sizes["head_dim"] = sizes.pop("qk_nope_head_dim")
        return {name: size for name, size in sizes.items() if size is not None}

    def cost(self, tokens: int, **options: int) -> ModelCost:
        """Count what the model's attention costs.

        Args:
            tokens: length of each sequence; in decoding, of the cache.
            options: other arguments of `model_cost`, such as ``mlp_dim`` and ``batch``.

        Returns:
            Parameters, FLOPs and bytes.

        Raises:
            TypeError: an argument is not an integer.
            ValueError: as `model_cost`, or as `cost_sizes`.

        Examples:
            >>> known_model("llama-3.1-8b").cost(8192).cache_bytes == 2**30
            True
        """
        return model_cost(**self.cost_sizes(), tokens=tokens, **options)

    def kind_sizes(self) -> list[dict[str, Any]]:
        """The arguments of `kind_cost`, kind by kind; what has its default is left out.

        Returns:
            For each of `layer_kinds` its names and sizes.

        Examples:
            >>> local, whole = known_model("gemma-3-27b").kind_sizes()
            >>> local["layers"], local["window"], whole["layers"]
            (52, 1024, 10)
        """
        names = ["layers", "num_heads", "num_kv_heads", "head_dim", "sees", "window", "shared"]
        names += ["v_head_dim", "gate_rank", "every"]
        more: dict[str, Any] = {"output_gate": self.output_gate}
        if self.latent:
            more |= asdict(self.latent)
            more["head_dim"] = more.pop("qk_nope_head_dim")
        if self.compressed:
            more |= asdict(self.compressed)
        index: dict[str, Any] = {}
        if self.index:
            index = {"index_heads": self.index.num_heads, "index_dim": self.index.head_dim}
            index["top_keys"] = self.index.top_keys
        found = []
        for kind in self.layer_kinds:
            sizes = {name: getattr(kind, name) for name in names}
            sizes |= {} if kind.sees == "state" else more
            sizes |= index if kind.indexed or not self.mixed else {}
            sizes = {name: size for name, size in sizes.items() if size not in (None, False)}
            if kind.every == 1:
                del sizes["every"]
            found.append(sizes)
        return found

    def kind_costs(self) -> list[KindCost]:
        """What a layer of each kind keeps and multiplies.

        Returns:
            For each of `layer_kinds` what `kind_cost` counts.

        Examples:
            >>> local, whole = known_model("gemma-3-27b").kind_costs()
            >>> local.cached == whole.cached == 2 * 16 * 128
            True
        """
        return [kind_cost(self.embed_dim, **sizes) for sizes in self.kind_sizes()]

    def serving(self, tokens: int, device: Accelerator, **options: int) -> ServingCost:
        """Count what serving the model takes.

        Args:
            tokens: length of each sequence.
            device: one of `known_accelerator`, or your own.
            options: ``batch``, ``weight_bits``, ``cache_bits`` and ``devices`` of `serving_cost`.

        Returns:
            Memory and least times.

        Raises:
            TypeError: an argument is not an integer.
            ValueError: an argument is too small, the model is an encoder-decoder, or its sources
                don't say enough of its MLPs and vocabulary.

        Examples:
            >>> from mhattn.costs import known_accelerator
            >>> cost = known_model("mixtral-8x7b").serving(8192, known_accelerator("h100"))
            >>> round(cost.weight_bytes / 2**30), cost.fewest
            (87, 2)
        """
        if self.kind == "encoder-decoder":
            raise ValueError(f"the model must not be an encoder-decoder, got {self.title}")
        if self.mlp is None or self.vocabulary is None or self.tied is None:
            raise ValueError(f"MLP, vocabulary and tied must be known, not so of {self.title}")
        return serving_cost(
            self.kind_costs(),
            embed_dim=self.embed_dim,
            mlp=self.mlp,
            vocabulary=self.vocabulary,
            tied=self.tied,
            tokens=tokens,
            device=device,
            causal=self.kind == "decoder",
            learned_positions=self.learned_positions,
            **options,
        )


def known_models() -> tuple[str, ...]:
    """The names of all models, family by family.

    Returns:
        What `known_model` takes.

    Examples:
        >>> known_models()[:2]
        ('transformer-base', 'transformer-big')
    """
    return tuple(_models())


def known_model(name: str) -> ModelSizes:
    """Find a model by its name.

    Args:
        name: one of `known_models`.

    Returns:
        Its sizes.

    Raises:
        TypeError: name is not a string.
        ValueError: there is no such model; the error says which names come close.

    Examples:
        >>> bert = known_model("bert-base")
        >>> bert.num_heads, bert.head_dim
        (12, 64)
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    if name not in _models():
        close = difflib.get_close_matches(name.lower(), _models(), n=3)
        hint = f"; close: {', '.join(close)}" if close else ""
        raise ValueError(f"name must be one of known_models(), got {name!r}{hint}")
    return _models()[name]


def _check_countable(model: ModelSizes) -> None:
    if not model.countable:
        raise ValueError(f"the model must have layers of one kind, got {model.title}")


@cache
def _models() -> dict[str, ModelSizes]:
    text = Path(__file__).with_name("model_sizes.toml").read_text(encoding="utf-8")
    return {name: _model(name, table) for name, table in tomllib.loads(text).items()}


def _model(name: str, table: dict[str, Any]) -> ModelSizes:
    table = dict(table)
    if "kv_lora_rank" in table:
        names = [field.name for field in fields(LatentSizes)]
        latent = LatentSizes(**{name: table.pop(name, None) for name in names})
        table["latent"] = latent
        table["num_kv_heads"] = table["num_heads"]  # each head has keys and values of its own
        table["head_dim"] = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    if "mlp" in table:
        table["mlp"] = MlpSizes(**table["mlp"])
    if "index" in table:
        table["index"] = IndexSizes(**table["index"])
    if "compressed" in table:
        table["compressed"] = CompressedSizes(**table["compressed"])
    kinds = table.pop("mixed", ())
    more = tuple(table.pop("more_sources", ()))
    model = ModelSizes(name=name, **table, more_sources=more)
    return replace(model, mixed=tuple(_layers(model, **kind) for kind in kinds))


def _layers(model: ModelSizes, num_heads: int | None = None, **table: Any) -> LayerSizes:
    """One kind of a mixture: its cache, or its state, follows from its heads."""
    sizes = LayerSizes(num_heads=num_heads or model.num_heads, numbers=0, **table)
    value = sizes.v_head_dim or sizes.head_dim
    if sizes.sees == "state":  # a matrix for each head
        return replace(sizes, state=sizes.num_heads * sizes.head_dim * value)
    if sizes.shared:
        return sizes
    key = model.index.head_dim if model.index and sizes.indexed else 0  # the indexer's
    if sizes.every > 1:
        row = kv_cache_numbers(1, sizes.head_dim, 0)
        return replace(sizes, numbers=row, together=row + key)
    if model.latent or model.compressed:
        return replace(sizes, numbers=model.cached_per_layer)
    numbers = kv_cache_numbers(sizes.num_kv_heads, sizes.head_dim, value)
    return replace(sizes, numbers=numbers + key)
