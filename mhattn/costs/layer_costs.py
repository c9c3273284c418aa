"""What one layer of each kind costs: parameters, FLOPs, cache; exact integers, no torch.

`mhattn.costs.attention` counts the products of dense attention and `mhattn.costs.model_costs` a
whole model. Here all kinds of the package stand beside one another, each as the package computes
it. `mhattn.costs.layer_peaks` has their memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from mhattn.costs import integers as check
from mhattn.costs.attention import attention_cost, kv_cache_numbers, latent_parameters
from mhattn.costs.model_costs import visible_pairs

__all__ = ["LayerCost"]


# --8<-- [start:LayerCost]
@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """What self-attention costs in one layer, with queries as long as keys.

    These are the kinds, and what some of them need besides:

    - ``"fused"``: `attention`; ``"written"``: the same with the weights returned.
    - ``"alibi"``: with `Alibi`; ``"learned"``: with `LearnedBias` for ``tokens`` positions;
      ``"relative"``: with `RelativePosition`, ``max_distance``.
    - ``"tiled"``: `tiled_attention`; ``"linear"``: `linear_attention`; both by ``block``.
    - ``"local"``: `local_attention`, ``window``; ``"strided"``: `strided_attention`, ``window``
      and ``stride``.
    - ``"latent"``: `LatentAttention`, expanded; ``"absorbed"``: absorbed. Both have the widths of
      `latent_parameters`, where ``head_dim`` is ``qk_nope_head_dim``.

    There is no kind for `gated_delta_attention` and `GatedDelta`, `top_k_attention`,
    `soft_capped_attention` and `NormedAttention`; the error says why. With `Rotary` it is that
    without.

    Attributes:
        kind: one of those above.
        embed_dim: width of the model.
        num_heads: number of heads of the query.
        head_dim: width of a head.
        tokens: length of each sequence; in decoding, of the cache.
        num_kv_heads: number of heads of the key and value. Default: ``num_heads``.
        batch: number of sequences.
        bytes_per_number: 4 for float32, 2 for float16 and bfloat16.
        is_causal: whether no query sees a later key.
        bias: whether the projections of `mhattn.MultiHeadAttention` add one.
        window: how many keys a local query sees, the last of them its own.
        stride: how far apart the keys are that a strided query sees beyond its window.
        block: positions in a tile or in a chunk.
        max_distance: up to which distance relative positions have vectors of their own.
        kv_lora_rank: width of the latent that keys and values are computed from.
        qk_rope_head_dim: width of the part of a latent layer's key that all heads share.
        v_head_dim: width of a latent layer's value.
        q_lora_rank: width of the latent that queries are computed from. Default: there is none.

    Raises:
        TypeError: a size is not an integer.
        ValueError: there is no such kind, a size is less than 1, num_kv_heads does not divide
            num_heads, or strided attention is not causal.

    Examples:
        Scores and mixing as they are computed, and those that the window leaves.

        >>> sizes = {"embed_dim": 512, "num_heads": 8, "head_dim": 64, "tokens": 4096}
        >>> dense = LayerCost(kind="fused", **sizes)
        >>> local = LayerCost(kind="local", **sizes, window=64)
        >>> dense.core_flops // local.core_flops, dense.core_flops // local.visible_core_flops
        (43, 64)
        >>> dense.parameters == local.parameters, dense.cache_bytes // local.cache_bytes
        (True, 64)
    """

    kind: str
    embed_dim: int
    num_heads: int
    head_dim: int
    tokens: int
    num_kv_heads: int | None = None
    batch: int = 1
    bytes_per_number: int = 4
    is_causal: bool = True
    bias: bool = True
    window: int = 1
    stride: int = 1
    block: int = 64
    max_distance: int = 1
    kv_lora_rank: int = 1
    qk_rope_head_dim: int = 1
    v_head_dim: int = 1
    q_lora_rank: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            why = f"; {UNCOUNTED[self.kind]}" if self.kind in UNCOUNTED else ""
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}{why}")
        for name, size in vars(self).items():
            if name not in ("kind", "is_causal", "bias") and size is not None:
                check.at_least(name, size, 1)
        check.divides("num_kv_heads", self.kv_heads, "num_heads", self.num_heads)
        if self.kind == "strided" and not self.is_causal:
            raise ValueError(f"with a stride, is_causal must be True, got {self.is_causal}")

    @property
    def kv_heads(self) -> int:
        """Heads of the key and value."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def projections(self) -> int:
        """Numbers in the matrices that each token meets once, before and after the core."""
        if self.kind in LATENT:
            expanded = self.num_heads * (self.head_dim + self.v_head_dim)
            return latent_weights(self) - self.kv_lora_rank * expanded
        return dense_weights(self, bias=False)

    @property
    def parameters(self) -> int:
        """All trained numbers: matrices, their biases, norms, and those of distances."""
        if self.kind in LATENT:
            return latent_weights(self) + self.kv_lora_rank + (self.q_lora_rank or 0)
        parameters = dense_weights(self, bias=self.bias)
        if self.kind == "learned":
            parameters += self.num_heads * (2 * self.tokens - 1)
        if self.kind == "relative":
            parameters += 2 * (2 * self.max_distance + 1) * self.head_dim
        return parameters

    @property
    def forward_flops(self) -> int:
        """Of a forward pass as it is computed, hidden scores and padding included."""
        return 2 * self.batch * self.tokens * self.projections + self.core_flops

    @property
    def core_flops(self) -> int:
        """Of what lies between the projections, as it is computed: scores and mixing."""
        return 2 * self.batch * self.num_heads * sum(COMPUTED[self.kind](self))

    @property
    def visible_core_flops(self) -> int:
        """The same with the scores only that the mask leaves: causal attention takes half."""
        return 2 * self.batch * self.num_heads * VISIBLE[self.kind](self)

    @property
    def training_flops(self) -> int:
        """Of a forward and a backward pass, down to the input, as they are computed.

        Backwards, a product takes two more, and a pair of them in a fused kernel takes five: the
        scores are computed again. With learned distances, each block is computed again as well,
        from beginning to end (torch may leave out the last product), and no kernel is fused.
        """
        plain, fused = COMPUTED[self.kind](self)
        core = self.num_heads * (6 * plain + 7 * fused)
        if self.kind in ("learned", "relative"):
            core = 8 * self.num_heads * (plain + fused)
        if self.kind == "linear" and self.is_causal:
            core -= self.num_heads * unused(self)
        return self.batch * (6 * self.tokens * self.projections + core)

    @property
    def decode_flops(self) -> int:
        """Of one more token of each sequence, the last of ``tokens`` in the cache."""
        return 2 * self.batch * (self.projections + self.num_heads * DECODED[self.kind](self))

    @property
    def cache_bytes(self) -> int:
        """What the next token needs of all before it: a window of them, or a state."""
        numbers = kv_cache_numbers(self.kv_heads, self.head_dim, self.head_dim)
        kept, size = self.tokens, self.bytes_per_number
        if self.kind == "local":
            kept = min(self.tokens, self.window)
        elif self.kind in LATENT:
            numbers = kv_cache_numbers(1, self.kv_lora_rank + self.qk_rope_head_dim, 0)
        elif self.kind == "linear":  # in float32 at least, for each head of the query
            numbers = self.num_heads * self.head_dim * (self.head_dim + 1)
            kept, size = 1, max(4, self.bytes_per_number)
        return self.batch * kept * numbers * size
        # --8<-- [end:LayerCost]


LATENT = ("latent", "absorbed")


def dense_weights(layer: LayerCost, *, bias: bool) -> int:
    """Numbers in the four projections."""
    heads = {"num_kv_heads": layer.kv_heads, "head_dim": layer.head_dim}
    cost = attention_cost(layer.embed_dim, layer.num_heads, query_len=1, bias=bias, **heads)
    return cost.parameters


def latent_weights(layer: LayerCost) -> int:
    """Numbers in the matrices of latent attention."""
    return latent_parameters(
        layer.embed_dim,
        layer.num_heads,
        kv_lora_rank=layer.kv_lora_rank,
        qk_nope_head_dim=layer.head_dim,
        qk_rope_head_dim=layer.qk_rope_head_dim,
        v_head_dim=layer.v_head_dim,
        q_lora_rank=layer.q_lora_rank,
    )


# Multiplications of one head, as they are computed: in plain products, and in fused kernels.


def dense(layer: LayerCost) -> tuple[int, int]:
    """A fused kernel may skip what is hidden, but doesn't say what: all of it is counted."""
    return 0, 2 * layer.head_dim * layer.tokens**2


def written(layer: LayerCost) -> tuple[int, int]:
    return 2 * layer.head_dim * layer.tokens**2, 0


def tiled(layer: LayerCost) -> tuple[int, int]:
    return 2 * layer.head_dim * in_blocks(layer, layer.block), 0


def learned(layer: LayerCost) -> tuple[int, int]:
    return 0, 2 * layer.head_dim * in_blocks(layer, 256)


def relative(layer: LayerCost) -> tuple[int, int]:
    """A query meets the vectors of all distances, too, and its weights their values."""
    scores = in_blocks(layer, min(max(32, 2**18 // layer.tokens), 128))
    return 2 * layer.head_dim * (scores + layer.tokens * (2 * layer.max_distance + 1)), 0


def in_blocks(layer: LayerCost, size: int) -> int:
    """Scores of blocks of queries; in a causal call, with the keys up to the block's end."""
    n = layer.tokens
    if not layer.is_causal:
        return n * n
    blocks, rest = divmod(n, size)
    return size * size * blocks * (blocks + 1) // 2 + rest * n


def linear(layer: LayerCost) -> tuple[int, int]:
    """Keys into the state, queries with the state; in a causal call a table in each chunk."""
    chunks, rest = divmod(layer.tokens, layer.block)
    tables = chunks * layer.block**2 + rest**2 if layer.is_causal else 0
    return visible_linear(layer) + tables * (2 * layer.head_dim + 1), 0


def unused(layer: LayerCost) -> int:
    """FLOPs of gradients that are not there: of the empty first state, and by the last one."""
    first = min(layer.block, layer.tokens)
    last = (layer.tokens - 1) % layer.block + 1
    return 2 * layer.head_dim * (layer.head_dim + 1) * (first + 2 * last)


def local(layer: LayerCost) -> tuple[int, int]:
    return 0, 2 * layer.head_dim * in_windows(layer)


def in_windows(layer: LayerCost) -> int:
    """Scores of the first queries, of equal blocks and of the rest: `mhattn.variants.sparse`."""
    n, back = layer.tokens, layer.window - 1
    ahead = 0 if layer.is_causal else back
    size, first = max(32, layer.window // 2), min(back, n)
    blocks = max(0, n - ahead - first) // size
    rest = n - first - blocks * size
    scores = first * min(n, first + ahead) + blocks * size * (size + back + ahead)
    return scores + rest * (n - max(0, n - rest - back))


def strided(layer: LayerCost) -> tuple[int, int]:
    """The window, and down each column of rows of ``stride``, the keys of the stride."""
    width = padded(layer.head_dim)
    far = layer.stride * far_rows(layer) ** 2
    return 2 * layer.head_dim * in_windows(layer), 2 * width * far


def far_rows(layer: LayerCost) -> int:
    """Rows that see the stride, and as many that are seen, a first one for the window included."""
    rows = -(-layer.tokens // layer.stride) - -(-layer.window // layer.stride)
    return rows + 1 if rows > 0 else 0


def padded(head_dim: int) -> int:
    """One number more, and then up to the next multiple of 8."""
    return head_dim + 8 - head_dim % 8


def latent(layer: LayerCost) -> tuple[int, int]:
    """A fused kernel wants values as wide as keys, so the narrower of the two are padded."""
    return up(layer), 2 * fused_width(layer) * layer.tokens**2


def up(layer: LayerCost) -> int:
    """Of latents to keys and values; absorbed, of queries to latents, and of latents to heads."""
    return layer.tokens * layer.kv_lora_rank * (layer.head_dim + layer.v_head_dim)


def fused_width(layer: LayerCost) -> int:
    if layer.kind == "absorbed":
        return layer.kv_lora_rank + layer.qk_rope_head_dim
    return max(layer.head_dim + layer.qk_rope_head_dim, layer.v_head_dim)


# Multiplications of one head, with no more scores than the mask leaves.


def visible(layer: LayerCost) -> int:
    return 2 * layer.head_dim * seen_pairs(layer)


def seen_pairs(layer: LayerCost) -> int:
    n, reach = layer.tokens, layer.tokens
    if layer.kind in ("local", "strided"):
        reach = min(n, layer.window)
    if layer.is_causal:
        return visible_pairs(n, n, reach)
    return 2 * visible_pairs(n, n, reach) - n


def visible_relative(layer: LayerCost) -> int:
    return visible(layer) + 2 * layer.head_dim * layer.tokens * (2 * layer.max_distance + 1)


def visible_linear(layer: LayerCost) -> int:
    """With no tables: position by position."""
    return 2 * layer.tokens * layer.head_dim * (layer.head_dim + 1)


def visible_strided(layer: LayerCost) -> int:
    first = min(layer.tokens, layer.window - 1)  # the first query with a full window
    within = (layer.tokens - first) * (first // layer.stride)  # steps that stay in the window
    far = steps(layer.tokens, layer.stride) - steps(first, layer.stride) - within
    return visible(layer) + 2 * layer.head_dim * far


def steps(n: int, stride: int) -> int:
    """How many steps of the stride lead back to the start, of n positions together."""
    rows, rest = divmod(n, stride)
    return stride * rows * (rows - 1) // 2 + rows * rest


def visible_latent(layer: LayerCost) -> int:
    widths = layer.head_dim + layer.qk_rope_head_dim + layer.v_head_dim
    if layer.kind == "absorbed":
        widths = 2 * layer.kv_lora_rank + layer.qk_rope_head_dim
    return up(layer) + widths * seen_pairs(layer)


# Multiplications of one head for one query, the last; a dense kind computes all that it sees.


def step(layer: LayerCost) -> int:
    return 2 * layer.head_dim * layer.tokens


def local_step(layer: LayerCost) -> int:
    return 2 * layer.head_dim * min(layer.tokens, layer.window)


def strided_step(layer: LayerCost) -> int:
    last, near = layer.tokens - 1, min(layer.tokens, layer.window)
    far = last // layer.stride - (near - 1) // layer.stride
    return 2 * layer.head_dim * (near + far)


def relative_step(layer: LayerCost) -> int:
    return 2 * layer.head_dim * (layer.tokens + 2 * layer.max_distance + 1)


def linear_step(layer: LayerCost) -> int:
    return sum(linear(replace(layer, tokens=1, is_causal=True)))


def latent_step(layer: LayerCost) -> int:
    ups = up(layer) if layer.kind == "latent" else up(replace(layer, tokens=1))
    return ups + 2 * fused_width(layer) * layer.tokens


Products = Callable[[LayerCost], tuple[int, int]]
Count = Callable[[LayerCost], int]
KINDS: dict[str, tuple[Products, Count, Count]] = {  # as computed, visible, a step
    "fused": (dense, visible, step),
    "written": (written, visible, step),
    "alibi": (dense, visible, step),
    "learned": (learned, visible, step),
    "relative": (relative, visible_relative, relative_step),
    "tiled": (tiled, visible, step),
    "linear": (linear, visible_linear, linear_step),
    "local": (local, visible, local_step),
    "strided": (strided, visible_strided, strided_step),
    "latent": (latent, visible_latent, latent_step),
    "absorbed": (latent, visible_latent, latent_step),
}
# The name in the package of what each kind counts, and of what attends but is not counted.
COUNTED = {
    "fused": "attention",
    "written": "attention",
    "alibi": "Alibi",
    "learned": "LearnedBias",
    "relative": "RelativePosition",
    "tiled": "tiled_attention",
    "linear": "linear_attention",
    "local": "local_attention",
    "strided": "strided_attention",
    "latent": "LatentAttention",
    "absorbed": "LatentAttention",
}
SYSTEM = "it solves a triangular system in each chunk, whose FLOPs torch does not count"
UNCOUNTED = {
    "gated_delta_attention": SYSTEM,
    "GatedDelta": SYSTEM,
    "top_k_attention": "what scores the keys is the caller's, and so is what it costs",
    "soft_capped_attention": "its products are those of 'written'; the cap has none",
    "NormedAttention": "its products are those of 'fused'; the norms have none",
    "recurrent_linear_attention": "it is the definition of 'linear', for comparison",
    "relative_attention": "it is the definition of 'relative', for comparison",
    **dict.fromkeys(
        ["exchange_attention", "ring_attention", "split_attention"],
        "its products are those of 'tiled', over the processes; mhattn.parallel counts their bytes",
    ),
    "weights_of_call": "it shows what a fused call does; its products are those of 'written'",
    "Rotary": "turning has no products: it is that without",
}
COMPUTED: dict[str, Products] = {kind: counts[0] for kind, counts in KINDS.items()}
VISIBLE: dict[str, Count] = {kind: counts[1] for kind, counts in KINDS.items()}
DECODED: dict[str, Count] = {kind: counts[2] for kind, counts in KINDS.items()}
