"""What is switched on at the moment: gradients, the device, how numbers are printed."""

from typing import Any

__all__ = ["CPU", "Lacking", "device", "device_of", "grad", "lacking"]

grad = [True]
inference = [False]
cast_to: list[Any] = [None]  # the type of products inside `autocast`
flops = [0]  # of all products so far
DEVICES: list[Any] = []


class Lacking(NotImplementedError, AttributeError):
    """What the stand-in does not have; an AttributeError as well, so that `hasattr` says no."""


def lacking(name: str) -> Lacking:
    """The error that names what is missing."""
    return Lacking(
        f"torch.{name} is not in this page's stand-in; the notebook, or Colab, has all of torch"
    )


class device:
    """`cpu`, or `meta`, where tensors have shapes and no numbers."""

    def __init__(self, kind: Any, index: int | None = None):
        self.type, _, number = str(kind).partition(":")
        self.index = int(number) if number else index
        if self.type not in ("cpu", "meta"):
            raise RuntimeError(f"this page has the devices cpu and meta, not {self.type}")

    def __repr__(self) -> str:
        return (
            f"device(type={self.type!r})"
            if self.index is None
            else f"device(type={self.type!r}, index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __enter__(self) -> "device":
        DEVICES.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        DEVICES.pop()


CPU = device("cpu")


def device_of(asked: Any = None) -> Any:
    """The device that was asked for, or the one that is switched on; None: where numbers are."""
    found = (
        (DEVICES[-1] if DEVICES else None)
        if asked is None
        else asked
        if isinstance(asked, device)
        else device(asked)
    )
    return None if found is None or found.type == "cpu" else found
