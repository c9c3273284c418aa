"""Checks of sizes, for modules that need no torch; tensors are checked in `mhattn.core.checks`."""

__all__: list[str] = []


def at_least(name: str, number: int, least: int) -> None:
    # True is an int in Python, but nobody means a size by it.
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be an integer, got {type(number).__name__}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")


def positive(**sizes: int) -> None:
    for name, size in sizes.items():
        at_least(name, size, 1)


def divides(name: str, number: int, what: str, size: int) -> None:
    # Less than 1 comes first: by 0, the remainder raises an error that names no argument.
    if number < 1 or size % number:
        raise ValueError(f"{name} must divide {what}, {size}, got {number}")
