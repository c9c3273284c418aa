"""`torch.utils.checkpoint`: a page keeps what it computed instead."""

from typing import Any


def checkpoint(
    function: Any,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **named: Any,
) -> Any:
    return function(*args, **named)
