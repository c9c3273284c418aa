"""`torch.autograd`."""

from torch._autograd import backward, enable_grad, grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["backward", "enable_grad", "grad", "inference_mode", "no_grad", "set_grad_enabled"]


def __getattr__(name):
    from torch import _finder

    if name.startswith("__"):
        raise AttributeError(name)
    return _finder.placeholder(f"autograd.{name}")
