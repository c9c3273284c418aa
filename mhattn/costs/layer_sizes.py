"""The sizes of the parts of known models: latents, indexers, MLPs and experts, kinds of layers."""

from dataclasses import dataclass

from mhattn.costs import integers as check

__all__ = ["CompressedSizes", "IndexSizes", "LatentSizes", "LayerSizes", "MlpSizes"]


@dataclass(frozen=True)
class LatentSizes:
    """The sizes of multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434).

    A token's keys and values, of all heads, are computed from one small vector, the latent. One
    part of the key, which carries the position, is computed apart and shared by all heads.

    Attributes:
        q_lora_rank: width of the latent that queries are computed from. None: they have none.
        kv_lora_rank: width of the latent that keys and values are computed from.
        qk_nope_head_dim: width of that part of a head's query and key that has no position.
        qk_rope_head_dim: width of the part that carries the position.
        v_head_dim: width of a head's value.
    """

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class IndexSizes:
    """The sizes of an indexer, which chooses the keys that a query attends to (DeepSeek-V3.2).

    It is a small attention of its own, whose heads share one key.

    Attributes:
        num_heads: number of heads of its query.
        head_dim: width of its query and key; the key is cached beside the latent.
        top_keys: how many keys the query then attends to, at most.
    """

    num_heads: int
    head_dim: int
    top_keys: int


@dataclass(frozen=True)
class CompressedSizes:
    """The sizes of attention that keeps one vector for several tokens (DeepSeek-V4).

    The vector is key and value at once, for all heads. Beside a window of single tokens, a layer
    keeps one for each ``every`` tokens (see `LayerSizes`), which a gate mixes.

    Attributes:
        q_lora_rank: width of the latent that queries are computed from.
        o_lora_rank: width that the output of each group of heads is projected to.
        output_groups: how many groups of heads there are.
    """

    q_lora_rank: int
    o_lora_rank: int
    output_groups: int


@dataclass(frozen=True)
class MlpSizes:
    """The sizes of what follows attention: an MLP, or experts of which each token has a few.

    Attributes:
        matrices: 3 in a gated MLP or expert, 2 in a plain one.
        dim: width inside of an MLP. None: all layers have experts.
        experts: how many a layer has to choose from. 0: none.
        per_token: how many of them a token is sent to.
        shared: how many more experts all tokens are sent to, in units of ``expert_dim``.
        expert_dim: width inside of an expert.
        dense_layers: how many layers have an MLP, where others have experts.
        expert_layers: how many have experts. None: all others.
        expert_embed: width that experts work on, between two projections. None: the model's.
    """

    matrices: int
    dim: int | None = None
    experts: int = 0
    per_token: int = 0
    shared: int = 0
    expert_dim: int = 0
    dense_layers: int = 0
    expert_layers: int | None = None
    expert_embed: int | None = None

    def parameters(self, embed_dim: int, layers: int, *, active: bool = False) -> int:
        """Count the matrices of these layers, and the routers'.

        Args:
            embed_dim: width of the model.
            layers: how many layers have an MLP or experts.
            active: whether to count only those that a token is sent to.

        Returns:
            An exact number.

        Examples:
            >>> MlpSizes(3, experts=8, per_token=2, expert_dim=7).parameters(5, 1)
            880
        """
        return mlp_weights(self, embed_dim, layers, self.per_token if active else self.experts)


# --8<-- [start:layers]
@dataclass(frozen=True)
class LayerSizes:
    """Layers of one kind, in a model that may have several.

    Attributes:
        sees: ``"all"`` earlier tokens; a ``"window"`` of the last ones; those of the same
            ``"chunk"``; or a ``"state"``, where linear attention sums up all of them.
        layers: how many.
        num_heads: number of heads of the query; in linear attention, of the value.
        num_kv_heads: number of heads of the key and value; in linear attention, of the key.
        head_dim: width of a head's query and key.
        numbers: what a layer caches of each token.
        window: how many tokens the window or the chunk holds.
        state: numbers that a layer keeps, however long the sequence.
        shared: whether the layers read the cache of others, and so keep nothing.
        v_head_dim: width of a head's value. None: that of its key.
        gate_rank: width of the latent that a linear layer's gates are computed from. None: none.
        indexed: whether an indexer chooses the keys, in a model where not all layers have one.
        every: how many tokens are kept together as well, as ``together`` numbers.
        together: numbers of each ``every`` tokens, in a layer that compresses.

    Raises:
        ValueError: by `kept`, if there are no tokens.
    """

    sees: str
    layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    numbers: int
    window: int | None = None
    state: int = 0
    shared: bool = False
    v_head_dim: int | None = None
    gate_rank: int | None = None
    indexed: bool = False
    every: int = 1
    together: int = 0

    def kept(self, tokens: int) -> int:
        """Count the numbers that all these layers keep of a sequence; of a chunk, its full room.

        Args:
            tokens: length of the sequence.

        Returns:
            An exact number.

        Raises:
            TypeError: tokens is not an integer.
            ValueError: tokens is less than 1.

        Examples:
            >>> from mhattn.costs import known_model
            >>> linear, full = known_model("qwen3-next-80b-a3b").layer_kinds
            >>> linear.kept(1000) == linear.kept(1) == 36 * 32 * 128 * 128
            True
            >>> full.kept(1000) == 12 * 1000 * 2 * 2 * 256
            True
        """
        check.positive(tokens=tokens)
        seen = tokens if self.window is None else min(tokens, self.window)
        older = tokens // self.every * self.together
        return self.layers * (seen * self.numbers + older + self.state)
        # --8<-- [end:layers]


# The calculator of the site has these three in JavaScript, docs/assets/costs.js, and a test
# compares both over a grid of cases. Whole numbers alone keep them equal to the last digit: parts
# of 10^18 stand for a probability.


def mlp_weights(mlp: MlpSizes, embed_dim: int, layers: int, taken: int) -> int:
    """The matrices of MLPs, of so many routed experts a layer, and of the routers."""
    dense = embed_dim * mlp.matrices * (0 if mlp.dim is None else mlp.dim)
    if mlp.experts == 0:
        return layers * dense
    inner = embed_dim if mlp.expert_embed is None else mlp.expert_embed
    # One projection before the experts and one behind them, where they work on fewer numbers.
    around = 0 if mlp.expert_embed is None else 2 * mlp.expert_embed
    sparse = inner * mlp.matrices * mlp.expert_dim * (taken + mlp.shared)
    # The router reads the whole token, however narrow the experts are.
    sparse += embed_dim * (mlp.experts + around)
    count = layers - mlp.dense_layers if mlp.expert_layers is None else mlp.expert_layers
    return mlp.dense_layers * dense + count * sparse


def mlps_met(mlp: MlpSizes, embed_dim: int, layers: int, tokens: int) -> int:
    """What is read of the MLPs if so many tokens choose their experts evenly, at random."""
    always = mlp_weights(mlp, embed_dim, layers, 0)
    if mlp.experts == 0:
        return always
    routed = mlp_weights(mlp, embed_dim, layers, mlp.experts) - always
    unmet = unmet_parts(mlp.experts - mlp.per_token, mlp.experts, tokens)
    return always + routed - routed * unmet // 1_000_000_000_000_000_000


def unmet_parts(others: int, experts: int, tokens: int) -> int:
    """``(others / experts) ** tokens`` in parts of 10^18: that no token chooses an expert."""
    if tokens == 0:
        return 1_000_000_000_000_000_000
    # By squares: a million tokens take twenty steps, and are rounded twenty times instead of a
    # million.
    half = unmet_parts(others, experts, tokens // 2)
    square = half * half // 1_000_000_000_000_000_000
    return square * others // experts if tokens % 2 == 1 else square
