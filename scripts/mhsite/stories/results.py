"""What the stories gave, when they were run last: what each section printed and drew.

A build is strict: everything has run here, and printed what its file says. Who serves pages while
writing is lenient: a story that has not run yet prints what its file says, and its figures are
frames; one that ran in another environment is taken as it is.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from functools import cache as kept
from pathlib import Path

from mhsite.stories import cache, keys, schedule, translation
from mhsite.stories.frames import frame
from mhsite.stories.source import LABS, STORIES, Section, SourceError, of_file, told_in

_folders: dict[str, Path | None] = {}  # None: not run yet
_places: dict[str, Path] = {}  # where the results of a story, as it is now, will be
_failed: dict[Path, str] = {}  # why there are none at such a place
_stopped: list[Exception] = []  # why no story is run any more


def device() -> str:
    """Where labs compute."""
    return keys.choose_device(os.environ.get("MHATTN_DEVICE", "cpu"))


def run() -> dict[str, Path]:
    """Run what is missing or stale; then the folder of each story's results."""
    global _folders
    for _ in range(5):  # a story may change while it runs
        if None not in (found := keys.results(device())).values():
            _folders = found | _in_chinese(found)
            return _folders
        if errors := schedule.run_stories(keys.all_stories(), device()):
            raise SourceError("\n".join(errors))
    missing = [name for name, folder in found.items() if folder is None]
    raise SourceError(f"stories change, or lose their results, as fast as they run: {missing}")


def look() -> list[str]:
    """Take what is filed, and run nothing; the stories that have changed since the last look."""
    global _folders, _places
    places = {story.stem: place for story, place in keys.result_folders(device()).items()}
    found = {name: keys.filed(place, lenient=True) for name, place in places.items()}
    found |= _in_chinese(found)
    changed = [name for name in found if _folders.get(name, "") != found[name]]
    _folders, _places = found, places  # at once, since threads read them
    return changed


def _in_chinese(found: dict[str, Path | None]) -> dict[str, Path | None]:
    """The results of those stories that a catalog tells in Chinese: they lie within."""
    paths = {name: STORIES / f"{name}.pycon" for name in found}
    paths = {name: p if p.is_file() else LABS / f"{name}.py" for name, p in paths.items()}
    told_twice = [name for name, path in paths.items() if translation.catalog_of(path)]
    return {told_in("zh", name): found[name] and found[name] / "zh" for name in told_twice}


def take(story: Path, place: Path, error: str) -> bool:
    """Take what a story has just given, or note why it gave nothing; unless it changed since."""
    if _places.get(story.stem) != place:
        return False
    if error:
        _failed[place] = error
    else:
        found = {story.stem: keys.filed(place, lenient=True)}
        _folders.update(found | _in_chinese(found))
    return True


def stop(why: Exception) -> None:
    """Note that stories which are missing now will not come."""
    _stopped[:] = [why]


def stopped() -> Exception | None:
    """Why no story is run any more, if none is."""
    return _stopped[0] if _stopped else None


def folders() -> dict[str, Path | None]:
    """Each story's results, as `run` or `look` found them."""
    return _folders or run()


def is_known(name: str) -> bool:
    """Is a story among those that `run` or `look` found? Asking runs nothing."""
    return name in _folders


def missing() -> list[Path]:
    """The stories that have not run, and have not failed."""
    here = folders()
    stories = (story for story in keys.all_stories() if story.stem in here)
    return [s for s in stories if here[s.stem] is None and not failure(s.stem)]


def done() -> tuple[int, int]:
    """How many stories are done, failed ones as well, and how many there are."""
    known = sum(story.stem in folders() for story in keys.all_stories())
    return known - len(missing()), known


def is_missing(name: str) -> bool:
    """Has a story that is there no results?"""
    return folders().get(name, Path()) is None


def failure(name: str) -> str:
    """Why a story gave nothing, if it did not for a reason."""
    place = _places.get(name) or _places.get(name.removesuffix(".zh"))
    return _failed.get(place, "") if is_missing(name) else ""


def differences(name: str) -> list[str]:
    """Where a story printed something else than its file, and so the page, says."""
    folder = folders().get(name)
    return cache.differences(folder, STORIES / f"{name}.pycon") if folder else []


def elsewhere(name: str) -> dict[str, str]:
    """The environment that a story's results come from, if it is not this one."""
    folder = folders().get(name)
    who = cache.about(folder).get("environment", {}) if folder else {}
    return who if who not in ({}, _here()) else {}


@kept
def _here() -> dict[str, str]:
    return keys.environment(device())


def figures(language: str, only: set[str] | None = None) -> dict[str, str]:
    """Every figure under the name that pages give it, ``masks/picture.svg``, in a language."""
    names = [
        f"{name}/{path.name}"
        for name in _names(only)
        if (folder := _folder(name, language))
        for path in sorted(folder.glob("*.svg"))
    ]
    return {name: figure(name, language) for name in names}


def figure(target: str, language: str) -> str:
    """The SVG that a page shows as ``figures/masks/picture.svg``, in its language."""
    name = target.split("figures/")[-1].split("/")
    story = told_in(language, name[0])
    speaks = story in folders()
    if is_missing(story := story if speaks else name[0]):
        return frame(story, name[-1], language, waits=not (failure(story) or stopped()))
    folder = _folder(name[0], language)
    path = folder.joinpath(*name[1:]) if folder else Path()
    if len(name) != 2 or not path.is_file():
        raise SourceError(f"no story draws {target}")
    return path.read_text(encoding="utf-8").strip()


def files(language: str, only: set[str] | None = None) -> dict[str, Path]:
    """Every file that a story wrote for its page, under its name in the site's data/."""
    return {
        f"{name}/{path.name}": path
        for name in _names(only)
        if (folder := _folder(name, language))
        for path in sorted(folder.glob("files/*"))
    }


def _names(only: set[str] | None) -> list[str]:
    """The stories, all or only these, each once for both languages."""
    names = {name.removesuffix(".zh") for name in (folders() if only is None else only)}
    return [name for name in folders() if name in names]


def _folder(name: str, language: str) -> Path | None:
    """The results of a story in this language, or of the only one that there is."""
    story = told_in(language, name)
    return folders().get(story if story in folders() else name)


def printed(section: Section) -> str:
    """What a section printed, or is going to print as its file says."""
    return _output(section)["text"]


def drawn(section: Section) -> str | None:
    """The figure that a section left open, as pages call it: ``masks/picture.svg``."""
    name = _output(section)["figure"]
    return f"{section.path.name.split('.')[0]}/{name}" if name else None


def grids(section: Section) -> dict[str, str]:
    """For a table's text, the attribute that `mhsite.stories.grids` gives it."""
    return _output(section)["grids"]


def as_printed(section: Section) -> Section:
    """A section with what it printed, where only a run knows that: in a second language."""
    printed = _output(section).get("printed")
    if printed is None or len(printed) != len(section.examples()):  # or it has just changed
        return section
    return replace(section, text=section.printing(printed))


def _output(section: Section) -> dict:
    if section.path.parent not in (STORIES, LABS):  # the package's own source
        return {"text": "", "figure": None, "grids": {}}
    folder = folders()[section.path.stem]
    return _said(section) if folder is None else _outputs(folder / "outputs.json")[section.name]


def _said(section: Section) -> dict:
    """What a story's file says that a section prints; of a lab nobody knows."""
    examples = section.examples() if section.is_story else []
    draws = re.search(r"\bplt\b|\bplot_\w+\(|\bax\b", section.text)
    name = f"{section.name}.svg" if draws and not section.is_story else None
    return {"text": "".join(each.want for each in examples), "figure": name, "grids": {}}


@of_file
def _outputs(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
