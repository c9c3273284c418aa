"""What a story's results depend on, and so where they are filed.

The content: its text, the modules of the package that it reaches, the data files and trained models
that it names, what runs it. Apart from that the environment: Python, the packages that compute and
draw, the machine, the arithmetic. Nothing depends on the doors of the package, the ``__init__.py``
that only know in which module each name is: they are read as maps.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from mhattn.lessons.files import located
from mhsite.stories import cache, models, translation
from mhsite.stories.source import LABS, ROOT, STORIES

RUNNER = (
    "source",
    "story_process",
    "runner",
    "translation",
    "bilingual",
    "with_torch",
    "grids",
    "svg",
)  # the modules of this room that shape a result
PACKAGES = ("torch", "matplotlib", "numpy", *models.READERS)
DOOR = "door"  # the module that makes the doors; no result depends on it
IMPORT = re.compile(
    r"\bfrom\s+mhattn(?P<of>(?:\.\w+)*)\s+import\s*"
    r"(?:\((?P<many>[^)]*)\)|(?P<few>\*|\w+(?:\s+as\s+\w+)?(?:\s*,\s*\w+(?:\s+as\s+\w+)?)*))"
)
USE = re.compile(r"\bmhattn((?:\.\w+)+)")
UNDER_ANOTHER_NAME = re.compile(r"\bimport mhattn as\b")
# A line of a story or a lab that imports something, and what surely loads no torch.
LINE = re.compile(r"^(?:>>> |\.\.\. )? *(?:from|import) (\w+(?:[\w.]*, *\w+)*)", re.M)
LIGHT = sys.stdlib_module_names - {"importlib"} | {"numpy", "matplotlib", "mhattn"}
WATCHED = {"tables", "plots"}  # by `mhsite.stories.grids`, which computes with what they show
DATA = re.compile(r'\bdata_file\(\s*f?"((?:texts|runs|measured)/[\w./-]*)')

# What makes one processor add and round as another would, under each kind's name.
ARITHMETIC = {
    "native": {},
    "two threads": {
        "MHATTN_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",  # or each thread that waits takes a core
    },
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "SSE": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}
SETTINGS = sorted({name for settings in ARITHMETIC.values() for name in settings})


def all_stories() -> list[Path]:
    """Every story and lab."""
    return sorted(STORIES.glob("*.pycon")) + sorted(LABS.glob("*.py"))


@dataclass(frozen=True)
class Package:
    """The package as results see it.

    Args:
        texts: of each module by its name below the package, as in ``core.masks``, its text and
            that of the data files beside it which it names.
        doors: of each door, ``""`` the package's own, the module of each name that it exports.
        runner: the hash of what runs a story.
    """

    texts: dict[str, str]
    doors: dict[str, dict[str, str]]
    runner: str = ""

    def inside(self, room: str) -> set[str]:
        """All modules of a room, or with ``""`` of the package."""
        return {name for name in self.texts if not room or name.startswith(f"{room}.")}

    def found(self, parts: tuple[str, ...]) -> set[str]:
        """The modules that ``mhattn.variants.latent_attention`` and its like may load."""
        for stop in range(len(parts), 0, -1):
            name = ".".join(parts[:stop])
            if name in self.texts:
                return {name}
            if name in self.doors:
                exported = self.doors[name].get(".".join(parts[stop : stop + 1]))
                return {exported} if exported else self.inside(name)
        exported = self.doors.get("", {}).get(parts[0]) if parts else None
        return {exported} if exported else set()


def package(root: Path = ROOT) -> Package:
    """The package as it is now."""
    home, texts, doors = root / "mhattn", {}, {}
    for path in sorted(home.rglob("*.py")):
        *room, module = path.relative_to(home).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        if module == "__init__":
            doors[".".join(room)] = _exported(text, ".".join(room))
        else:
            data = sorted(each for each in path.parent.glob("*.*") if each.name in text)
            beside = [each.read_text("utf-8") for each in data if each.suffix != ".py"]
            texts[".".join([*room, module])] = "\0".join([text, *beside])
    runner = [root / "scripts" / "mhsite" / "stories" / f"{name}.py" for name in RUNNER]
    return Package(texts, doors, _hash(path.read_bytes() for path in runner if path.is_file()))


def _exported(door: str, room: str) -> dict[str, str]:
    """For each name in a door's literal ``NAMES``, the module that defines it."""
    for node in ast.parse(door).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "NAMES" for target in targets):
            table = ast.literal_eval(node.value)
            prefix = f"{room}." if room else ""
            return {n: prefix + module for module, names in table.items() for n in names.split()}
    return {}


@functools.lru_cache(maxsize=256)
def imported(text: str) -> frozenset[tuple[str, ...]]:
    """What a text, or an example or a string in it, takes from the package, as dotted parts.

    Everything is ``()``: of an import under another name nobody can say what is used.
    """
    found = {tuple(use[1:].split(".")) for use in USE.findall(IMPORT.sub("", text))}
    for match in IMPORT.finditer(text):
        room = tuple(match["of"].split(".")[1:])
        names = re.sub(r"#[^\n]*", "", match["many"] or match["few"] or "*")
        names = re.sub(r"\bas\s+\w+", "", names)
        found |= {room} if "*" in names else {(*room, name) for name in re.findall(r"\w+", names)}
    return frozenset(found | ({()} if UNDER_ANOTHER_NAME.search(text) else set()))


def reached(text: str, package: Package) -> list[str]:
    """The package's modules that code uses, directly or through one another."""
    found, left = set(), [text]
    while left:
        named = imported(left.pop())
        new = set().union(*(package.found(p) if p else package.inside("") for p in named)) - found
        found |= new
        left += [package.texts[name] for name in new]
    return sorted(found)


def unseen(text: str, package: Package, loaded: set[str]) -> list[str]:
    """The modules of the package among those loaded that a text does not reach.

    A story that loads one without a plain import would never be stale.
    """
    modules = {name.removeprefix("mhattn.") for name in loaded if name.startswith("mhattn.")}
    return sorted(modules - {*reached(text, package), *package.doors, DOOR})


def needs_torch(story: Path, package: Package) -> bool:
    """Whether a story's process has to load torch: unless all that it imports is known not to.

    Of the package's modules only their imports count, not what their docstrings show.
    """
    text = story.read_text(encoding="utf-8")
    named = {name.strip() for names in LINE.findall(text) for name in names.split(",")}
    others, left, found = {name.split(".")[0] for name in named}, [imported(text)], set()
    while left:
        parts = left.pop()
        new = set().union(*(package.found(p) if p else package.inside("") for p in parts)) - found
        found |= new
        for name in new:
            ours, theirs = _imports(package.texts[name].partition("\0")[0])
            left.append(ours)
            others |= theirs
    return bool(WATCHED & {name.split(".")[-1] for name in found}) or not others <= LIGHT


@functools.lru_cache(maxsize=256)
def _imports(module: str) -> tuple[frozenset[tuple[str, ...]], frozenset[str]]:
    """What a module imports from the package, as dotted parts, and what else, by its first part."""
    named = set()
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Import):
            named |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            named |= {(*str(node.module).split("."), alias.name) for alias in node.names}
    ours = frozenset(name[1:] for name in named if name[0] == "mhattn")
    return ours, frozenset(name[0] for name in named if name[0] != "mhattn")


def data_of(text: str) -> list[Path]:
    """The data that a story reads by name, or of a name that it makes the files of its folder."""
    named = (located(name) for name in sorted(set(DATA.findall(text))))
    found = [[path] if path.is_file() else sorted(path.glob("*")) for path in named]
    return [path for paths in found for path in paths if path.is_file()]


def content(story: Path, package: Package) -> str:
    """The hash of all that a story's results depend on, whoever runs it."""
    text = story.read_text(encoding="utf-8")
    parts = [text, package.runner]
    for name in reached(text, package):
        parts += [name, package.texts[name]]
    for path in data_of(text):
        parts += [path.name, cache.file_hash(path)]
    parts += [model.member_sha256 for model in models.needed_by(story)]
    if catalog := translation.catalog_of(story):
        parts.append(catalog.read_text(encoding="utf-8"))
    return _hash(part.encode() for part in parts)


def choose_device(name: str) -> str:
    """The device that ``auto`` means here."""
    if name != "auto":
        return name
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def environment(device: str = "cpu", settings: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Who runs a story: what else its numbers and figures may depend on."""
    found = {"Python": platform.python_version()}
    found |= {name: version(name) for name in PACKAGES}
    found |= {"system": platform.system(), "machine": platform.machine(), "device": device}
    return found | {name: settings[name] for name in SETTINGS if name in settings}


def result_folder(story: Path, package: Package, environment: dict[str, str]) -> Path:
    """Where a story's results are, or will be."""
    who = _hash(f"{name} {value}".encode() for name, value in sorted(environment.items()))
    return cache.results() / story.stem / content(story, package) / who


def result_folders(device: str = "cpu") -> dict[Path, Path]:
    """For every story, where its results are, or will be, on this machine."""
    now, here = package(), environment(device)
    return {story: result_folder(story, now, here) for story in all_stories()}


def results(device: str = "cpu", *, lenient: bool = False) -> dict[str, Path | None]:
    """For every story, the folder with its results, or None where it has to be run.

    A lenient reader takes what printed something else than its file says, and what another
    environment filed.
    """
    places = result_folders(device).items()
    return {story.stem: filed(place, lenient=lenient) for story, place in places}


def filed(place: Path, *, lenient: bool) -> Path | None:
    """The folder with the results that belong at a place, if there is one."""
    if cache.is_done(place, lenient=lenient):
        return place
    return cache.of_any_environment(place) if lenient else None


def _hash(parts) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]
