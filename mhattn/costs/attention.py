"""What attention costs, by counting: exact integers, no torch.

One multiplication (with its addition) is two FLOPs, so a product of ``(m, k)`` and ``(k, p)`` has
``m k p`` multiplications and ``2 m k p`` FLOPs. Left out, as in `torch.utils.flop_counter`: adding
biases, scaling, masking and dropout. The softmax is counted apart, in exponentials.
"""

from dataclasses import dataclass

from mhattn.costs import integers as check

__all__ = [
    "AttentionCost",
    "CostStep",
    "attention_cost",
    "kv_cache_bytes",
    "kv_cache_numbers",
    "latent_multiplications",
    "latent_parameters",
]


@dataclass(frozen=True)
class CostStep:
    """One product of matrices, perhaps many at once.

    Attributes:
        name: what is computed.
        count: how many products of this shape.
        rows: rows of the left matrix.
        inner: columns of the left matrix, rows of the right one.
        columns: columns of the right matrix.
        parameters: how many trained numbers take part, biases included.
    """

    name: str
    count: int
    rows: int
    inner: int
    columns: int
    parameters: int = 0

    @property
    def multiplications(self) -> int:
        """``count * rows * inner * columns``."""
        return self.count * self.rows * self.inner * self.columns

    @property
    def flops(self) -> int:
        """Two for each multiplication: itself and an addition."""
        return 2 * self.multiplications

    @property
    def product(self) -> str:
        """The shapes, as ``8 × (5, 64) (64, 7)``."""
        times = f"{self.count} × " if self.count > 1 else ""
        return f"{times}({self.rows}, {self.inner}) ({self.inner}, {self.columns})"


@dataclass(frozen=True)
class AttentionCost:
    """The cost of one forward pass, step by step; printed, it is a table.

    Attributes:
        steps: the products of matrices, in order; ``cost["scores"]`` finds one by its name.
        exponentials: how many the softmax computes, one for each score.
    """

    steps: tuple[CostStep, ...]
    exponentials: int

    @property
    def parameters(self) -> int:
        """Trained numbers, in all four projections."""
        return sum(step.parameters for step in self.steps)

    @property
    def multiplications(self) -> int:
        """Of all steps, without the softmax."""
        return sum(step.multiplications for step in self.steps)

    @property
    def flops(self) -> int:
        """Of all steps, without the softmax."""
        return sum(step.flops for step in self.steps)

    def __getitem__(self, name: str) -> CostStep:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"no step {name!r}, only {', '.join(step.name for step in self.steps)}")

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("step", "product", "parameters", "multiplications", "flops")
        ]
        for step in self.steps:
            numbers = (step.parameters, step.multiplications, step.flops)
            rows.append((step.name, step.product, *(f"{n:,}" for n in numbers)))
        totals = (self.parameters, self.multiplications, self.flops)
        rows.append(("total", "", *(f"{n:,}" for n in totals)))
        # Below the total, for exponentials are no multiplications: the total does not hold them.
        rows.append(("softmax", f"{self.exponentials:,} exponentials", "", "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(_line(row, widths) for row in rows)


def attention_cost(
    embed_dim: int,
    num_heads: int,
    *,
    query_len: int,
    key_len: int | None = None,
    batch: int = 1,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    bias: bool = True,
) -> AttentionCost:
    """Count what one forward pass of multi-head attention costs.

    With a causal mask, half of the scores are not needed; they are counted here all the
    same, as the written-out formula computes them.

    Args:
        embed_dim: width of the query, key, value and output.
        num_heads: number of heads of the query.
        query_len: number of queries.
        key_len: number of keys. Default: ``query_len``.
        batch: number of sequences.
        num_kv_heads: number of heads of the key and value. Default: ``num_heads``.
        head_dim: width of a head. Default: ``embed_dim / num_heads``.
        bias: whether the four projections add a bias.

    Returns:
        Parameters, multiplications and FLOPs, step by step.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, num_heads does not divide embed_dim and no
            head_dim is given, or num_kv_heads does not divide num_heads.

    Examples:
        >>> print(attention_cost(8, 2, query_len=4, bias=False))
        step     product            parameters  multiplications  flops
        query    (4, 8) (8, 8)              64              256    512
        key      (4, 8) (8, 8)              64              256    512
        value    (4, 8) (8, 8)              64              256    512
        scores   2 × (4, 4) (4, 4)           0              128    256
        mix      2 × (4, 4) (4, 4)           0              128    256
        output   (4, 8) (8, 8)              64              256    512
        total                              256            1,280  2,560
        softmax  32 exponentials
    """
    sizes = {"embed_dim": embed_dim, "num_heads": num_heads, "query_len": query_len, "batch": batch}
    sizes |= {"key_len": query_len if key_len is None else key_len}
    sizes |= {"num_kv_heads": num_heads if num_kv_heads is None else num_kv_heads}
    # Defaults are filled in first, so each size is checked once, under the name that a caller
    # knows.
    check.positive(**sizes)
    if head_dim is None:
        check.divides("num_heads", num_heads, "embed_dim", embed_dim)
        head_dim = embed_dim // num_heads
    check.positive(head_dim=head_dim)
    key_len, num_kv_heads = sizes["key_len"], sizes["num_kv_heads"]
    check.divides("num_kv_heads", num_kv_heads, "num_heads", num_heads)

    def project(name: str, length: int, width_in: int, width_out: int) -> CostStep:
        # A bias is one more row of the matrix. It is added, and so costs no multiplication.
        parameters = (width_in + bias) * width_out
        return CostStep(name, 1, batch * length, width_in, width_out, parameters)

    q_width, kv_width = num_heads * head_dim, num_kv_heads * head_dim
    steps = (
        project("query", query_len, embed_dim, q_width),
        project("key", key_len, embed_dim, kv_width),
        project("value", key_len, embed_dim, kv_width),
        # All heads of the query, however few KV heads there are: shared heads save memory and
        # projections, no scores.
        CostStep("scores", batch * num_heads, query_len, head_dim, key_len),
        CostStep("mix", batch * num_heads, query_len, key_len, head_dim),
        project("output", query_len, q_width, embed_dim),
    )
    return AttentionCost(steps, exponentials=batch * num_heads * query_len * key_len)


def latent_parameters(
    embed_dim: int,
    num_heads: int,
    *,
    kv_lora_rank: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    q_lora_rank: int | None = None,
) -> int:
    """Count the weights of one layer of latent attention, in its matrices, without the norms.

    Args:
        embed_dim: width of the input and of the output.
        num_heads: number of heads.
        kv_lora_rank: width of the latent that keys and values are computed from.
        qk_nope_head_dim: width of that part of a head's query and key that has no position.
        qk_rope_head_dim: width of the part that carries the position.
        v_head_dim: width of a head's value.
        q_lora_rank: width of the latent that queries are computed from. Default: there is none.

    Returns:
        An exact number.

    Examples:
        >>> latent_parameters(
        ...     8, 2, kv_lora_rank=3, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4
        ... ) == 8 * 2 * (4 + 2) + 8 * (3 + 2) + 3 * 2 * (4 + 4) + 2 * 4 * 8
        True
    """
    q_width = num_heads * (qk_nope_head_dim + qk_rope_head_dim)
    queries = embed_dim * q_width
    if q_lora_rank is not None:
        # Two thin matrices, down to the latent and up to the heads, in the place of one wide
        # matrix.
        queries = q_lora_rank * (embed_dim + q_width)
    # The part that is turned comes from the token, not from the latent. If it came from the latent,
    # its turn would stand between two matrices, and they could not be multiplied once and for all.
    down = embed_dim * (kv_lora_rank + qk_rope_head_dim)
    up = kv_lora_rank * num_heads * (qk_nope_head_dim + v_head_dim)
    return queries + down + up + num_heads * v_head_dim * embed_dim


# --8<-- [start:latent_multiplications]
def latent_multiplications(
    query_len: int,
    key_len: int,
    *,
    kv_lora_rank: int,
    qk_nope_head_dim: int,
    qk_rope_head_dim: int,
    v_head_dim: int,
    absorb: bool,
) -> int:
    """Count the multiplications of one head of `mhattn.variants.latent_attention`.

    Args:
        query_len: number of queries.
        key_len: number of tokens that are kept.
        kv_lora_rank: width of the latent that keys and values are computed from.
        qk_nope_head_dim: width of that part of a head's query and key that has no position.
        qk_rope_head_dim: width of the part that carries the position.
        v_head_dim: width of a head's value.
        absorb: whether queries go to the latents, or keys and values come from them.

    Returns:
        An exact number.

    Examples:
        One query and ten tokens: two products with the matrices instead of twenty.

        >>> sizes = {"kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2}
        >>> latent_multiplications(1, 10, **sizes, v_head_dim=4, absorb=True)
        244
        >>> latent_multiplications(1, 10, **sizes, v_head_dim=4, absorb=False)
        740
    """
    up = kv_lora_rank * (qk_nope_head_dim + v_head_dim)  # for a query and an output, or a token
    if absorb:
        score, mix = kv_lora_rank + qk_rope_head_dim, kv_lora_rank
        return query_len * up + query_len * key_len * (score + mix)
    score, mix = qk_nope_head_dim + qk_rope_head_dim, v_head_dim
    return key_len * up + query_len * key_len * (score + mix)
    # --8<-- [end:latent_multiplications]


# --8<-- [start:kv_cache_numbers]
def kv_cache_numbers(num_kv_heads: int, key_dim: int, value_dim: int) -> int:
    """Count the numbers that one layer keeps of each token.

    Args:
        num_kv_heads: number of heads of the key and value; 1 in latent attention.
        key_dim: width of a head's key; in latent attention of the latent and the shared key.
        value_dim: width of a head's value; 0 in latent attention, which keeps none.

    Returns:
        An exact number.

    Examples:
        Llama 3.1 8B, and DeepSeek-V3 with its latent of 512 numbers.

        >>> kv_cache_numbers(8, 128, 128), kv_cache_numbers(1, 512 + 64, 0)
        (2048, 576)
    """
    return num_kv_heads * (key_dim + value_dim)
    # --8<-- [end:kv_cache_numbers]


def kv_cache_bytes(
    tokens: int,
    numbers: int,
    *,
    layers: int = 1,
    bytes_per_number: int = 2,
    window: int | None = None,
    global_layers: int = 0,
) -> int:
    """Count the bytes in the KV cache of a sequence, where a window keeps its last tokens only.

    Args:
        tokens: length of the sequence.
        numbers: what a layer keeps of each token, from `kv_cache_numbers`.
        layers: number of layers.
        bytes_per_number: 2 for float16 and bfloat16.
        window: how many tokens a sliding-window layer sees. None: no layer has a window.
        global_layers: how many layers have no window, if others have one.

    Returns:
        An exact number.

    Raises:
        TypeError: tokens or bytes_per_number is not an integer.
        ValueError: one of them is less than 1.

    Examples:
        >>> kv_cache_bytes(1000, 2048, layers=32) == 1000 * 32 * 2048 * 2
        True
        >>> kv_cache_bytes(1000, 2048, layers=32, window=100, global_layers=2)
        20480000
    """
    check.positive(tokens=tokens, bytes_per_number=bytes_per_number)
    kept = layers * tokens
    if window is not None:
        # What a layer with a window cannot see any more, it drops: its cache stops growing at the
        # window.
        kept = global_layers * tokens + (layers - global_layers) * min(tokens, window)
    return kept * numbers * bytes_per_number


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join(left + right).rstrip()
