"""The heads of known models: what their sources say, and what follows by counting.

The numbers stand in ``model_sizes.toml`` beside this file, each model's with the source that they
were read in. The rest is counted by `mhattn.costs`. Nothing here needs torch.
"""

import difflib
import tomllib
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from mhattn.costs import attention_cost, kv_cache_bytes, kv_cache_numbers, latent_parameters
from mhattn.model_costs import ModelCost, model_cost

__all__ = ["LatentSizes", "ModelSizes", "known_model", "known_models"]


@dataclass(frozen=True)
class LatentSizes:
    """The sizes of multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434).

    A token's keys and values, of all heads, are computed from one small vector, the latent. One
    part of the key, which carries the position, is computed apart and shared by all heads.

    Attributes:
        q_lora_rank: width of the latent that queries are computed from.
        kv_lora_rank: width of the latent that keys and values are computed from.
        qk_nope_head_dim: width of that part of a head's query and key that has no position.
        qk_rope_head_dim: width of the part that carries the position.
        v_head_dim: width of a head's value.
    """

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


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
            that loads the owner's weights; ``"paper"``, a table of the paper, as reported.
        window: how many tokens a sliding-window layer sees. None: no layer has a window.
        global_layers: how many layers have no window, if others have one.
        latent: the sizes of latent attention. None: it has none.
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
        """Width of a head's value, which is ``head_dim`` but in latent attention."""
        return self.latent.v_head_dim if self.latent else self.head_dim

    @property
    def attention(self) -> str:
        """``"MHA"``, ``"GQA"``, ``"MQA"`` or ``"MLA"``."""
        if self.latent:
            return "MLA"
        if self.num_kv_heads == self.num_heads:
            return "MHA"
        return "MQA" if self.num_kv_heads == 1 else "GQA"

    @property
    def attention_parameters(self) -> int:
        """Weights of the projections, in all layers, without biases.

        In an encoder-decoder, each decoder layer attends twice: to itself and to the encoder.
        """
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
        """Numbers that one layer of a decoder keeps for each token.

        An encoder has no later tokens to keep them for.
        """
        if self.kind == "encoder":
            return 0
        if self.latent:  # a row that all heads share, and no values
            row = self.latent.kv_lora_rank + self.latent.qk_rope_head_dim
            return kv_cache_numbers(1, row, 0)
        return kv_cache_numbers(self.num_kv_heads, self.head_dim, self.head_dim)

    # --8<-- [end:cached]

    def kv_cache_bytes_per_token(self, bytes_per_number: int = 2) -> int:
        """Bytes in the KV cache for one token, in all layers, as long as no window is full.

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
        return kv_cache_bytes(
            1, self.cached_per_layer, layers=self.layers, bytes_per_number=bytes_per_number
        )

    def kv_cache_bytes(self, tokens: int, bytes_per_number: int = 2) -> int:
        """Bytes in the KV cache of a sequence, where a window keeps its last tokens only.

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
        return kv_cache_bytes(
            tokens,
            self.cached_per_layer,
            layers=self.layers,
            bytes_per_number=bytes_per_number,
            window=self.window,
            global_layers=self.global_layers or 0,
        )

    def cost_sizes(self) -> dict[str, int]:
        """The arguments of `model_cost` that the model decides; others have their defaults.

        Returns:
            Names and sizes, without a width of the MLPs, which `ModelSizes` does not know.

        Raises:
            ValueError: the model is an encoder-decoder, whose layers are of two kinds.

        Examples:
            >>> known_model("mistral-7b-v0.1").cost_sizes()["window"]
            4096
        """
        _check_one_kind(self)
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


def known_models() -> tuple[str, ...]:
    """The names of all models, family by family.

    Returns:
        What `known_model` takes.

    Examples:
        >>> len(known_models())
        64
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


def _check_one_kind(model: ModelSizes) -> None:
    if model.kind == "encoder-decoder":
        raise ValueError(f"the model must have layers of one kind, got {model.title}")


@cache
def _models() -> dict[str, ModelSizes]:
    text = Path(__file__).with_name("model_sizes.toml").read_text(encoding="utf-8")
    return {name: _model(name, table) for name, table in tomllib.loads(text).items()}


def _model(name: str, table: dict[str, Any]) -> ModelSizes:
    table = dict(table)
    if "kv_lora_rank" in table:
        latent = LatentSizes(**{field.name: table.pop(field.name) for field in fields(LatentSizes)})
        table["latent"] = latent
        table["num_kv_heads"] = table["num_heads"]  # each head has keys and values of its own
        table["head_dim"] = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    return ModelSizes(name=name, **table)
