"""`torch.nn.modules`: the classes of `torch.nn` under their long name."""

from torch.nn._layers import Linear as Linear
from torch.nn._module import Module as Module
