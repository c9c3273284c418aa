"""What changes parameters by their gradients."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torch import _state
from torch._autograd import no_grad
from torch._tensor import Tensor, new

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]


class Optimizer:
    """Groups of parameters, each with its options."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self.defaults, self.state = defaults, defaultdict(dict)
        self.param_groups = []
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: dict[str, Any]) -> None:
        params = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        for each in params:
            if isinstance(each, Tensor) and not each.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        params = [each[1] if isinstance(each, tuple) else each for each in params]
        self.param_groups.append({**self.defaults, **group, "params": params})

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = (
                    None if set_to_none or parameter.grad is None else parameter.grad * 0
                )

    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else closure()
        with no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._change(
                            parameter, parameter.grad.detach(), group, self.state[parameter]
                        )
        return loss

    def _change(
        self, x: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        order = [parameter for group in self.param_groups for parameter in group["params"]]
        places = {id(parameter): i for i, parameter in enumerate(order)}
        groups = [
            {**group, "params": [places[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        return {
            "state": {places[id(p)]: dict(state) for p, state in self.state.items()},
            "param_groups": groups,
        }


class Adam(Optimizer):
    """Adam; its weight decay is part of the gradient, AdamW's is not."""

    apart = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **more: Any,
    ):
        if amsgrad:
            raise _state.lacking("optim.Adam(amsgrad=True)")
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, **more}
        )

    def _change(
        self, x: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> None:
        lr, decay, (first, second) = group["lr"], group["weight_decay"], group["betas"]
        if decay and self.apart:
            x.mul_(1 - lr * decay)
        elif decay:
            grad = grad + decay * x
        if not state:
            state["step"] = 0
            state["exp_avg"] = new([0.0] * x.numel(), x.shape, x.dtype)
            state["exp_avg_sq"] = new([0.0] * x.numel(), x.shape, x.dtype)
        state["step"] += 1
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - first)
        square.mul_(second).addcmul_(grad, grad, value=1 - second)
        step = lr / (1 - first ** state["step"])
        root = math.sqrt(1 - second ** state["step"])
        x.addcdiv_(mean, (square.sqrt() / root).add_(group["eps"]), value=-step)


class AdamW(Adam):
    """Adam with its weight decay apart."""

    apart = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: Any = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **more: Any,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, **more)


class SGD(Optimizer):
    """Steps against the gradient."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        **more: Any,
    ):
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                **more,
            },
        )

    def _change(
        self, x: Tensor, grad: Tensor, group: dict[str, Any], state: dict[str, Any]
    ) -> None:
        if group["weight_decay"]:
            grad = grad + group["weight_decay"] * x
        if group["momentum"]:
            if "momentum_buffer" in state:
                state["momentum_buffer"].mul_(group["momentum"]).add_(
                    grad, alpha=1 - group["dampening"]
                )
            else:
                state["momentum_buffer"] = grad.clone()
            buffer = state["momentum_buffer"]
            grad = grad + group["momentum"] * buffer if group["nesterov"] else buffer
        x.add_(grad, alpha=-group["lr"])


def __getattr__(name: str) -> Any:
    import importlib

    if name == "lr_scheduler":
        return importlib.import_module("torch.optim.lr_scheduler")
    if name.startswith("__"):
        raise AttributeError(name)
    raise _state.lacking(f"optim.{name}")


__path__: list[str] = []
