"""Cells that a reader runs in the page: which pages have them, and the files that they need.

Python itself is Pyodide, as WebAssembly, which `mhsite.pages.from_npm` fetches. Where it can't be
had, pages are built without the keys that run their code.

What else a cell imports is one archive: the package's modules that the code of these pages
reaches, and `docs/page`, which stands in for torch and matplotlib and runs the cells.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from typing import cast

from mhattn.lessons.files import located
from mhsite import words
from mhsite.pages import fragments, from_npm, navigation
from mhsite.pages.page import Page, read
from mhsite.pages.runs import published
from mhsite.stories import keys, meaning
from mhsite.stories.source import DOCS, LANGUAGES, ROOT

TAKEN = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
SHOWN = ("pyodide.asm.wasm", "python_stdlib.zip")  # whose arrival the bar shows
HERE = DOCS / "page"
MORE = ("by-hand.md", "questions.md")  # pages whose cells run, beside the road and the labs
STANDS_IN = "show/plots.py"  # of the package: what needs NumPy has a twin in docs/page
PLACE = re.compile(r"^[A-Z]+(?: = \w+)+ = None.*\n", re.M)
NUMPY = re.compile(rb"^import numpy as np\n", re.M)  # what reads files of models; a page has none
GRIDS = Path(keys.__file__).with_name("grids.py")  # whose module would load torch here
CONSTANTS = {"COLORS", "HEAD_COLORS", "NEGATIVE"}
MADE_OF = {"KEYS", "QUERY", "ZERO", "LONGEST", "made_of", "_pairs", "_product", "_plain"}
DATA = "mhattn/lessons/data"  # where the package looks for a chapter's files
LARGEST = 200_000  # bytes of a file of data that travels with the modules
NOTICE = """Pyodide {version}, https://pyodide.org: CPython for the browser, in WebAssembly.
Mozilla Public License 2.0, https://www.mozilla.org/MPL/2.0/; Python itself: PSF License.
Source: https://github.com/pyodide/pyodide/tree/{version}
"""


def runs(page: Page) -> bool:
    """Whether the cells of a page have a key that runs them."""
    wanted = HERE.is_dir() and page.has_code and page.name in _names()
    return wanted and fetched() is not None


def script(address: Callable[[str], str]) -> str:
    """The script that puts the keys there, and what they look like: of no other page."""
    return fragments.sheet("run", address) + fragments.script("run", address)


def field(stub: str) -> str:
    """The place of a task where the reader writes, with the head of what is asked for."""
    _, *heads, call = stub.split("\n\n\n")  # behind what a notebook says of the cell
    data = f'data-stub="{_attribute(chr(10).join(heads))}"'
    data += f' data-call="{_attribute(call.removeprefix("# "))}"'
    data += " data-doctor" if call.removeprefix("# ") in _examined() else ""
    return f'<div class="mh-turn" {data}></div>'


@cache
def _examined() -> frozenset[str]:
    """The calls of tests whose answers the doctor can examine."""
    for node in ast.parse((HERE / "layers.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return frozenset(map(ast.literal_eval, cast(ast.Dict, node.value).keys))
    raise ValueError("layers.py has no LAYERS")


def _attribute(text: str) -> str:
    return escape(text).replace("\n", "&#10;")


@cache
def _names() -> frozenset[str]:
    labs = [name for name in _all() if name.startswith("labs/")]
    return frozenset([*navigation.road(LANGUAGES[0]), *labs, *MORE])


def _all() -> list[str]:
    paths = navigation.pages(LANGUAGES[0])
    return [path.relative_to(DOCS / LANGUAGES[0]).as_posix() for path in paths]


def fetched() -> Path | None:
    """The folder of Pyodide's files; None, after saying so, where it can't be had."""
    return from_npm.fetched("pyodide", TAKEN, "pages don't offer to run their code")


def files(language: str) -> dict[str, str | bytes | Path]:
    """What lies in the assets of a language's site for this: both share all that is large."""
    if not HERE.is_dir():  # a small project, such as those of the tests
        return {}
    folder = fetched()
    if folder is None:
        return {"assets/run-files.js": "export const files = null\n"}
    packed, version = modules(), from_npm.pinned("pyodide")[0]
    names = {"python": f"pyodide-{version}/", "modules": f"page-{_short(packed)}.tar.bz2"}
    first = language == LANGUAGES[0]
    up = "" if first else "../../assets/"
    about = {name: up + place for name, place in names.items()}
    raw = [(folder / name).stat().st_size for name in SHOWN]
    about |= {"bytes": sum(_sizes(folder)) + len(packed), "whole": sum(raw) + len(packed)}
    about |= {"language": language, "late": _late()}
    found: dict[str, str | bytes | Path] = {
        "assets/run-files.js": f"export const files = {json.dumps(about)}\n"
    }
    if first:
        found |= {f"assets/{names['python']}{name}": folder / name for name in TAKEN}
        found[f"assets/{names['python']}NOTICE.txt"] = NOTICE.format(version=version)
        found[f"assets/{names['modules']}"] = packed
    return found


@cache
def _sizes(folder: Path) -> list[int]:
    """Of each file the bytes that travel: a server compresses them."""
    return [len(gzip.compress((folder / name).read_bytes())) for name in TAKEN]


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@cache
def modules() -> bytes:
    """The archive of what cells import; the same sources give the same bytes.

    All files are compressed as one, since small ones have much in common.
    """
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:bz2") as archive:
        for name, content in sorted(_contents().items()):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return made.getvalue()


def _contents() -> dict[str, bytes]:
    found = {p.relative_to(HERE).as_posix(): p.read_bytes() for p in HERE.rglob("*.py")}
    del found["plots.py"]
    package, home = keys.package(), ROOT / "mhattn"
    imports = set()
    for story in _stories():
        imports |= set(meaning.of_story(story).imports)
    data = _data()
    reached = [f"{name.replace('.', '/')}.py" for name in keys.reached(imports, package)]
    rooms = {path.parent for path in map(home.joinpath, reached)} | {home}
    reached.append("lessons/files.py")  # which keys don't follow: it only finds files
    for path in [*map(home.joinpath, reached), home / "door.py", *_doors(rooms)]:
        code = NUMPY.sub(b"np = None\n", path.read_bytes())
        found[f"mhattn/{path.relative_to(home).as_posix()}"] = code
        for beside in path.parent.glob("*.toml"):
            if beside.name in path.read_text(encoding="utf-8"):
                found[f"mhattn/{beside.relative_to(home).as_posix()}"] = beside.read_bytes()
    found[f"mhattn/{STANDS_IN}"] = _filled(HERE / "plots.py", home / STANDS_IN, CONSTANTS)
    found["grids.py"] = _filled(HERE / "grids.py", GRIDS, MADE_OF)
    for name, path in data.items():
        if path.stat().st_size <= LARGEST:
            found[f"{DATA}/{name}"] = path.read_bytes()
    for language in LANGUAGES:
        said = words.of(language, "python.mistakes")
        found[f"mistakes.{language}.json"] = json.dumps(said, ensure_ascii=False).encode()
    return found


def _data() -> dict[str, Path]:
    """The data that these stories read, in either language, under their names."""
    told = [
        path for story in _stories() for path in (story, *story.parent.glob(f"{story.stem}.zh.*"))
    ]
    paths = {path for each in told for path in keys.data_of(each.read_text(encoding="utf-8"))}
    return {path.relative_to(located("")).as_posix(): path for path in sorted(paths)}


def _late() -> dict[str, str]:
    """What is loaded once a cell opens it: its place, and its address from the assets."""
    served = published()
    large = [name for name, path in _data().items() if path.stat().st_size > LARGEST]
    return {f"{DATA}/{name}": f"../data/{name}" for name in large if f"data/{name}" in served}


def _doors(rooms: set[Path]) -> list[Path]:
    """The doors of all rooms: `mhattn` lists them."""
    return [room / "__init__.py" for room in rooms if (room / "__init__.py").is_file()]


def _stories() -> list[Path]:
    """The stories of the pages whose cells run."""
    pages = [read(DOCS / LANGUAGES[0] / name) for name in sorted(_names())]
    blocks = (block for page in pages for block in page.walk() if block.kind == "include")
    known = set(keys.all_stories())
    return sorted({block.section.path for block in blocks} & known)


def _filled(path: Path, source: Path, wanted: set[str]) -> bytes:
    """A module of the page with definitions of another in the place of its line ``… = None``."""
    kept = []
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        if {getattr(target, "id", ""), getattr(target, "name", "")} & wanted:
            if isinstance(node, ast.FunctionDef):  # its types are for who reads the source
                node.returns = None
                for argument in node.args.args:
                    argument.annotation = None
            kept.append(ast.unparse(node))
    definitions = "\n".join(kept) + "\n"
    return PLACE.sub(lambda _: definitions, path.read_text(encoding="utf-8")).encode()
