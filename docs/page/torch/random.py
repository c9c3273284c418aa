"""`torch.random`."""

from torch._random import default_generator, fork_rng, manual_seed

__all__ = ["default_generator", "fork_rng", "get_rng_state", "manual_seed", "set_rng_state"]


def get_rng_state():
    return default_generator.get_state()


def set_rng_state(state):
    default_generator.set_state(state)
