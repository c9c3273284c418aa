"""The package as a wheel that the site itself serves: it is had without git, and without GitHub."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from mhsite.pages import release
from mhsite.stories.source import ROOT


def files() -> dict[str, str | bytes | Path]:
    """The wheel, by its place in the site: all of it, and the data that chapters read."""
    from hatchling.builders.wheel import WheelBuilder  # only a whole build needs it

    with TemporaryDirectory(prefix="mhattn-") as folder:
        (made,) = WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"])
        place = release.wheel_place()
        if Path(made).name != Path(place).name:  # what pages print
            raise ValueError(f"the wheel should be {place}, got {made}")
        return {place: Path(made).read_bytes()}
