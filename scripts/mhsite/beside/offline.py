"""The finished site as a zip whose pages work from a folder, without a server.

A browser that opens a file shows a folder as a list, runs no modules and fetches nothing. So here
links name files, modules are plain scripts, and what scripts fetch is one as well: `offline.js`.
"""

from __future__ import annotations

import json
import posixpath
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from mhsite.pages import release
from mhsite.stories.source import LANGUAGES, SourceError

HOSTED = re.compile(
    r"404\.html|robots\.txt|sitemap\.xml(\.gz)?|.*\.map"
    # A page from a folder starts no worker.
    r"|assets/(run-(worker|kernels)\.js|pyodide-.*|page-\w+\.tar\.bz2|smollm/.*)"
    r"|assets/smollm-(worker|model|edit|file|tokens)\.js"
)  # of use to a host alone
FETCHED = re.compile(r"data/(?!measured/|runs/)|search/(part-|words)")
MODULE = re.compile(r'<script type="module" src="([./]*assets/)([\w-]+\.js)"></script>')
LINK = re.compile(r'(?:(?<=\shref=")|(?<=content="0; url=))(?P<path>[^":?#]+)(?=["?#])')
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w-]+\.js)";?$', re.M)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|const|class) (\w+))", re.M)
FRAME = """<!doctype html>
<meta charset="utf-8">
<script src="../../offline.js"></script>
<script src="search.js"></script>
"""  # which searches
LATER = re.compile(r'\bimport\("\./([\w-]+\.js)"\)')  # of a module that imports nothing itself
LEFT = re.compile(r"^(import|export)\b.*|\bimport[.(].*", re.M)


def write(site: Path, archive: Path) -> None:
    """Put a finished site into a zip, in one folder; the same commit gives the same bytes."""
    with ZipFile(archive, "w") as made:
        for language in LANGUAGES:
            below = "" if language == LANGUAGES[0] else f"{language}/"
            for name, content in sorted(files(site / below, below)):
                info = ZipInfo(f"{archive.stem}/{below}{name}", release.date().timetuple()[:6])
                info.compress_type, info.external_attr = ZIP_DEFLATED, 0o644 << 16
                made.writestr(info, content)


def files(site: Path, below: str) -> Iterator[tuple[str, str | bytes]]:
    """The files of a language's site, which lies ``below`` that of both, by their names."""
    others = [] if below else [site / language for language in LANGUAGES[1:]]
    modules = {path.name: path.read_text(encoding="utf-8") for path in site.glob("assets/*.js")}
    for path in filter(Path.is_file, site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if HOSTED.fullmatch(name) or any(map(path.is_relative_to, others)):
            continue
        if path.suffix == ".html":
            yield name, page(path.read_text(encoding="utf-8"), name, modules)
        elif FETCHED.match(name):
            yield f"{name}.js", fetched(path)
        elif path.name in modules:
            yield name, script(path.name, modules[path.name])
        elif name == "search/search_index.json":
            yield name.replace(".json", ".js"), f"var __index = {path.read_text(encoding='utf-8')}"
        else:
            yield name, path.read_bytes()
    yield "assets/javascripts/workers/search.html", FRAME
    yield "assets/offline.js", Path(__file__).with_name("offline.js").read_bytes()


def page(html: str, name: str, modules: dict[str, str]) -> str:
    """A page whose links name files, with plain scripts in the place of modules."""
    top, loaded = "../" * name.count("/"), []

    def scripts(match: re.Match[str]) -> str:
        new = [each for each in with_imports(match[2], modules) if each not in loaded]
        loaded.extend(new)
        return "\n".join(f'<script defer src="{match[1]}{each}"></script>' for each in new)

    html = html.replace("<head>", f'<head><script src="{top}assets/offline.js"></script>', 1)
    return LINK.sub(lambda match: file(match["path"]), MODULE.sub(scripts, html))


def file(address: str) -> str:
    """The file that a server sends for an address: a folder's first page."""
    is_folder = address.split("/")[-1] in ("", ".", "..")
    return posixpath.join(address, "index.html") if is_folder else address


def with_imports(module: str, modules: dict[str, str]) -> list[str]:
    """A module behind all that it imports."""
    found = [name for _, name in IMPORT.findall(modules[module])]
    found = [each for name in found for each in with_imports(name, modules)]
    return [*dict.fromkeys(found), module]


def script(name: str, code: str) -> str:
    """A module as a plain script, which keeps what it exports under its name."""
    exported = ", ".join(EXPORT.findall(code))
    code = IMPORT.sub(lambda m: f"const {m[1].replace(' as ', ': ')} = modules[{m[2]!r}]", code)
    code = LATER.sub(r'imported("\1")', code)
    code = EXPORT.sub("", code).replace("import.meta.url", "document.currentScript.src")
    if left := LEFT.search(code):
        raise SourceError(f"mhsite.beside.offline cannot make a plain script of {name}: {left[0]}")
    return f'modules["{name}"] = (() => {{\n"use strict";\n{code}\nreturn {{ {exported} }}\n}})()\n'


def fetched(path: Path) -> str:
    """A file as a script that hands it over; a part of the search index says where files lie."""
    content = path.read_bytes()
    if path.name.startswith("part-"):
        entries = json.loads(content)
        for entry in entries:
            where, hash_, anchor = entry["location"].partition("#")
            entry["location"] = file(where) + hash_ + anchor
        content = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    return f'arrived[document.currentScript.src] = "{b64encode(content).decode()}"\n'
