"""What the stories gave, when they were run last: what each section printed and drew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import stories

from mhsite import words
from mhsite.source import LABS, ROOT, STORIES, Section, SourceError, of_file, told_in

NOTHING = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 420 40"></svg>'  # not drawn

_folders: dict[str, Path] = {}


def run(*, lenient: bool = False) -> dict[str, Path]:
    """Run what is missing or stale; then the folder of each story's results.

    Who reads at home has a processor of another kind: lenient, a story may print something else.
    """
    device = stories.choose_device(os.environ.get("MHATTN_DEVICE", "cpu"))
    for _ in range(5):  # a story may change while it runs
        if None not in (found := stories.results(device, lenient=lenient)).values():
            _folders.clear()
            _folders.update(found)
            for difference in differences():
                print(f"WARNING: {difference}", file=sys.stderr)
            return found
        command = [sys.executable, ROOT / "scripts" / "stories.py", "--device", device]
        command += ["--lenient"] * lenient
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
        if done.returncode:
            raise SourceError(done.stdout or f"stories.py ended with code {done.returncode}")
    missing = [name for name, folder in found.items() if folder is None]
    raise SourceError(f"stories change, or lose their results, as fast as they run: {missing}")


def folders() -> dict[str, Path]:
    """Each story's results, as `run` found them."""
    return _folders or run()


def differences() -> list[str]:
    """Where stories printed something else than their files, and so the pages, say."""
    return [text for folder in _folders.values() for text in stories.differences(folder)]


def did_not_run(name: str) -> bool:
    """Was a story only filed as if it had run, since this machine lacks what it reads?"""
    return name in _folders and bool(stories.lacked(_folders[name]))


def figures(language: str) -> dict[str, str]:
    """Every figure under the name that pages give it, ``masks/picture.svg``, in a language."""
    names = [
        f"{name}/{path.name}"
        for name in folders()
        if not name.endswith(".zh")
        for path in sorted(_folder(name, language).glob("*.svg"))
    ]
    return {name: figure(name, language) for name in names}


def figure(target: str, language: str) -> str:
    """The SVG that a page shows as ``figures/masks/picture.svg``, with words in its language."""
    name = target.split("figures/")[-1].split("/")
    if did_not_run(name[0]):
        return NOTHING
    path = _folder(name[0], language).joinpath(*name[1:])
    if len(name) != 2 or not path.is_file():
        raise SourceError(f"no story draws {target}")
    svg = path.read_text(encoding="utf-8").strip()
    told = told_in(language, name[0]) in folders()
    return svg if told else words.figure_in_chinese(name[0], svg)


def files(language: str) -> dict[str, Path]:
    """Every file that a story wrote for its page, under its name in the site's data/."""
    return {
        f"{name}/{path.name}": path
        for name in folders()
        if not name.endswith(".zh")
        for path in sorted(_folder(name, language).glob("files/*"))
    }


def _folder(name: str, language: str) -> Path:
    """The results of a story in this language, or of the only one that there is."""
    return folders().get(told_in(language, name)) or folders().get(name, ROOT)


def printed(section: Section) -> str:
    return _output(section)["text"]


def drawn(section: Section) -> str | None:
    """The figure that a section left open, as pages call it: ``masks/picture.svg``."""
    name = _output(section)["figure"]
    return f"{section.path.name.split('.')[0]}/{name}" if name else None


def grids(section: Section) -> dict[str, str]:
    """For a table's text, the attribute that `mhsite.grids` gives it."""
    return _output(section)["grids"]


def _output(section: Section) -> dict:
    if section.path.parent not in (STORIES, LABS):  # the package's own source
        return {"text": "", "figure": None, "grids": {}}
    path = folders()[section.path.stem] / "outputs.json"
    return _outputs(path)[section.name]


@of_file
def _outputs(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
