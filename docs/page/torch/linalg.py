"""`torch.linalg`, what the pages use of it."""

from typing import Any

from torch import _state
from torch._dtypes import INT64
from torch._reductions import norm
from torch._shapes import cat, stack
from torch._tensor import Tensor, new


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    return norm(x, ord, dim, keepdim, dtype)


def matrix_rank(
    A: Tensor, tol: float | None = None, *, atol: float | None = None, rtol: float | None = None
) -> Tensor:
    atol = atol if tol is None else tol
    m, n = A.shape[-2:]
    flat = A.flat().tolist()
    eps = 2.0**-52 if A.dtype.code == "d" else 2.0**-23
    ranks = []
    for at in range(0, len(flat), m * n):
        sizes = singular([flat[at + i * n : at + i * n + n] for i in range(m)])
        cut = max(
            atol or 0.0,
            (max(m, n) * eps if rtol is None and not atol else rtol or 0.0) * max(sizes),
        )
        ranks.append(sum(size > cut for size in sizes))
    return new(ranks, A.shape[:-2], INT64)


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X of A X = B, row after row."""
    if not left:
        return solve_triangular(A.mT, B.mT, upper=not upper, unitriangular=unitriangular).mT
    n = A.shape[-1]
    rows: list[Any] = [None] * n
    for i in reversed(range(n)) if upper else range(n):
        x = B[..., i : i + 1, :]
        for j in range(i + 1, n) if upper else range(i):
            x = x - A[..., i : i + 1, j : j + 1] * rows[j]
        rows[i] = x if unitriangular else x / A[..., i : i + 1, i : i + 1]
    return cat(rows, -2)


def solve(A: Tensor, B: Tensor) -> Tensor:
    """X of A X = B, for one matrix, by Gauss."""
    if A.ndim != 2:
        raise _state.lacking("linalg.solve of a batch")
    single = B.ndim == 1
    right = [[x] for x in B.tolist()] if single else B.tolist()
    rows = [own + other for own, other in zip(A.tolist(), right, strict=True)]
    n = len(rows)
    for i in range(n):
        best = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[best] = rows[best], rows[i]
        if not rows[i][i]:
            raise RuntimeError(
                "linalg.solve: The solver failed because the input matrix is singular."
            )
        for r in range(n):
            if r != i and rows[r][i]:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    flat = [x / row[i] for i, row in enumerate(rows) for x in row[n:]]
    return new(flat, B.shape, A.dtype)


def inv(A: Tensor) -> Tensor:
    from torch._factories import eye

    return solve(A, eye(A.shape[-1], dtype=A.dtype))


def pinv(A: Tensor, **_: Any) -> Tensor:
    """The pseudo-inverse: what is smaller than a rounding of the largest is nothing."""
    if A.ndim > 2:
        return stack([pinv(each) for each in A])
    columns, turns = _turned(A.tolist())
    sizes = [sum([x * x for x in column]) for column in columns]
    eps = 2.0**-52 if A.dtype.code == "d" else 2.0**-23
    least = max(sizes) * (max(A.shape) * eps) ** 2
    kept = [(c, t, size) for c, t, size in zip(columns, turns, sizes, strict=True) if size > least]
    m, n = A.shape
    flat = [sum([t[j] * c[i] / size for c, t, size in kept]) for j in range(n) for i in range(m)]
    return new(flat, (n, m), A.dtype)


def singular(rows: list[list[float]]) -> list[float]:
    """The singular values, the largest first."""
    columns, _ = _turned(rows)
    sizes = sorted((sum([x * x for x in column]) ** 0.5 for column in columns), reverse=True)
    return sizes[: min(len(rows), len(columns))]


def _turned(rows: list[list[float]]) -> tuple[list[list[float]], list[list[float]]]:
    """Columns turned, two by two, until all are at right angles (Jacobi), and how they were.

    With A the matrix, column i of the result is A times turn i; its length is a singular value.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    n = len(columns)
    turns = [[float(i == j) for j in range(n)] for i in range(n)]
    for _ in range(60):
        moved = False
        for i in range(n):
            for j in range(i + 1, n):
                a, b = columns[i], columns[j]
                aa, bb = sum([x * x for x in a]), sum([x * x for x in b])
                ab = sum([x * y for x, y in zip(a, b, strict=True)])
                if abs(ab) <= 1e-15 * (aa * bb) ** 0.5 or ab == 0:
                    continue
                moved = True
                slope = (bb - aa) / (2 * ab)
                t = (1 if slope >= 0 else -1) / (abs(slope) + (1 + slope * slope) ** 0.5)
                c = 1 / (1 + t * t) ** 0.5
                for group in columns, turns:
                    group[i], group[j] = _both(group[i], group[j], c, c * t)
        if not moved:
            break
    return columns, turns


def _both(a: list[float], b: list[float], c: float, s: float) -> tuple[list[float], list[float]]:
    """Two columns, turned in their plane by the angle with this cosine and sine."""
    pairs = list(zip(a, b, strict=True))
    return [c * x - s * y for x, y in pairs], [s * x + c * y for x, y in pairs]


def svdvals(A: Tensor) -> Tensor:
    if A.ndim != 2:
        raise _state.lacking("linalg.svdvals of a batch")
    return new(singular(A.tolist()), (min(A.shape),), A.dtype)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"linalg.{name}")
