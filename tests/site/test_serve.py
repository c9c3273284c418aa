"""`mkdocs serve`: what is rendered first, and what it says, on pages and in the terminal."""

import random
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from mhsite.engines import page_renderer, serve
from mhsite.stories.source import ROOT
from test_build import (
    COMPUTING,
    DRAWING,
    Project,
    free_address,
    get,
    killed_at_the_end,
    kills,
    make_project,
    served,
    wait_until,
)


class Steps:
    """In a renderer's place: each page takes three steps, each of which the test allows."""

    def __init__(self):
        self.allowed, self.rendered, self.given_up = threading.Semaphore(0), [], []
        self.begun = []

    def render(self, page, goes_on):
        self.begun.append(page.path)
        for _ in range(3):
            self.allowed.acquire()
            if not goes_on():
                self.given_up.append(page.path)
                return False
        self.rendered.append(page.path)
        return True

    def index(self):
        pass


@pytest.fixture
def site():
    """The pages of this project, of which none is rendered; ``steps`` renders them."""
    made = serve.Site(SimpleNamespace(serve_request=None), None, {})
    made.steps = Steps()
    made.renderers = {"en": made.steps, "zh": made.steps}
    thread = threading.Thread(target=made.build)
    thread.start()
    wait_until(lambda: made.steps.begun)
    yield made
    with made.changed:
        made.ended = True
        made.changed.notify_all()
    made.steps.allowed.release(3)
    thread.join(timeout=10)
    assert not thread.is_alive()


def asked_for(site, page):
    """A reader who opens a page."""
    reader = threading.Thread(target=site.open, args=[page], daemon=True)
    reader.start()
    wait_until(lambda: page in site.asked)
    return reader


def allow(site, steps, pages):
    """Let so many steps be taken; then so many pages have been begun or rendered."""
    site.steps.allowed.release(steps)
    wait_until(lambda: len(site.steps.begun) == pages)


def test_the_page_asked_for_is_rendered_next_however_many_wait(site):
    order = serve.pages_in_order()
    assert len(order) > 200
    allow(site, 3, 2)
    assert site.steps.rendered == order[:1]
    reader = asked_for(site, order[-1])
    allow(site, 1, 3)  # the second page is given up at its next step
    assert site.steps.given_up == [order[1]]
    allow(site, 3, 4)
    reader.join(timeout=10)
    assert not reader.is_alive()
    assert site.steps.rendered == [order[0], order[-1]]
    allow(site, 3, 5)  # and taken up again
    assert site.steps.rendered == [order[0], order[-1], order[1]]


def test_a_page_that_a_reader_waits_for_is_not_given_up_for_another(site):
    order = serve.pages_in_order()
    asked_for(site, order[9])
    allow(site, 1, 2)
    assert site.steps.given_up == [order[0]]
    asked_for(site, order[8])
    asked_for(site, order[7])
    allow(site, 9, 5)
    assert site.steps.rendered == [order[9], order[7], order[8]]
    assert site.steps.given_up == [order[0]]


def test_who_reads_while_a_page_is_written_anew_gets_the_old_one_whole(tmp_path, monkeypatch):
    place = tmp_path / "index.html"
    place.write_text("the old page")
    page = SimpleNamespace(file=SimpleNamespace(abs_dest_path=str(place)), content="")
    renderer = object.__new__(page_renderer.Renderer)
    renderer.files = SimpleNamespace(documentation_pages=list)
    renderer.config = renderer.nav = renderer.env = None
    monkeypatch.setattr(renderer, "_made", lambda _: page)
    seen = []

    def build_page(page, *_):
        with Path(page.file.abs_dest_path).open("w") as written:
            seen.append(place.read_text())  # as MkDocs does: empty first, then written
            written.write("the new page")
        seen.append(place.read_text())

    monkeypatch.setattr(page_renderer.mkdocs, "_build_page", build_page)
    assert renderer._write(page)
    assert seen == ["the old page"] * 2
    assert place.read_text() == "the new page"
    assert [*tmp_path.iterdir()] == [place]
    assert page.file.abs_dest_path == str(place)


# On the small project of test_build.py, of which nothing is filed


@pytest.fixture
def unbuilt(tmp_path):
    return make_project(tmp_path / "project")


STOPPED = {
    "": "this machine has stopped computing",
    "zh/": "本机已停止计算",
}
CURES = {
    "a folder": {
        "": "Set the variable MHATTN_CACHE to a folder that can be written",
        "zh/": "请把环境变量 MHATTN_CACHE 设为一个可写的文件夹",
    },
    "an error": {"": "Start mkdocs serve again", "zh/": "请重新运行 mkdocs serve"},
}


@kills
@pytest.mark.parametrize("cause", CURES)
def test_pages_say_why_nothing_is_computed_and_what_helps(unbuilt, cause):
    if cause == "a folder":
        (unbuilt.folder / ".cache").write_text("not a folder", encoding="utf-8")
        reason = f"{unbuilt.folder / '.cache' / 'stories'}: the results cannot be written: "
    else:
        unbuilt.edit("scripts/mhsite/stories/schedule.py", "yield from self._start_next()", "1 / 0")
        reason = "ZeroDivisionError('division by zero')"
    with served(unbuilt) as url:
        for language, words in STOPPED.items():
            wait_until(lambda at=url + language, words=words: words in get(at))
            page = get(url + language)
            assert CURES[cause][language] in page
            assert reason in page
            assert COMPUTING[language] not in page
            assert DRAWING[language] not in page
            assert "1.5 None" in get(f"{url}{language}two/")
    said = [line for line in unbuilt.said.splitlines() if line.startswith("ERROR")]
    assert len(said) == 1
    assert said[0].startswith(f"ERROR: no story runs any more: {reason}")
    assert CURES[cause][""] in said[0]


class Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments):
        return None


def location(url):
    """Where a server sends whoever asks for this address."""
    with closing(urllib.request.build_opener(Stays)) as opener:
        with pytest.raises(urllib.error.HTTPError) as answer:
            opener.open(url, timeout=60)
        with answer.value as error:  # which holds the connection
            assert error.code == 302
            return error.headers["Location"]


@kills
def test_the_site_is_at_the_root_and_where_it_is_published_leads_there(unbuilt):
    """And the terminal says where, and nothing that nobody needs; Ctrl-C ends it at once."""
    with served(unbuilt) as url:
        assert "中文" in get(url)
        assert location(f"{url}mhattn/zh/two/?a=b") == "/zh/two/?a=b"
        assert location(f"{url}mhattn") == "/"
        assert location(f"{url}mhattn//elsewhere.org") == "/elsewhere.org"
        assert "Two" in get(f"{url}mhattn/two/")
        assert get(f"{url}nosuch/") == ""
        assert "English" in get(f"{url}zh/")
        assert "http-equiv" in get(f"{url}zh/chapters/")
    assert f"Serving on {url}\n" in unbuilt.said
    for noise in ("end of life", "ERROR", " code 404", " code 302", "Converting notebook"):
        assert noise not in unbuilt.said


@kills
def test_a_taken_address_is_said_in_one_line_before_anything_is_done(unbuilt):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = unbuilt.build("-m", "mkdocs", "serve", "-a", f"127.0.0.1:{port}")
    *before, last = said.splitlines()
    assert code == 1
    assert last.startswith(f"ERROR: nothing can listen on 127.0.0.1:{port} (")
    assert last.endswith(f"). Try mkdocs serve -a 127.0.0.1:{port + 1}")
    assert [line for line in before if "Building documentation" not in line] == []


# On this project: generous, since other tests may run beside it; on two quiet cores half a second


@contextmanager
def served_here(cache):
    project = Project(ROOT)
    project.gate = cache / "gate"
    address = free_address()
    command = ["-m", "mkdocs", "serve", "-a", address]
    with killed_at_the_end(project.start(*command, cache=cache)):
        yield f"http://{address}/"


@kills
@pytest.mark.slow
def test_pages_come_at_once_in_a_fresh_clone(tmp_path):
    """Home, then ten others by chance while more than 200 are rendered behind."""
    start = time.monotonic()
    with served_here(tmp_path) as url:
        wait_until(lambda: get(url))
        assert time.monotonic() - start < 20
        places = [path.relative_to(ROOT / "docs") for path in serve.pages_in_order()]
        for place in random.Random(7).sample(places, 10):
            language, *rest = place.with_suffix("").parts
            name = "/".join(part for part in rest if part != "index")
            start = time.monotonic()
            assert "<article" in get(f"{url}{'zh/' * (language == 'zh')}{name}/".rstrip("/") + "/")
            assert time.monotonic() - start < 6, place
