"""`torch.autograd`."""

from torch._autograd import backward, enable_grad, grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["backward", "enable_grad", "grad", "inference_mode", "no_grad", "set_grad_enabled"]
