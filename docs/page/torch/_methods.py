"""Hangs the operations onto the class: operators, methods, and those with a low line, which write
into the tensor.
"""

from collections.abc import Callable
from typing import Any

from torch import (
    _autograd,
    _elementwise,
    _factories,
    _indexing,
    _kernels,
    _products,
    _random,
    _reductions,
    _shapes,
    _state,
)
from torch._dtypes import DTYPES, dtype
from torch._elementwise import binary, cast, clone, unary
from torch._tensor import Tensor, new, tensor

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # what is `torch.X` and `Tensor.X`


def _both(name: str) -> Callable[..., Tensor]:
    def function(input: Any, other: Any) -> Tensor:
        return binary(name, input, other)

    return function


def _one(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor) -> Tensor:
        return unary(name, input)

    return function


def _operator(name: str, reverse: bool = False) -> Callable[..., Any]:
    def function(self: Tensor, other: Any) -> Any:
        if not isinstance(other, (Tensor, int, float)):
            if hasattr(other, "item") and not hasattr(other, "shape"):
                other = other.item()
            elif hasattr(other, "tolist"):
                other = tensor(other)
            else:
                return NotImplemented
        return binary(name, other, self) if reverse else binary(name, self, other)

    return function


OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "lshift": "lshift",
    "rshift": "rshift",
}
for own, name in OPERATORS.items():
    setattr(Tensor, f"__{own}__", _operator(name))
    setattr(Tensor, f"__r{own}__", _operator(name, reverse=True))
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, f"__{name}__", _operator(name))
for name in [
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
]:
    FUNCTIONS[name] = _both(name)
for name in _kernels.UNARY:
    if name not in ("gelu", "gelu_slope", "softplus", "entr", "invert", "round"):
        FUNCTIONS[name] = _one(name)
FUNCTIONS |= {
    "multiply": _both("mul"),
    "true_divide": _both("div"),
    "bitwise_and": _both("and"),
    "bitwise_or": _both("or"),
    "bitwise_xor": _both("xor"),
    "bitwise_not": _one("invert"),
    "greater": _both("gt"),
    "less": _both("lt"),
    "absolute": _one("abs"),
    "negative": _one("neg"),
    "arctan2": _both("atan2"),
}


def _pow(x: Any, exponent: Any) -> Tensor:
    if isinstance(x, Tensor) and not isinstance(exponent, Tensor) and x.dtype.is_floating_point:
        if exponent == 2:
            return _renamed(unary("square", x), "Pow")
        if exponent == 0.5:
            return _renamed(unary("sqrt", x), "Pow")
    return binary("pow", x, exponent)


def _renamed(x: Tensor, name: str) -> Tensor:
    if x._node is not None:
        x._node._name = name + "Backward0"
    return x


Tensor.__pow__ = _pow  # type: ignore[attr-defined]
Tensor.__abs__ = FUNCTIONS["abs"]  # type: ignore[attr-defined]
Tensor.__neg__ = FUNCTIONS["neg"]  # type: ignore[attr-defined]
Tensor.__pos__ = lambda self: self  # type: ignore[attr-defined]
Tensor.__matmul__ = lambda self, other: (
    _products.matmul(self, other) if isinstance(other, Tensor) else NotImplemented
)  # type: ignore[attr-defined]
Tensor.__getitem__ = _indexing.get  # type: ignore[attr-defined]
Tensor.__setitem__ = _indexing.put  # type: ignore[attr-defined]


def _invert(x: Tensor) -> Tensor:
    if x.dtype.is_floating_point:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return unary("invert", x)


Tensor.__invert__ = _invert  # type: ignore[attr-defined]


def _add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    return binary("add", input, other if alpha == 1 else other * alpha)


def _sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    return binary("sub", input, other if alpha == 1 else other * alpha)


def _div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    return _elementwise.floor_divide(input, other, rounding_mode)


FUNCTIONS |= {
    "pow": _pow,
    "add": _add,
    "sub": _sub,
    "subtract": _sub,
    "div": _div,
    "divide": _div,
    "clone": clone,
    "where": _elementwise.where,
    "masked_fill": _elementwise.masked_fill,
    "clamp": _elementwise.clamp,
    "clip": _elementwise.clamp,
    "lerp": _elementwise.lerp,
    "round": _elementwise.round_,
    "result_type": _elementwise.result_type,
    "cat": _shapes.cat,
    "concat": _shapes.cat,
    "concatenate": _shapes.cat,
    "stack": _shapes.stack,
    "matmul": _products.matmul,
    "mm": _products.matmul,
    "bmm": _products.matmul,
    "mv": _products.matmul,
    "dot": _products.dot,
    "inner": _products.dot,
    "outer": _products.outer,
    "einsum": _products.einsum,
    "cdist": _products.cdist,
    "sum": _reductions.sum,
    "mean": _reductions.mean,
    "prod": _reductions.prod,
    "var": _reductions.var,
    "std": _reductions.std,
    "all": _reductions.all_,
    "any": _reductions.any_,
    "amax": _reductions.amax,
    "amin": _reductions.amin,
    "max": _reductions.max_,
    "min": _reductions.min_,
    "bernoulli": _random.bernoulli_of,
    "softmax": _reductions.softmax,
    "index_add": _indexing.index_add,
    "index_select": _indexing.index_select,
    "take_along_dim": _indexing.take_along_dim,
    "clamp_min": lambda input, min: _elementwise.clamp(input, min),
    "clamp_max": lambda input, max: _elementwise.clamp(input, None, max),
}
for name in [
    "argmax",
    "argmin",
    "median",
    "quantile",
    "norm",
    "log_softmax",
    "logsumexp",
    "cumsum",
    "cumprod",
    "cummax",
    "diff",
    "argsort",
    "sort",
    "topk",
    "gather",
    "scatter",
    "nonzero",
    "unique",
    "bincount",
    "equal",
    "allclose",
    "isclose",
    "isin",
    "searchsorted",
]:
    FUNCTIONS[name] = getattr(_reductions, name)
for name in [
    "reshape",
    "permute",
    "transpose",
    "t",
    "movedim",
    "unsqueeze",
    "squeeze",
    "flatten",
    "unflatten",
    "narrow",
    "select",
    "unbind",
    "split",
    "chunk",
    "diagonal",
    "repeat_interleave",
    "flip",
    "roll",
    "tril",
    "triu",
    "diag",
    "diag_embed",
    "broadcast_to",
    "as_strided",
]:
    FUNCTIONS[name] = getattr(_shapes, name)
FUNCTIONS["swapaxes"] = FUNCTIONS["swapdims"] = _shapes.transpose
FUNCTIONS["moveaxis"] = _shapes.movedim


def _baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    product = _products.matmul(batch1, batch2)
    product = product if alpha == 1 else alpha * product
    return product if beta == 0 else product + (input if beta == 1 else beta * input)


def _masked_select(input: Tensor, mask: Tensor) -> Tensor:
    return _shapes.broadcast_to(input, _shapes.broadcast_shapes(input.shape, mask.shape))[
        mask.expand(_shapes.broadcast_shapes(input.shape, mask.shape))
    ]


def _scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return _reductions.scatter(input, dim, index, src, add=True)


def _index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    made = clone(input)
    made[(slice(None),) * (dim % input.ndim) + (index,)] = source
    return made


def _index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    made = clone(input)
    made[(slice(None),) * (dim % input.ndim) + (index,)] = value
    return made


def _var_mean(input: Tensor, dim: Any = None, **named: Any) -> tuple[Tensor, Tensor]:
    return _reductions.var(input, dim, **named), _reductions.mean(
        input, dim, named.get("keepdim", False)
    )


def _aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return _reductions.amin(input, dim, keepdim), _reductions.amax(input, dim, keepdim)


def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    return input + value * tensor1 * tensor2


def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    return input + value * tensor1 / tensor2


def _count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    return (input != 0).sum(dim)


def _nan_to_num(
    input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    top = {"d": 1.7976931348623157e308}.get(input.dtype.code, 3.4028234663852886e38)
    x = _elementwise.where(unary("isnan", input), float(nan), input)
    x = _elementwise.where(unary("isposinf", x), top if posinf is None else posinf, x)
    return _elementwise.where(unary("isneginf", x), -top if neginf is None else neginf, x)


def _corrcoef(input: Tensor) -> Tensor:
    off = input - input.mean(-1, keepdim=True)
    both = off @ off.mT
    size = both.diagonal().sqrt()
    return both / size[:, None] / size[None]


def _atleast(least: int) -> Callable[..., Any]:
    def function(*tensors: Tensor) -> Any:
        found = [x if x.ndim >= least else x[(None,) * (least - x.ndim) + (...,)] for x in tensors]
        return found[0] if len(found) == 1 else tuple(found)

    return function


FUNCTIONS |= {
    "atleast_1d": _atleast(1),
    "atleast_2d": _atleast(2),
    "baddbmm": _baddbmm,
    "addmm": _baddbmm,
    "masked_select": _masked_select,
    "scatter_add": _scatter_add,
    "index_copy": _index_copy,
    "index_fill": _index_fill,
    "var_mean": _var_mean,
    "aminmax": _aminmax,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "count_nonzero": _count_nonzero,
    "nan_to_num": _nan_to_num,
    "corrcoef": _corrcoef,
    "std_mean": lambda x, dim=None, **k: (
        _reductions.std(x, dim, **k),
        _reductions.mean(x, dim, k.get("keepdim", False)),
    ),
    "heaviside": lambda x, values: _elementwise.where(x == 0, values, (x > 0).to(x.dtype)),
    "ravel": lambda x: _shapes.reshape(x, -1),
    "numel": Tensor.numel,
    "is_floating_point": Tensor.is_floating_point,
    "is_complex": Tensor.is_complex,
    "detach": lambda x: _detach(x),
    "logaddexp": lambda a, b: _reductions.logsumexp(
        _shapes.stack(_shapes.broadcast_tensors(a, b)), 0
    ),
    "trace": lambda x: x.diagonal().sum(),
    "square_": None,
}
del FUNCTIONS["square_"]

# methods alone


def _detach(x: Tensor) -> Tensor:
    from torch._tensor import view_of

    made = view_of(x, x.shape, x._strides, x._offset)
    made._base = None  # whoever writes into it asks for no gradient
    return made


def _kind(*asked: Any, **named: Any) -> tuple[dtype | None, Any]:
    kind, place = named.get("dtype"), named.get("device")
    for each in asked:
        if isinstance(each, dtype):
            kind = each
        elif isinstance(each, Tensor):
            kind, place = each.dtype, each.device
        elif isinstance(each, (str, _state.device)):
            place = each
    return kind, place


def _to(x: Tensor, *asked: Any, **named: Any) -> Tensor:
    kind, place = _kind(*asked, **named)
    made = x if kind is None else cast(x, kind)
    if place is not None and _state.device(str(place)).type == "meta" and x._data is not None:
        return new(None, x.shape, made.dtype, _state.device("meta"))
    return clone(made) if named.get("copy") and made is x else made


def _contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    if x.is_contiguous():
        return x
    return _autograd.record(new(x.flat()[:], x.shape, x.dtype), "Clone", (x,), lambda g: (g,))


def _backward(
    x: Tensor,
    gradient: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    if not x.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    _autograd.backward(x, gradient, retain_graph, create_graph)


def _retain_grad(x: Tensor) -> None:
    if not x.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if x._node is not None and not any(each is x for each in x._node.kept):
        x._node.kept.append(x)


def _register_hook(x: Tensor, hook: Callable[[Tensor], Any]) -> Any:
    kept = x.__dict__.setdefault("leaf_hooks", []) if x._node is None else x._node.hooks
    kept.append(hook)
    return _Handle(kept, hook)


class _Handle:
    """Takes a hook away again."""

    def __init__(self, hooks: list[Any], hook: Any):
        self.hooks, self.hook = hooks, hook

    def remove(self) -> None:
        if self.hook in self.hooks:
            self.hooks.remove(self.hook)


def _requires(x: Tensor, *asked: Any) -> Tensor:
    return (
        _shapes.reshape(x, asked[0].shape)
        if isinstance(asked[0], Tensor)
        else _shapes.reshape(x, *asked)
    )


def _expand_as(x: Tensor, other: Tensor) -> Tensor:
    return _shapes.expand(x, *other.shape)


def _numpy(x: Tensor, **_: Any) -> Any:
    import numpy

    return numpy.array(x.tolist())


def _new_like(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def method(x: Tensor, *size: Any, dtype: Any = None, device: Any = None, **more: Any) -> Tensor:
        return make(*size, dtype=dtype or x.dtype, **more)

    return method


METHODS: dict[str, Any] = {
    "to": _to,
    "contiguous": _contiguous,
    "detach": _detach,
    "backward": _backward,
    "retain_grad": _retain_grad,
    "register_hook": _register_hook,
    "view": _shapes.view,
    "expand": _shapes.expand,
    "expand_as": _expand_as,
    "repeat": _shapes.repeat,
    "unfold": _shapes.unfold,
    "view_as": lambda x, other: _shapes.view(x, *other.shape),
    "reshape_as": _requires,
    "type_as": lambda x, other: cast(x, other.dtype),
    "cpu": lambda x: x,
    "cuda": None,
    "numpy": _numpy,
    "new_zeros": _new_like(_factories.zeros),
    "new_ones": _new_like(_factories.ones),
    "new_empty": _new_like(_factories.empty),
    "new_full": lambda x, size, fill_value, dtype=None: _factories.full(
        tuple(size), fill_value, dtype=dtype or x.dtype
    ),
    "new_tensor": lambda x, data, dtype=None: tensor(data, dtype=dtype or x.dtype),
    "tile": _shapes.repeat,
    "is_inference": lambda x: False,
    "dequantize": None,
    "type": lambda x, kind=None: f"torch.{x.dtype.name}" if kind is None else cast(x, kind),
    "get_device": lambda x: -1,
    "is_pinned": lambda x: False,
    "is_shared": lambda x: False,
    "untyped_storage": lambda x: _Memory(x),
    "is_set_to": lambda x, other: x.data_ptr() == other.data_ptr(),
    "is_signed": lambda x: x.dtype.is_signed,
    "is_neg": lambda x: False,
}
for short, name in {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
}.items():
    METHODS[short] = lambda x, *_, kind=DTYPES[name], **__: cast(x, kind)


class _Memory:
    """The numbers behind a tensor and its views."""

    def __init__(self, x: Tensor):
        self.x = x

    def data_ptr(self) -> int:
        return self.x._data.buffer_info()[0] if self.x._data is not None else 0

    def nbytes(self) -> int:
        return 0 if self.x._data is None else len(self.x._data) * self.x.dtype.itemsize

    size = __len__ = nbytes


def _writing(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """`add_` and its like: the result of `add`, put into the tensor's own memory."""

    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        if self._data is None:
            return self
        before = _before(self)
        made = function(before, *args, **named)
        if (
            self.dtype is not made.dtype
            and made.dtype.is_floating_point
            and not self.dtype.is_floating_point
        ):
            names = {"float32": "Float", "int64": "Long", "bool": "Bool", "float64": "Double"}
            raise RuntimeError(
                f"result type {names.get(made.dtype.name, made.dtype.name)} can't be cast to the "
                "desired output type "
                f"{names.get(self.dtype.name, self.dtype.name)}"
            )
        return _indexing.replace(self, made)

    method.__name__ = name + "_"
    return method


def _before(x: Tensor) -> Tensor:
    """The tensor as it was before it is written over, for gradients that need its numbers."""
    if not (_state.grad[0] and x.requires_grad):
        return x
    kept = new(x.flat()[:], x.shape, x.dtype)
    kept._node, kept.requires_grad_flag = x._node, False
    if x._node is None and x.requires_grad_flag:
        _indexing._leaf_check(x)
    return kept


for name in [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "clamp",
    "masked_fill",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "square",
    "abs",
    "neg",
    "sigmoid",
    "tanh",
    "relu",
    "floor",
    "ceil",
    "round",
    "sin",
    "cos",
    "reciprocal",
    "remainder",
    "lerp",
    "tril",
    "triu",
    "scatter",
    "scatter_add",
    "index_add",
    "index_copy",
    "index_fill",
    "addcmul",
    "addcdiv",
    "cumsum",
    "clamp_min",
    "clamp_max",
    "logical_not",
    "trunc",
    "floor_divide",
    "logical_and",
    "logical_or",
    "bitwise_and",
    "bitwise_or",
    "nan_to_num",
    "eq",
    "ne",
    "lt",
    "gt",
    "le",
    "ge",
]:
    METHODS[name + "_"] = _writing(name, FUNCTIONS[name])
for own, name in {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "floordiv": "floor_divide",
    "mod": "remainder",
}.items():
    setattr(Tensor, f"__i{own}__", _writing(name, FUNCTIONS[name]))


def _swap(x: Tensor, shape: Any, strides: Any) -> Tensor:
    x.shape, x._strides = shape, strides
    return x


def _unsqueeze_(x: Tensor, dim: int) -> Tensor:
    made = _shapes.unsqueeze(x, dim)
    return _swap(x, made.shape, made._strides)


def _squeeze_(x: Tensor, dim: Any = None) -> Tensor:
    made = _shapes.squeeze(x, dim)
    return _swap(x, made.shape, made._strides)


def _drawing(fill: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What fills a tensor at random: what was there before has no gradient any more."""

    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        if not (_state.grad[0] and self.requires_grad):
            return fill(self, *args, **named)
        return _indexing.replace(self, fill(clone(self.detach()), *args, **named))

    return method


METHODS |= {
    "copy_": lambda x, source, non_blocking=False: _indexing.replace(x, source),
    "zero_": lambda x: _indexing.replace(x, 0),
    "fill_": lambda x, value: _indexing.replace(x, value),
    "normal_": _drawing(_random.normal_),
    "uniform_": _drawing(_random.uniform_),
    "random_": _random.random_,
    "bernoulli_": _random.bernoulli_,
    "exponential_": _random.exponential_,
    "unsqueeze_": _unsqueeze_,
    "squeeze_": _squeeze_,
    "fill_diagonal_": lambda x, value: (_indexing.replace(x.diagonal(), value), x)[1],
    "detach_": lambda x: _detach_(x),
    "clip_": METHODS["clamp_"],
}


def _detach_(x: Tensor) -> Tensor:
    x._node, x.requires_grad_flag = None, False
    return x


for name, function in {**FUNCTIONS, **METHODS}.items():
    if function is not None and name not in (
        "cat",
        "concat",
        "concatenate",
        "stack",
        "einsum",
        "where",
        "result_type",
        "cdist",
    ):
        setattr(Tensor, name, function)
Tensor.where = lambda self, condition, other: _elementwise.where(condition, self, other)  # type: ignore[attr-defined]
Tensor.T = property(
    lambda x: _shapes.permute(x, list(range(x.ndim))[::-1]) if x.ndim != 2 else _shapes.t(x)
)  # type: ignore[attr-defined]
Tensor.mT = property(_shapes.mT)  # type: ignore[attr-defined]
Tensor.H = Tensor.mH = property(_shapes.mT)  # type: ignore[attr-defined]
Tensor.is_cpu = property(lambda x: x._data is not None)  # type: ignore[attr-defined]
Tensor.real = property(lambda x: x)  # type: ignore[attr-defined]


def _missing(self: Tensor, name: str) -> Any:
    if (
        name.startswith("__")
        or name in ("_data", "_is_param", "leaf_hooks", "accumulated_hooks")
        or name.startswith("_")
    ):
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")
    if name not in REAL_METHODS:
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")
    raise _state.lacking(f"Tensor.{name}")


# What a tensor of torch has and ours lacks says so; another name is a mistake of who writes it.
REAL_METHODS = frozenset(
    [
        "addbmm",
        "addmv",
        "addr",
        "bucketize",
        "cholesky",
        "cov",
        "cross",
        "cummin",
        "det",
        "digamma",
        "erfc",
        "erfinv",
        "exponential_",
        "fmax",
        "fmin",
        "frexp",
        "gcd",
        "geometric_",
        "hardshrink",
        "histc",
        "hypot",
        "igamma",
        "index_put",
        "index_put_",
        "index_reduce",
        "inverse",
        "kron",
        "kthvalue",
        "lcm",
        "lgamma",
        "logdet",
        "masked_scatter",
        "matrix_exp",
        "matrix_power",
        "mode",
        "msort",
        "multinomial",
        "mvlgamma",
        "nanmean",
        "nanmedian",
        "nansum",
        "narrow_copy",
        "nextafter",
        "pinverse",
        "polygamma",
        "put",
        "put_",
        "qr",
        "renorm",
        "rot90",
        "scatter_reduce",
        "sinc",
        "slogdet",
        "sparse_mask",
        "svd",
        "take",
        "take_along_dim",
        "tensor_split",
        "to_sparse",
        "vdot",
        "view_as_complex",
        "xlogy",
        "cuda",
        "imag",
        "pin_memory",
        "share_memory_",
        "apply_",
        "map_",
        "stft",
        "istft",
    ]
)
Tensor.__getattr__ = _missing  # type: ignore[attr-defined]
