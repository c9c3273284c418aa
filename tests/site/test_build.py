"""The build, on a small project of its own: two pages, two stories, a lab, both languages.

Each build takes some seconds of a core, and code that decides when something is built is rarely
touched: so two of these tests are in every run, the others are slow.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from drawn import few_now
from mhsite.stories import cache
from mhsite.stories.source import ROOT

ONE = """\
# --8<-- [start:numbers]
>>> import os
>>> with open(os.environ["STORY_LOG"], "a", encoding="utf-8") as log:
...     _ = log.write("one\\n")
>>> print(1 + 1)
2

# --8<-- [end:numbers]
# --8<-- [start:picture]
>>> import matplotlib.pyplot as plt
>>> _ = plt.plot([1, 2])

# --8<-- [end:picture]
# --8<-- [start:state]
>>> plt.rcParams["lines.linewidth"] = 9
>>> os.environ["LEAK"] = "yes"

# --8<-- [end:state]
"""
TWO = """\
# --8<-- [start:clean]
>>> import os, time
>>> import matplotlib.pyplot as plt
>>> with open(os.environ["STORY_LOG"], "a", encoding="utf-8") as log:
...     _ = log.write("two\\n")
>>> while "STORY_GATE" in os.environ and os.path.exists(os.environ["STORY_GATE"]):
...     time.sleep(0.05)
>>> print(plt.rcParams["lines.linewidth"], os.environ.get("LEAK"))
1.5 None
>>> from mhattn.costs import attention_cost
>>> with open(os.path.join(os.environ["MHATTN_FILES"], "two.txt"), "w", encoding="utf-8") as file:
...     _ = file.write("for the page")
>>> _ = plt.plot([2, 1])

# --8<-- [end:clean]
"""
LEAKS = """\
# --8<-- [start:leaks]
>>> import torch
>>> _ = torch.manual_seed(7)
>>> torch.set_default_dtype(torch.float64)

# --8<-- [end:leaks]
"""
STAYS = """\
# --8<-- [start:stays]
>>> import torch
>>> print(torch.initial_seed() == 7, torch.get_default_dtype())
False torch.float32

# --8<-- [end:stays]
"""
LAB = """\
# --8<-- [start:look]
import os

with open(os.environ["STORY_LOG"], "a", encoding="utf-8") as log:
    log.write("lab\\n")
print("looked")
# --8<-- [end:look]
"""
INDEX = """\
# Title { #title }

On [two](two.md) and [the lab](labs/lab.md#lab), see [@vaswani2017].

```pycon
--8<-- "one.pycon:numbers"
```

```pycon
--8<-- "one.pycon:picture"
```

![a line](figures/one/picture.svg)

```pycon
--8<-- "one.pycon:state"
```

$$
\\query{Q} = 1
$$
"""
PAGES = {
    "index.md": INDEX,
    "two.md": '# Two { #two }\n\n```pycon\n--8<-- "two.pycon:clean"\n```\n\n'
    "![a line](figures/two/clean.svg)\n",
    "bibliography.md": "# Bibliography { #bibliography }\n\n<!-- bibliography -->\n",
    "labs/lab.md": '# Lab { #lab }\n\nWith $x$.\n\n```python\n--8<-- "lab.py:look"\n```\n',
}
NAVIGATION = "nav:\n  - index.md\n  - two.md\n  - labs/lab.md\n  - bibliography.md\n"


def hear_ctrl_c():
    """Also where the tests themselves run behind a shell, which then has them ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Project:
    """A copy of this project with other pages, and what happens when it is built."""

    def __init__(self, folder: Path):
        self.folder, self.site, self.log = folder, folder / "site", folder / "log"
        self.gate = folder / "gate"

    def file(self, path):
        return self.folder / path

    def edit(self, path, old, new):
        text = self.file(path).read_text(encoding="utf-8")
        assert old in text
        self.file(path).write_text(text.replace(old, new), encoding="utf-8")

    def start(self, *command, gate=False, installed="", cache=None):
        """The build as a process in a group of its own; ``gate`` holds story two until it goes.

        ``installed`` is a folder that comes before what this environment has installed; ``cache``
        is where results are filed.
        """
        environment = os.environ | {"STORY_LOG": str(self.log)}
        environment |= {"MHATTN_CACHE": str(cache or self.folder / ".cache")}
        environment["PYTHONPATH"] = str(installed)
        environment |= {"STORY_GATE": str(self.gate)} if gate else {}
        return subprocess.Popen(
            [sys.executable, *(command or ("-m", "mkdocs", "build"))],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            start_new_session=True,
            preexec_fn=hear_ctrl_c if sys.platform != "win32" else None,
        )

    def build(self, *command, **options):
        """Its exit code and what it said."""
        with self.start(*command, **options) as process:
            said = process.communicate(timeout=300)[0]
        return process.returncode, said

    def ran(self):
        """The stories that ran since the last call."""
        names = self.log.read_text(encoding="utf-8").split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(names)

    def bytes(self):
        """Every file of the site with its hash."""
        return {
            path.relative_to(self.site).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.site.rglob("*"))
            if path.is_file()
        }

    def left_over(self):
        """Half-written sites and results."""
        drafts = self.folder.glob(".cache/stories/*/*/.draft-*")
        return [*self.folder.glob(".site.*"), *drafts]


@contextmanager
def killed_at_the_end(process):
    """Kill it with all that it started; ``said`` is then what it said."""
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.said = process.communicate()[0]


kills = pytest.mark.skipif(
    sys.platform == "win32", reason="kills a group of processes, which Windows cannot"
)


def wait_until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found


def make_project(folder):
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("scripts", "mhattn", "docs/theme", "docs/assets", "docs/data"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("mkdocs.yml", "docs/zh.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        text, count = re.subn(r"^nav:\n( .*\n)+", NAVIGATION, text, flags=re.M)
        assert count == (name == "mkdocs.yml")
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("pyproject.toml", "README.md", "LICENSE"):  # of the wheel
        shutil.copy(ROOT / name, folder / name)
    for language in ("en", "zh"):
        for name, text in PAGES.items():
            path = folder / "docs" / language / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name, text in {
        "stories/one.pycon": ONE,
        "stories/two.pycon": TWO,
        "labs/lab.py": LAB,
    }.items():
        (folder / "docs" / name).parent.mkdir(exist_ok=True)
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    return Project(folder)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A project just built for the first time; tests look at it and copy it."""
    made = make_project(tmp_path_factory.mktemp("fresh"))
    code, made.said = made.build()
    assert code == 0, made.said
    made.first_run = made.ran()
    return made


@pytest.fixture
def project(fresh, tmp_path):
    """A copy of the built project, to change and to break."""
    shutil.copytree(fresh.folder, tmp_path / "copy", symlinks=True)
    return Project(tmp_path / "copy")


# What is run and what is not


def test_fresh_build_runs_everything_and_builds_everything(fresh):
    assert fresh.first_run == ["lab", "one", "two"]
    pages = {"index.html", "two/index.html", "labs/lab/index.html"}
    extras = {"404.html", "sitemap.xml", "search/search_index.json", "search/part-0.json"}
    names = {"one/picture.svg", "two/clean.svg"}
    downloads = {
        f"{name}.{end}" for name in ("index", "two", "labs/lab") for end in ("ipynb", "py")
    }
    expected = (
        pages | extras | {f"figures/{n}" for n in names} | {f"downloads/{n}" for n in downloads}
    )
    built = set(fresh.bytes())
    assert expected | {f"zh/{name}" for name in expected} <= built
    (wheel,) = (name for name in built if name.endswith(".whl"))
    assert re.fullmatch(r"packages/mhattn-[\d.]+-py3-none-any\.whl", wheel)
    assert fresh.left_over() == []
    lab = (fresh.site / "labs" / "lab" / "index.html").read_text(encoding="utf-8")
    assert '<pre class="mh-output">looked</pre>' in lab
    assert re.search(r'<h1 id="lab">Lab<a .*</h1>\n<p class="mh-about">', lab)
    assert "pip install" not in lab


def test_links_lead_to_no_host_but_where_one_must_be_named(fresh):
    """So the site works on any host, below any path; those who list it need whole addresses."""
    pages = sorted(fresh.site.rglob("*.html"))
    assert {f"{part}{old}" for part in ("", "zh/") for old in ("chapters/", "head-size/")} <= {
        f"{path.parent.relative_to(fresh.site).as_posix()}/" for path in pages
    }
    for path in pages:
        if path.name == "404.html":  # it is shown at every address
            continue
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for each in soup.select("link[rel=canonical], link[rel~=alternate], meta[property]"):
            each.extract()
        for script in soup.select('script[type="application/ld+json"]'):
            script.extract()
        links = [each.get("href") or each.get("src") for each in soup.select("[href], [src]")]
        links += [each["content"].partition("url=")[2] for each in soup.select("[http-equiv]")]
        assert links
        assert [to for to in links if to.startswith(("/", "https://mhattn.github.io"))] == [], path
        assert not any("mhattn.github.io" in script.text for script in soup.select("script")), path


@pytest.mark.slow
def test_warm_build_runs_nothing_and_gives_the_same_bytes(project, fresh):
    code, said = project.build()
    assert (code, project.ran()) == (0, []), said
    assert project.bytes() == fresh.bytes()


@pytest.mark.slow
def test_change_of_prose_runs_nothing(project, fresh):
    for language in ("en", "zh"):
        project.edit(f"docs/{language}/index.md", "On [two]", "New prose on [two]")
    code, said = project.build()
    assert (code, project.ran()) == (0, []), said
    assert "New prose" in (project.site / "index.html").read_text(encoding="utf-8")
    assert "New prose" in (project.site / "zh" / "index.html").read_text(encoding="utf-8")
    changed = {n for n, digest in project.bytes().items() if fresh.bytes().get(n) != digest}
    assert not any("two" in name or "lab" in name for name in changed)


def test_change_of_one_story_runs_that_story(project):
    project.edit("docs/stories/one.pycon", "print(1 + 1)\n2", "print(1 + 2)\n3")
    code, said = project.build()
    assert (code, project.ran()) == (0, ["one"]), said
    notebook = (project.site / "downloads" / "index.ipynb").read_text(encoding="utf-8")
    printed = {"output_type": "stream", "name": "stdout", "text": ["3\n"]}
    cells = json.loads(notebook)["cells"]
    assert next(cell["outputs"] for cell in cells if cell.get("outputs")) == [printed]


@pytest.mark.slow
def test_change_of_the_package_runs_the_stories_that_it_reaches(project):
    for name in ("costs/attention", "variants/sparse"):  # the story uses the first
        with project.file(f"mhattn/{name}.py").open("a", encoding="utf-8") as file:
            file.write("# changed\n")
    code, said = project.build()
    assert (code, project.ran()) == (0, ["two"]), said


@pytest.mark.slow
def test_change_of_the_runner_runs_all(project):
    with project.file("scripts/mhsite/stories/runner.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    code, said = project.build()
    assert (code, project.ran()) == (0, ["lab", "one", "two"]), said


@pytest.mark.slow
def test_force_runs_all_one_by_one_and_gives_the_same_bytes(project, fresh):
    """In one fork server, after story one has changed the style: see story two."""
    target = project.file("elsewhere")
    command = ["scripts/build.py", "--force", "--jobs", "1", "--device", "cpu"]
    code, said = project.build(*command, "--site-dir", str(target))
    assert (code, project.ran()) == (0, ["lab", "one", "two"]), said
    project.site = target
    assert project.bytes() == fresh.bytes()


@pytest.mark.slow
def test_what_a_story_does_to_torch_stays_in_its_process(project):
    for name, text in (("leaks", LEAKS), ("stays", STAYS)):
        project.file(f"docs/stories/{name}.pycon").write_text(text, encoding="utf-8")
    command = ["scripts/stories.py", "--jobs", "1", "leaks", "stays"]
    assert project.build(*command) == (0, "")
    assert project.build(*command, "--force") == (0, "")


@pytest.mark.slow
def test_processes_of_stories_that_need_no_torch_do_not_load_it(project):
    """Nor does the fork server, from whose memory they start."""
    check = '>>> import sys\n>>> print("torch" in sys.modules)\nFalse\n'
    project.edit("docs/stories/one.pycon", ">>> import os\n", f">>> import os\n{check}")
    assert project.build("scripts/stories.py", "one") == (0, "")


@pytest.mark.slow
def test_stories_started_as_on_windows_give_the_same_bytes(project, fresh):
    shutil.rmtree(project.file(".cache/stories"))
    code, said = project.build("scripts/stories.py", "--start", "spawn")
    assert (code, project.ran()) == (0, ["lab", "one", "two"]), said
    code, said = project.build()
    assert (code, project.ran()) == (0, []), said
    assert project.bytes() == fresh.bytes()


@pytest.mark.slow
def test_style_of_this_machine_changes_nothing(project, fresh):
    project.file("matplotlibrc").write_text("lines.linewidth: 9\n", encoding="utf-8")
    shutil.rmtree(project.file(".cache/stories"))
    code, said = project.build()
    assert code == 0, said
    assert project.bytes() == fresh.bytes()


# What stops the build


def assert_fails(project, *expected, command=()):
    """With a message, without a traceback; the site stays as it was."""
    before = project.bytes()
    code, said = project.build(*command)
    assert code == 1, said
    for words in expected:
        assert words in said
    assert "Traceback" not in said
    assert project.bytes() == before
    assert project.left_over() == []


@pytest.mark.slow
def test_failing_stories_stop_the_build(project):
    project.edit("docs/stories/one.pycon", "1 + 1", "1 + 3")
    project.edit("docs/stories/two.pycon", "import os, time", "import nosuch")
    project.edit("docs/labs/lab.py", 'print("looked")', "1 / 0")
    stories = project.file("docs/stories")
    assert_fails(
        project,
        f"{stories / 'one.pycon'}:5: in section 'numbers'\n    print(1 + 3)\n",
        "expected\n    2\ngot\n    4",
        f"{stories / 'two.pycon'}:2: in section 'clean'\n    import nosuch\n",
        "ModuleNotFoundError: No module named 'nosuch'",
        f"{project.file('docs/labs/lab.py')}:6: in section 'look'\n    1 / 0\nZeroDivisionError",
    )
    code, _ = project.build("scripts/build.py")
    assert code == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows gives another exit code")
def test_story_whose_process_dies_stops_the_build(project):
    project.edit("docs/stories/two.pycon", "import matplotlib.pyplot as plt", "os.abort()")
    assert_fails(project, "two.pycon: its process ended with exit code -6")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "old", "new", "expected"),
    [
        ("zh/index.md", "md#lab", "md#no", "zh/index.md:3: labs/lab.md has no heading #no"),
        ("en/labs/lab.md", "$x$", "$\\nosuch$", "en/labs/lab.md:3: \\nosuch"),
    ],
)
def test_fault_on_a_page_stops_the_build(project, page, old, new, expected):
    """Of either language, a notebook's page as well; test_pages.py has the faults."""
    project.edit(f"docs/{page}", old, new)
    assert_fails(project, expected)


@pytest.mark.slow
def test_unwritable_cache_is_a_clear_error(project):
    shutil.rmtree(project.file(".cache/stories"))
    project.file(".cache/stories").write_text("not a folder", encoding="utf-8")
    assert_fails(project, "stories: the results cannot be written: ")
    assert_fails(project, "the results cannot be written: ", command=["scripts/build.py"])


# What is mended


@pytest.mark.slow
def test_damaged_results_are_computed_again(project, fresh):
    (figure,) = project.folder.glob(".cache/stories/one/*/*/picture.svg")
    figure.write_bytes(figure.read_bytes()[:100])
    (manifest,) = project.folder.glob(".cache/stories/two/*/*/manifest.json")
    text = manifest.read_text(encoding="utf-8").replace("clean.svg", "other.svg")
    manifest.write_text(text, encoding="utf-8")
    code, said = project.build()
    assert (code, project.ran()) == (0, ["one", "two"]), said
    assert project.bytes() == fresh.bytes()


@pytest.mark.slow
def test_what_a_story_writes_is_on_the_site_of_each_language(project, fresh):
    for language in ("", "zh"):
        written = fresh.site / language / "data" / "two" / "two.txt"
        assert written.read_text(encoding="utf-8") == "for the page"
    (written,) = project.folder.glob(".cache/stories/two/*/*/files/two.txt")
    written.write_text("something else", encoding="utf-8")
    code, said = project.build()
    assert (code, project.ran()) == (0, ["two"]), said
    assert project.bytes() == fresh.bytes()


@pytest.mark.slow
@kills
def test_kill_while_stories_run(project, fresh):
    shutil.rmtree(project.file(".cache/stories"))
    before = project.bytes()
    project.gate.touch()
    with killed_at_the_end(project.start(gate=True)):
        wait_until(lambda: project.log.exists() and "two" in project.log.read_text("utf-8"))
    project.gate.unlink()
    assert project.bytes() == before
    code, said = project.build()
    assert code == 0, said
    assert "two" in project.ran()
    assert project.bytes() == fresh.bytes()


@pytest.mark.slow
@kills
@pytest.mark.parametrize("moment", ["index.html", "zh/assets", "zh/index.html"])
def test_kill_while_pages_are_written(project, fresh, moment):
    shutil.rmtree(project.site)
    with killed_at_the_end(project.start()) as process:
        wait_until(lambda: list(project.folder.glob(f".site.*/{moment}")))
        process.kill()
    assert not project.site.exists()
    assert project.left_over()
    code, said = project.build()
    assert code == 0, said
    assert project.bytes() == fresh.bytes()
    assert project.left_over() == []


@pytest.mark.slow
def test_two_builds_at_once(project, fresh):
    shutil.rmtree(project.file(".cache/stories"))
    processes = [project.start(), project.start()]
    for process in processes:
        said = process.communicate(timeout=300)[0]
        assert process.returncode == 0, said
    assert project.bytes() == fresh.bytes()
    assert project.left_over() == []


SWAP = """\
import os
import sys
from pathlib import Path

from mhsite.engines import publish

final = Path("site")
for number in range(100):
    draft = final.with_name(f".site.{os.getpid()}")
    draft.mkdir()
    (draft / "page").write_text(sys.argv[1], encoding="utf-8")
    publish.replace(final, draft)
"""


@pytest.mark.slow
def test_builds_that_end_at_the_same_moment(tmp_path):
    """The last step of two builds, a hundred times."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    command = [sys.executable, "-W", "ignore", "-c", SWAP]
    racing = [
        subprocess.Popen(
            [*command, name],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for name in ("first", "second")
    ]
    errors = [process.communicate(timeout=60)[1] for process in racing]
    assert [process.returncode for process in racing] == [0, 0], errors
    assert (tmp_path / "site" / "page").read_text(encoding="utf-8") in ("first", "second")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


# mkdocs serve


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return unescape(answer.read().decode())
    except urllib.error.HTTPError as error:  # a page with a fault says which
        return unescape(error.read().decode()) if error.code == 500 else ""
    except OSError:
        return ""


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def served_page(url):
    """A page as the server sends it, without the time of the build."""
    return re.sub(r"livereload\(\d+, \d+\)", "", get(url))


@contextmanager
def served(project, **options):
    """The server, and the address of its first page once that is there; Ctrl-C at the end."""
    address = free_address()
    url, command = f"http://{address}/", ["-m", "mkdocs", "serve", "-a", address]
    with killed_at_the_end(project.start(*command, **options)) as process:
        wait_until(lambda: get(url) or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        yield url
        os.killpg(process.pid, signal.SIGINT)
        project.said = process.communicate(timeout=60)[0]
        assert process.returncode == 0, project.said
        assert "Traceback" not in project.said
    wait_until(lambda: not running_in(process.pid))


def running_in(group):
    """The processes of a group that have not ended."""
    done = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, encoding="utf-8")
    lines = [line.split(None, 2) for line in done.stdout.splitlines()]
    return [line for line in lines if line[0] == str(group) and not line[1].startswith("Z")]


@pytest.mark.slow
@kills
def test_serve_shows_changed_sentences_and_survives_a_fault(project):
    """The page built alone is the same as with all others, but for the sentence."""
    with served(project) as url:
        for language, home in (("zh", url + "zh/"), ("en", url)):
            before = served_page(home)
            assert "On <a" in before
            project.edit(f"docs/{language}/index.md", "On [two]", "Changed [two]")
            wait_until(lambda home=home: "Changed <a" in get(home))
            words = (
                served_page(home).replace("Changed <a", "On <a").replace("Changed two", "On two")
            )
            assert words == before
            assert "Bibliography" in served_page(home + "two/")  # in the nav, though not read
            wait_until(lambda home=home: "Changed two" in get(home + "search/part-0.json"))
            assert '"location":"two/"' in get(home + "search/part-0.json")
        project.edit("docs/en/index.md", "\\query{Q}", "\\nosuch{Q}")
        line = project.file("docs/en/index.md").read_text().split("$$\n\\nosuch")[0].count("\n") + 1
        fault = f"{project.file('docs/en/index.md')}:{line}: \\nosuch{{Q}} = 1"
        wait_until(lambda: fault in get(url))
        assert "Bibliography" in get(url + "two/")
        project.edit("docs/en/index.md", "\\nosuch{Q}", "\\query{Mended}")
        wait_until(lambda: "Mended" in get(url))
    assert fault in project.said
    assert project.ran() == []


COMPUTING = {"": "This machine is computing", "zh/": "本机正在计算"}
DRAWING = {"": "This figure is being drawn.", "zh/": "正在绘制这幅图。"}


@pytest.mark.slow
@kills
def test_serve_without_results_shows_pages_at_once_and_renews_them(project, fresh):
    """Story two waits at a gate: until then its pages show what its file says, and a frame."""
    shutil.rmtree(project.file(".cache/stories"))
    project.gate.touch()
    with served(project, gate=True) as url:
        for language in COMPUTING:
            page = get(f"{url}{language}two/")
            assert COMPUTING[language] in page
            assert DRAWING[language] in page
            assert 'viewBox="0 0 302.4 187.2"' in page  # 4.2 x 2.6 inches
            assert "1.5 None" in page
            assert get(f"{url}{language}data/two/two.txt") == ""
        wait_until(lambda: get(url + "progress.txt") == "2 / 3")
        wait_until(lambda: COMPUTING[""] not in get(url))
        assert "looked" in wait_until(
            lambda: "looked" in get(url + "labs/lab/") and get(url + "labs/lab/")
        )
        moment = round(time.monotonic() * 1000)
        poll = urllib.request.Request(f"{url}livereload/5/{moment}")
        poll.add_header("Referer", url + "zh/two/")
        project.gate.unlink()
        with urllib.request.urlopen(poll, timeout=60) as answer:  # once this page is built again
            assert answer.read() == b"6"
        for language, words in COMPUTING.items():
            page = wait_until(lambda language=language: get(f"{url}{language}two/"))
            wait_until(lambda at=f"{url}{language}two/", words=words: words not in get(at))
            page = get(f"{url}{language}two/")
            assert DRAWING[language] not in page
            assert "a line" in page
            assert get(f"{url}{language}data/two/two.txt") == "for the page"
    assert "stories: 3 of 3: two\n" in project.said
    code, said = project.build()
    assert code == 0, said
    assert sorted(set(project.ran())) == ["lab", "one", "two"], "only by the server"


@pytest.mark.slow
@kills
def test_ctrl_c_ends_stories_at_once_and_leaves_nothing(project):
    shutil.rmtree(project.file(".cache/stories"))
    project.gate.touch()
    with served(project, gate=True) as url:
        get(url + "two/")
        wait_until(lambda: project.log.exists() and "two" in project.log.read_text("utf-8"))
        assert project.left_over(), "story two is under way"
        start = time.monotonic()
    print(f"ended after {time.monotonic() - start:.1f} s")
    assert project.left_over() == []
    assert not list(project.folder.glob(".cache/stories/two/*"))


@pytest.mark.slow
@kills
def test_a_server_that_is_killed_takes_its_stories_with_it(project):
    shutil.rmtree(project.file(".cache/stories"))
    project.gate.touch()
    url = f"http://{(address := free_address())}/"
    command = ["-m", "mkdocs", "serve", "-a", address]
    with killed_at_the_end(project.start(*command, gate=True)) as process:
        wait_until(lambda: get(url))
        wait_until(lambda: project.log.exists() and "two" in project.log.read_text("utf-8"))
        process.kill()
        wait_until(lambda: not running_in(process.pid))
        assert project.left_over() == []


@pytest.mark.slow
@kills
def test_serve_warns_of_stories_that_print_something_else_or_fail(project):
    """Its reader's processor is not ours. The page shows what the file says; a build fails."""
    project.edit("docs/stories/one.pycon", "print(1 + 1)", "print(1 + 3)")
    project.edit("docs/stories/two.pycon", "import os, time", "import os, time; 1 / 0")
    differs = "one.pycon:5: in section 'numbers'\n    print(1 + 3)\nexpected\n    2\ngot\n    4"
    fails = "two.pycon:2: in section 'clean'\n    import os, time; 1 / 0\nZeroDivisionError"
    for ran in (["one"], []):  # the second time from the cache; what failed is tried again
        with served(project) as url:
            wait_until(lambda: differs in get(url))
            wait_until(lambda: fails in get(url + "zh/two/"))
            assert "<svg" in get(url)
            wait_until(lambda: "could not be drawn" in get(url + "two/"))
        assert project.ran() == ran
        assert project.said.count("WARNING: ") == 2
        for words in (differs, fails):
            assert words in project.said
    for command in [(), ["scripts/build.py"]]:
        assert_fails(project, "one.pycon:5: ", "two.pycon:2: ", command=command)
        assert project.ran() == ["one"], "taken from where a lenient run filed it"


@pytest.mark.slow
@kills
def test_another_environments_results_are_shown_and_never_published(project):
    """They are whole, and their figure is not ours: so it is known where a page has it from."""
    for folder in project.folder.glob(".cache/stories/*/*/*"):
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        about["environment"]["torch"] = "9.99.9"
        (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
        for figure in folder.glob("*.svg"):
            text = figure.read_text(encoding="utf-8").replace("<svg ", '<svg data-theirs="" ')
            figure.write_text(text, encoding="utf-8")
        cache.sign(folder)
        folder.rename(folder.with_name("theirs"))
    with served(project) as url:
        for language, words in {"": "Computed with Python ", "zh/": "计算环境：Python "}.items():
            page = get(url + language)
            assert words in page
            assert "torch 9.99.9 on " in page
            assert "data-theirs" in page
            assert COMPUTING[language] not in page
    assert project.ran() == []
    code, said = project.build()
    assert (code, project.ran()) == (0, ["lab", "one", "two"]), said
    for page in project.site.rglob("index.html"):
        assert "9.99.9" not in page.read_text(encoding="utf-8")
        assert "data-theirs" not in page.read_text(encoding="utf-8")


# Two clones in one environment


@pytest.mark.slow
def test_a_clone_builds_itself_whatever_another_installed(project, tmp_path):
    """As an editable install does it: a line in a .pth of this environment names the other."""
    other = tmp_path / "other"
    for name in ("mhattn", "scripts"):
        shutil.copytree(project.file(name), other / name)
    with (other / "mhattn" / "costs.py").open("a", encoding="utf-8") as file:
        file.write("CLONE = 'other'\n")
    with (other / "scripts" / "mhsite" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("raise ImportError('of the other clone')\n")
    with project.file("mhattn/costs/attention.py").open("a", encoding="utf-8") as file:
        file.write("CLONE = 'mine'\n")
    shown = ">>> from mhattn.costs.attention import CLONE\n>>> print(CLONE)\nmine\n"
    project.edit("docs/stories/one.pycon", ">>> print(1 + 1)\n2\n", shown)
    site = tmp_path / "installed" / "sitecustomize.py"  # read as a .pth is: after PYTHONPATH
    site.parent.mkdir()
    added = [str(other), str(other / "scripts")]
    site.write_text(f"import sys\nsys.path += {added}\n", encoding="utf-8")
    for command in [(), ["scripts/stories.py"], ["scripts/stories.py", "--start", "spawn"]]:
        shutil.rmtree(project.file(".cache/stories/one"))
        code, said = project.build(*command, installed=site.parent)
        assert code == 0, said
    assert "mine" in (project.site / "index.html").read_text(encoding="utf-8")


# Notebooks


def notebooks_of(site):
    found = sorted(site.glob("downloads/**/*.ipynb"))
    assert found
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notebooks_are_valid(site):
    import nbformat

    for path in [*notebooks_of(site), *notebooks_of(site / "zh")]:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert notebook.cells[0].source.startswith("# "), path
        assert [cell.id for cell in notebook.cells] == list(
            dict.fromkeys(c.id for c in notebook.cells)
        )


def _plain(output):
    """What an output prints: a piece of a stream, which jupyter cuts anywhere, or a table."""
    data = output.get("data", {})
    table = [*data["text/plain"], "\n"] if "text/html" in data else []
    return "".join(output.get("text") or table)


LABS = sorted((ROOT / "docs" / "labs").glob("*.py"))


@pytest.mark.parametrize("lab", few_now(LABS, 1, of="labs", name=lambda lab: lab.stem))
def test_lab_notebook_runs_from_top_to_bottom(site, tmp_path, lab):
    """As a reader runs it, with jupyter, in a folder where nothing else lies; mhattn is there."""
    made = (site / "downloads" / "labs" / f"{lab.stem}.ipynb").read_text(encoding="utf-8")
    without = made.replace("%pip install", "# ")
    (tmp_path / f"{lab.stem}.ipynb").write_text(without, encoding="utf-8")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"]
    environment = os.environ | {"PYTHONWARNINGS": ""}
    environment.pop("MPLBACKEND", None)
    done = subprocess.run(
        [*command, f"{lab.stem}.ipynb", "--output", "done.ipynb"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr

    def printed(path):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        said = ["".join(map(_plain, cell.get("outputs", []))) for cell in cells]
        return [line for each in said for line in each.splitlines()]

    assert printed(tmp_path / "done.ipynb") == printed(tmp_path / f"{lab.stem}.ipynb")
