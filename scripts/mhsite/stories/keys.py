"""What a story's results depend on, and so where they are filed.

The content: what its code, the Chinese of its strings, and the package's modules that it reaches do
(`mhsite.stories.meaning`), what it expects to be printed, the data files and trained models that it
names, what runs it. Apart from that the environment: Python, the packages that compute and draw,
the machine, the arithmetic. Nothing depends on the doors of the package, the ``__init__.py`` that
only know in which module each name is: they are read as maps.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from mhattn.lessons.files import located
from mhsite.stories import cache, models
from mhsite.stories.meaning import Meaning, hash_of, of_module, of_story
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
STORY = "the story"  # beside the names of modules
DOOR = "door"  # the module that makes the doors; no result depends on it
# What surely loads no torch.
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
        meanings: of each module.
    """

    texts: dict[str, str]
    doors: dict[str, dict[str, str]]
    runner: str = ""
    meanings: dict[str, Meaning] = field(default_factory=dict)

    def inside(self, room: str) -> set[str]:
        """All modules of a room, or with ``""`` of the package."""
        return {name for name in self.texts if not room or name.startswith(f"{room}.")}

    def imported(self, names: Iterable[str]) -> set[str]:
        """The modules that imports may load, as `Meaning` lists them."""
        loads = (self.found(tuple(n.split("."))) if n else self.inside("") for n in names)
        return set().union(*loads)

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
    """The package as it is now; read anew where a file has changed."""
    runner = [root / "scripts" / "mhsite" / "stories" / f"{name}.py" for name in RUNNER]
    files = [*(root / "mhattn").rglob("*.*"), *filter(Path.is_file, runner)]
    stats = sorted((str(path), about.st_mtime_ns, about.st_size) for path, about in _stats(files))
    if root not in _packages or _packages[root][0] != stats:
        _packages[root] = stats, _package(root)
    return _packages[root][1]


_packages: dict[Path, tuple[list, Package]] = {}


def _stats(files: Iterable[Path]) -> Iterable[tuple[Path, os.stat_result]]:
    for path in files:
        if "__pycache__" not in path.parts:
            yield path, path.stat()


def _package(root: Path) -> Package:
    home, texts, doors, meanings = root / "mhattn", {}, {}, {}
    for path in sorted(home.rglob("*.py")):
        *room, module = path.relative_to(home).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        if module == "__init__":
            doors[".".join(room)] = _exported(text, ".".join(room))
        else:
            data = sorted(each for each in path.parent.glob("*.*") if each.name in text)
            beside = [each.read_text("utf-8") for each in data if each.suffix != ".py"]
            name = ".".join([*room, module])
            texts[name], meanings[name] = "\0".join([text, *beside]), of_module(text)
    runner = [root / "scripts" / "mhsite" / "stories" / f"{name}.py" for name in RUNNER]
    codes = (of_module(path.read_text("utf-8")).code for path in runner if path.is_file())
    return Package(texts, doors, hash_of(codes), meanings)


def _exported(door: str, room: str) -> dict[str, str]:
    """For each name in a door's literal ``NAMES``, the module that defines it."""
    for node in ast.parse(door).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "NAMES" for target in targets):
            table = ast.literal_eval(node.value)
            prefix = f"{room}." if room else ""
            return {n: prefix + module for module, names in table.items() for n in names.split()}
    return {}


def reached(imports: Iterable[str], package: Package) -> list[str]:
    """The package's modules that code with these imports uses, directly or through one another."""
    modules, left = set(), [imports]
    while left:
        new = package.imported(left.pop()) - modules
        modules |= new
        left += [package.meanings[name].imports for name in new]
    return sorted(modules)


def unseen(story: Path, package: Package, loaded: set[str]) -> list[str]:
    """The modules of the package among those loaded that a story does not reach.

    A story that loads one without a plain import would never be stale.
    """
    modules = {name.removeprefix("mhattn.") for name in loaded if name.startswith("mhattn.")}
    return sorted(modules - {*reached(of_story(story).imports, package), *package.doors, DOOR})


def needs_torch(story: Path, package: Package) -> bool:
    """Whether a story's process has to load torch: unless all that it imports is known not to."""
    meaning = of_story(story)
    modules = reached(meaning.imports, package)
    others = set(meaning.others).union(*(package.meanings[name].others for name in modules))
    return bool(WATCHED & {name.split(".")[-1] for name in modules}) or not others <= LIGHT


def data_of(text: str) -> list[Path]:
    """The data that a story reads by name, or of a name that it makes the files of its folder."""
    named = (located(name) for name in sorted(set(DATA.findall(text))))
    found = [[path] if path.is_file() else sorted(path.glob("*")) for path in named]
    return [path for paths in found for path in paths if path.is_file()]


def content(story: Path, package: Package) -> str:
    """The hash of all that a story's results depend on, whoever runs it."""
    meaning = of_story(story)
    modules = reached(meaning.imports, package)
    meanings = {name: package.meanings[name] for name in modules} | {STORY: meaning}
    shows_docstrings = _show_docstrings(meanings, package)
    parts = [package.runner]
    for name, meaning in meanings.items():
        _, *data = package.texts.get(name, "").split("\0")
        parts += [name, meaning.code, *data, meaning.docstrings * (name in shows_docstrings)]
    for path in data_of(story.read_text(encoding="utf-8")):
        parts += [path.name, cache.file_hash(path)]
    return hash_of(parts + [model.member_sha256 for model in models.needed_by(story)])


def _show_docstrings(meanings: dict[str, Meaning], package: Package) -> set[str]:
    """Whose docstrings may be printed: of what reads some, what it imports, and who imports it."""
    readers = {name for name, meaning in meanings.items() if meaning.reads_docstrings}
    shown = readers.union(*(package.imported(meanings[name].imports) for name in readers))
    return shown | {n for n, each in meanings.items() if package.imported(each.imports) & readers}


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
    who = hash_of(f"{name} {value}" for name, value in sorted(environment.items()))
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
