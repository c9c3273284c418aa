"""What is taken away runs alone: the wheel, the source archive, and the pages' code with them."""

import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from drawn import few_now
from mhsite.beside import notebook, wheel
from mhsite.engines import build
from mhsite.pages import release
from mhsite.pages.page import page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories.source import DOCS, LANGUAGES, ROOT

from mhattn.lessons import data_file
from mhattn.lessons.files import cache_folder

pytestmark = pytest.mark.usefixtures("nothing_runs")
CODE = re.compile(r"(>>>|\.\.\.)|#|$")  # what is not printed
# One of each kind: plain, with a measurement, with runs, with a model.
SAMPLE = ["en/masks.md", "en/roofline.md", "en/delta-rule.md", "zh/browse-heads.md"]
PAGES = [
    f"{language}/{path.as_posix()}"
    for language in LANGUAGES
    for path in page_paths(language)
    if read(DOCS / language / path).has_code
]


def run(*command, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "--directory", folder, cwd=ROOT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.fixture(scope="module")
def alone(built, tmp_path_factory):
    """Runs Python in an empty folder, with the wheel and nothing of the repository."""
    folder = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", folder)
    run(*pip, built[0], cwd=folder)
    there = {"PYTHONPATH": str(folder), "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    there |= {"MHATTN_CACHE": str(cache_folder()), "KINETO_LOG_LEVEL": "99", "COLUMNS": "80"}
    where = run("-c", "import mhattn; print(mhattn.__file__)", cwd=folder, **there)
    assert where.startswith(str(folder))
    return lambda *command, cwd: run(*command, cwd=cwd, **there)


def names(wheel):
    with zipfile.ZipFile(wheel) as files:
        return {name for name in files.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_the_package_and_what_chapters_read(built):
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "mhattn"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, encoding="utf-8")
    ours = {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}
    data = DOCS / "data"
    files = [p for kind in ("texts", "measured", "runs") for p in (data / kind).rglob("*.*")]
    ours |= {f"mhattn/lessons/data/{path.relative_to(data).as_posix()}" for path in files}
    assert names(built[0]) == ours
    weights = sum(path.stat().st_size for path in files if path.suffix == ".pt")
    assert weights < 5e6
    assert built[0].stat().st_size - weights < 1e6


def test_the_source_archive_gives_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert (source / "LICENSE").is_file()
    run("-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    assert names(wheel) == names(built[0])


# --- the wheel of the site ---


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a site on this machine that has the wheel alone; what was asked of it."""
    folder, asked = tmp_path_factory.mktemp("site"), []
    ((place, content),) = wheel.files().items()
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_bytes(content)

    class Site(SimpleHTTPRequestHandler):
        def log_request(self, code="-", size="-"):
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", asked
    server.shutdown()
    server.server_close()


def test_pip_installs_the_wheel_of_the_site(served, tmp_path, monkeypatch):
    """By the requirement that pages print, with no index and no git."""
    home, asked = served
    wanted = release.wheel("models").replace(settings()["site_url"], home)
    assert wanted == f"mhattn[models] @ {home}{release.wheel_place()}"
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing to call
    where = tmp_path / "installed"
    pip = ("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", where)
    run(*pip, wanted, cwd=tmp_path)
    assert asked == [f"/{release.wheel_place()}"]
    code = "import mhattn; print(mhattn.__file__, mhattn.__version__)"
    said = run("-c", code, cwd=tmp_path, PYTHONPATH=str(where)).split()
    assert said == [str(where / "mhattn" / "__init__.py"), release.version]


def test_the_wheel_of_the_site_is_the_whole_package(built, tmp_path):
    ((place, content),) = wheel.files().items()
    (tmp_path / "site.whl").write_bytes(content)
    assert names(tmp_path / "site.whl") == names(built[0])
    with zipfile.ZipFile(tmp_path / "site.whl") as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = files.read(name).decode().splitlines()
    assert f"Version: {release.version}" in metadata
    assert "Requires-Dist: torch>=2.9" in metadata
    assert "Provides-Extra: models" in metadata
    assert Path(place).name == built[0].name


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_print_where_the_site_has_it(language):
    home = (DOCS / language / "index.md").read_text(encoding="utf-8")
    mirror = "https://pypi.tuna.tsinghua.edu.cn/simple"
    assert (
        f"```bash\npython -m pip config set global.index-url {mirror}\n"
        f'python -m pip install "{release.wheel()}"\n```\n'
    ) in home
    ((_, content),) = wheel.files().items()
    section = home.split("{ #mirror }")[1].split("```")[0]
    assert re.findall(r"(\d+) MB", section) == [f"{len(content) / 1e6:.0f}"]


def test_one_site_of_the_two_has_it(monkeypatch):
    """Both link to it there."""
    for name in ("_downloads", "_outputs", "shared_files", "pages"):
        monkeypatch.setattr(build, name, lambda *_: {})
    monkeypatch.setattr(build.sharing, "files", lambda *_: {})
    monkeypatch.setattr(build.results, "figures", lambda *_: {})
    home = settings()["site_url"]
    assert [[*build.files(language, home)] for language in LANGUAGES] == [
        [release.wheel_place()], []
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["texts/alice.en.txt", "measured/roofline.json", "runs/longer.json"]
)
def test_data_is_found_in_the_wheel(alone, name, tmp_path):
    code = f"from mhattn.lessons import data_file; print(data_file({name!r}))"
    found = Path(alone("-c", code, cwd=tmp_path).strip())
    assert not found.is_relative_to(ROOT)
    assert found.read_bytes() == data_file(name).read_bytes()


def said(page):
    """What a page's code prints, in the page's order, by its story; of a lab nobody knows."""
    shown = [block.section for block in page.walk() if block.kind == "include"]
    if not (told := [section.text for section in shown if section.is_story]):
        return None
    lines = [line for line in "\n".join(told).splitlines() if not CODE.match(line)]
    return [line.replace("<BLANKLINE>", "") for line in lines]


def runs_as_a_script(alone, page, folder):
    page = read(DOCS / page)
    (folder / "page.py").write_text(notebook.script(page, "https://site/"), encoding="utf-8")
    printed = alone("page.py", cwd=folder)
    if (expected := said(page)) is not None:
        shown = [line for line in printed.splitlines() if line]
        assert shown == [line for line in expected if line]


@pytest.mark.parametrize("page", few_now(SAMPLE, 1, of="scripts", name=str))
def test_a_sample_of_scripts_runs_alone(alone, trained, page, tmp_path):
    runs_as_a_script(alone, page, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_every_script_runs_alone(alone, trained, page, tmp_path):
    runs_as_a_script(alone, page, tmp_path)


def runs_as_a_notebook(alone, page, folder):
    """As a reader runs it, but for the first cell: the package is installed."""
    made = notebook.notebook(read(DOCS / page), "https://site/").replace("%pip install", "# ")
    (folder / "page.ipynb").write_text(made, encoding="utf-8")
    alone("-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", "page.ipynb", cwd=folder)


@pytest.mark.parametrize("page", few_now(SAMPLE[:2], 1, of="notebooks", name=str))
def test_a_sample_of_notebooks_runs_alone(alone, trained, page, tmp_path):
    runs_as_a_notebook(alone, page, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_every_notebook_runs_alone(alone, trained, page, tmp_path):
    runs_as_a_notebook(alone, page, tmp_path)


def test_what_is_no_file_of_the_chapters_is_refused():
    for name in ("texts/nosuch.txt", "models/nosuch.bin", "texts", "", "../../pyproject.toml"):
        with pytest.raises(ValueError, match=re.escape(f"got {name!r}")):
            data_file(name)


def test_pytest_finds_the_doctor_in_the_wheel(alone, tmp_path):
    test = tmp_path / "test_layer.py"
    test.write_text(
        "from torch import nn\n\n"
        "def test_layer(check_attention):\n"
        "    layer = nn.MultiheadAttention(24, 3, batch_first=True)\n"
        "    check_attention(layer, only=['order'], require=['order'])\n",
        encoding="utf-8",
    )
    told = alone(
        "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", tmp_path, test, cwd=tmp_path
    )
    assert re.search(r"test_layer SUBPASSED\[order\]", told)
