"""`torch.linalg`, what the pages use of it."""

from typing import Any

from torch import _state
from torch._reductions import norm
from torch._tensor import Tensor


def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return norm(x, ord, dim, keepdim, dtype)


def matrix_rank(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    from torch._tensor import new
    from torch._dtypes import INT64

    m, n = A.shape[-2:]
    flat = A.flat().tolist()
    eps = 2.0**-52 if A.dtype.code == "d" else 2.0**-23
    ranks = []
    for at in range(0, len(flat), m * n):
        sizes = singular([flat[at + i * n : at + i * n + n] for i in range(m)])
        cut = max(atol or 0.0, (max(m, n) * eps if rtol is None and not atol else rtol or 0.0) * max(sizes))
        ranks.append(sum(size > cut for size in sizes))
    return new(ranks, A.shape[:-2], INT64)


def singular(rows: list[list[float]]) -> list[float]:
    """The singular values, the largest first: columns are turned, two by two, until all are at right angles (Jacobi)."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for _ in range(60):
        moved = False
        for i in range(len(columns)):
            for j in range(i + 1, len(columns)):
                a, b = columns[i], columns[j]
                aa, bb = sum([x * x for x in a]), sum([x * x for x in b])
                ab = sum([x * y for x, y in zip(a, b, strict=True)])
                if abs(ab) <= 1e-16 * (aa * bb) ** 0.5 or ab == 0:
                    continue
                moved = True
                slope = (bb - aa) / (2 * ab)
                t = (1 if slope >= 0 else -1) / (abs(slope) + (1 + slope * slope) ** 0.5)
                c = 1 / (1 + t * t) ** 0.5
                s = c * t
                columns[i] = [c * x - s * y for x, y in zip(a, b, strict=True)]
                columns[j] = [s * x + c * y for x, y in zip(a, b, strict=True)]
        if not moved:
            break
    sizes = sorted((sum([x * x for x in column]) ** 0.5 for column in columns), reverse=True)
    return sizes[: min(len(rows), len(columns))]


def svdvals(A: Tensor) -> Tensor:
    from torch._tensor import new

    if A.ndim != 2:
        raise _state.lacking("linalg.svdvals of a batch")
    return new(singular(A.tolist()), (min(A.shape),), A.dtype)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"linalg.{name}")
