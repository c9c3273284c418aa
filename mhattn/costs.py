"""What attention costs, by counting: exact integers, no torch.

One multiplication (with its addition) is two FLOPs, so a product of ``(m, k)`` and ``(k, p)`` has
``m k p`` multiplications and ``2 m k p`` FLOPs. Left out, as in `torch.utils.flop_counter`: adding
biases, scaling, masking and dropout. The softmax is counted apart, in exponentials.
"""

from dataclasses import dataclass

__all__ = ["AttentionCost", "CostStep", "attention_cost"]


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
    _check_positive(**sizes)
    if head_dim is None:
        _check_divides("num_heads", num_heads, "embed_dim", embed_dim)
        head_dim = embed_dim // num_heads
    _check_positive(head_dim=head_dim)
    key_len, num_kv_heads = sizes["key_len"], sizes["num_kv_heads"]
    _check_divides("num_kv_heads", num_kv_heads, "num_heads", num_heads)

    def project(name: str, length: int, width_in: int, width_out: int) -> CostStep:
        parameters = (width_in + bias) * width_out
        return CostStep(name, 1, batch * length, width_in, width_out, parameters)

    q_width, kv_width = num_heads * head_dim, num_kv_heads * head_dim
    steps = (
        project("query", query_len, embed_dim, q_width),
        project("key", key_len, embed_dim, kv_width),
        project("value", key_len, embed_dim, kv_width),
        CostStep("scores", batch * num_heads, query_len, head_dim, key_len),
        CostStep("mix", batch * num_heads, query_len, key_len, head_dim),
        project("output", query_len, q_width, embed_dim),
    )
    return AttentionCost(steps, exponentials=batch * num_heads * query_len * key_len)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join(left + right).rstrip()


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{name} must be an integer, got {type(size).__name__}")
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def _check_divides(name: str, number: int, what: str, size: int) -> None:
    if size % number:
        raise ValueError(f"{name} must divide {what}, {size}, got {number}")
