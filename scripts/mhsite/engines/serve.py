"""What `mkdocs serve` shows while stories run: pages at once, and each anew as soon as it changes.

The server listens before a page is built. One thread builds pages, one at a time: first the one
that a reader waits for, then all in the order of the nav, then those that changed. Another runs
the stories that have no results, the ones of the page opened last first, and has the pages that
show them built anew. A third says in the terminal how far they are. A browser reloads a page only
when that page was built again.
"""

from __future__ import annotations

import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mhsite.engines import with_mkdocs
from mhsite.engines.page_renderer import Renderer
from mhsite.pages import navigation, notices
from mhsite.pages.page import Page, language, page_paths, read
from mhsite.pages.settings import settings
from mhsite.stories import results, schedule
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, SourceError

POLL = re.compile(r"/livereload/(\d+)/(\d+)")  # the version and the moment that a page was sent at
FAULT = "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=3><pre>{}</pre>"
EVERY = 5.0  # seconds, in which the terminal says how far it is
# What MkDocs says that nobody needs while pages are built one by one: how long nothing took, what
# a browser asked for in vain, that a page has a fault, which we say with its line.
NOISE = {
    "mkdocs.commands.build": "Documentation built|Error (reading|building) page",
    "mkdocs.livereload": r'HTTP/[\d.]+" code (3\d\d|404)',
    "mkdocs.mkdocs-jupyter": "Converting notebook",
    "mkdocs.plugins.mkdocs_jupyter": "Converting notebook",
}


def prepare(host: str, port: int) -> None:
    """End with one line if the address is taken, before anything is done; leave out noise."""
    for logger, noise in NOISE.items():
        logging.getLogger(logger).addFilter(
            lambda record, noise=noise: not re.search(noise, record.getMessage())
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        other = f"mkdocs serve -a {host}:{port + 1}"
        sys.exit(f"ERROR: nothing can listen on {host}:{port} ({error.strerror}). Try {other}")


class Site:
    """The site that the server shows.

    Args:
        server: of MkDocs.
        config: what the English site is built with.
        seen: what `files` gave before the server started.
    """

    def __init__(self, server, config, seen: dict):
        self.config, self.seen, self.answer = config, seen, server.serve_request
        self.published = urlsplit(settings()["site_url"]).path  # the site's path on its host
        self.changed = threading.Condition()  # held by who changes what follows
        self.renderers: dict[str, Renderer] = {}  # by language
        self.waiting: list[Path] = []  # pages to be built
        self.asked: list[Path] = []  # pages that somebody opened, the last one first
        self.built: dict[Path, int] = {}  # when, in milliseconds
        self.faults: dict[Path, str] = {}
        self.to_index: set[str] = set()  # languages
        self.ended, self.run = False, None
        self.told, self.start_time = False, time.monotonic()
        self.reasons: set[str] = set()  # why models cannot be had, as far as the terminal knows
        self.addresses: dict[str, Path] = {}
        self.renew(pages_in_order())
        work = self.build, self.compute, self.report
        self.threads = [threading.Thread(target=each, daemon=True) for each in work]

    def start(self) -> None:
        """Begin, with what was filed before."""
        with_mkdocs.write_progress(self.config)
        for name in results.folders():
            self.warn(name)
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        """Stop building and running; nothing is left half done."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        if self.run:
            self.run.stop()
        for thread in self.threads:
            thread.join(timeout=10)

    # What changes

    def __call__(self) -> None:
        """Called by the server when a file has changed."""
        try:
            now = files()
        except SourceError as error:  # a page that somebody is writing
            say(error.message)
            return
        old, self.seen = self.seen, now
        changed = [path for path in old.keys() | now.keys() if old.get(path) != now.get(path)]
        if all(_only_words(old.get(path), now.get(path)) for path in changed):
            self.renew(changed)
            return
        self.renderers = {}  # they know the nav, the theme and the package as they were
        self.see_results()
        self.renew(pages_in_order())

    def see_results(self) -> None:
        """Take what is filed for the stories as they are now, and run the others."""
        for name in results.look():
            self.warn(name)
        with self.changed:
            if self.run:
                self.run.add(self.next_stories())
            self.changed.notify_all()

    def renew(self, pages: Iterable[Path]) -> None:
        """Build these pages, the first one first, before others that wait."""
        pages = [page for page in pages if page.is_file()]
        with self.changed:
            self.waiting = [*pages, *(page for page in self.waiting if page not in pages)]
            self.addresses |= {self.address(read(page)): page for page in pages}
            self.faults = {p: why for p, why in self.faults.items() if p not in pages}
            self.changed.notify_all()

    def address(self, page: Page) -> str:
        return "/" + ("" if page.language == LANGUAGES[0] else "zh/") + page.url

    # Pages

    def build(self) -> None:
        """Build what waits, until the end."""
        while page := self.next_page():
            self.build_page(page)
            if not self.waiting:
                self.index()
                self.tell()

    def next_page(self) -> Path | None:
        """The page to be built next: of those that somebody opened, the last one; or the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.ended)
            if self.ended:
                return None
            page = next((page for page in self.asked if page in self.waiting), self.waiting[0])
            self.waiting.remove(page)
            return page

    def goes_on(self, page: Path) -> bool:
        """Whether to go on with a page: not if a reader waits for another, and nobody for this."""
        with self.changed:
            others = any(other in self.waiting for other in self.asked)
            return not self.ended and (page in self.asked or not others)

    def build_page(self, page: Path) -> None:
        """Build a page, or what says why it cannot be built; a reader's page may come between."""
        why = ""
        try:
            if not self.renderer(language(page)).render(read(page), lambda: self.goes_on(page)):
                with self.changed:
                    self.waiting.insert(0, page)
                return
        except Exception as error:
            if self.ended or not page.is_file():
                return
            why = notices.reason(error)
        new = bool(why) and why not in self.faults.values()
        with self.changed:
            if why:
                self.faults[page] = why
            self.built[page] = 0 if why else round(time.monotonic() * 1000)
            self.to_index.add(language(page))
            self.changed.notify_all()
        if new:
            say(why)

    def renderer(self, of: str) -> Renderer:
        renderers = self.renderers  # a change of the nav puts an empty one in its place
        if of not in renderers:
            renderers[of] = Renderer(of, self.config)
        return renderers[of]

    def index(self) -> None:
        """Let what was built be found."""
        for renderer in [
            self.renderers[each] for each in sorted(self.to_index & {*self.renderers})
        ]:
            renderer.index()
        self.to_index.clear()

    def tell(self) -> None:
        """Say in the terminal that all is there, once."""
        if not self.told:
            took = time.monotonic() - self.start_time
            print(f"all {len(self.built)} pages are there, after {took:.0f} s", file=sys.stderr)
        self.told = True

    # Stories

    def compute(self) -> None:
        """Run the stories that have no results, until the end; if that fails, pages say so."""
        try:
            while self.wait_for_stories():
                todo = self.next_stories()
                self.run = schedule.Run(todo, results.device(), lenient=True, behind=True)
                for done in self.run.finished():
                    self.take(done)
                with self.changed:
                    self.run = None
        except Exception as error:
            self.run = None
            results.stop(error)
            say(f"no story runs any more: {notices.reason(error)}. {notices.cure(error, 'en')}")
            self.renew([p for p in pages_in_order() if any(map(results.is_missing, stories(p)))])

    def wait_for_stories(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.ended or results.missing())
            return not self.ended

    def next_stories(self) -> list[Path]:
        """Those without results: of pages that somebody opened, then as the pages follow."""
        left = {story.stem: story for story in results.missing()}
        order = [*self.asked, *pages_in_order()]
        names = dict.fromkeys(name for page in order for name in stories(page))
        return [left.pop(name) for name in names if name in left] + list(left.values())

    def take(self, done: schedule.Done) -> None:
        """Show what a story gave on each page that shows something of it."""
        if not results.take(*done):
            return  # it has changed since
        name = done.story.stem
        print("stories: {} of {}: {}".format(*results.done(), name), file=sys.stderr, flush=True)
        self.warn(name)
        with_mkdocs.write_progress(self.config)
        self.renew([page for page in pages_in_order() if name in stories(page)])

    # The terminal

    def report(self) -> None:
        """Say every few seconds how many pages are there and which stories run, if that is new."""
        said = ""
        while not self.ended:
            with self.changed:
                self.changed.wait_for(lambda: self.ended, timeout=EVERY)
            if not self.ended and (now := self.state()) not in ("", said):
                print(said := now, file=sys.stderr, flush=True)

    def state(self) -> str:
        there, all_ = len(self.built), len(self.addresses)
        run = self.run  # which another thread takes away
        names = [story.stem for story, *_ in list(run.running.values())] if run else []
        pages = f"pages: {there} of {all_}" * (there < all_)
        return "; ".join(filter(None, [pages, f"running: {', '.join(names)}" * bool(names)]))

    def warn(self, name: str) -> None:
        """Say what is wrong with a story; its pages say it as well.

        Why a model cannot be had is said once, not for each story that reads it.
        """
        for why in filter(None, [results.failure(name), *results.differences(name)]):
            reason = why.partition(": cannot run: ")[2]
            if reason not in self.reasons:
                print(f"WARNING: {reason or why}", file=sys.stderr, flush=True)
            self.reasons |= {reason} - {""}

    # Requests

    def serve(self, environ, start_response):
        """Answer a request: a page as soon as it is built, all else as MkDocs does."""
        path = unquote(environ["PATH_INFO"])
        if (poll := POLL.fullmatch(path)) and (page := self.page(environ.get("HTTP_REFERER", ""))):
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(int(poll[1]) + self.wait_for_newer(page, int(poll[2]))).encode()]
        if self.published != "/" and f"{path}/".startswith(self.published):
            return redirect(path[len(self.published) :], environ, start_response)
        if page := self.page(path):
            self.open(page)
            if why := self.faults.get(page):
                start_response("500 Error", [("Content-Type", "text/html; charset=utf-8")])
                return [FAULT.format(escape(why)).encode()]
        return self.answer(environ, start_response)

    def page(self, address: str) -> Path | None:
        return self.addresses.get(urlsplit(address).path)

    def open(self, page: Path) -> None:
        """Somebody wants to see this page: it and its stories come next; wait until it is there."""
        with self.changed:
            self.asked = [page, *(other for other in self.asked if other != page)]
            if self.run:
                self.run.first(stories(page))
            self.changed.notify_all()
            self.changed.wait_for(lambda: page in self.built or self.ended)

    def wait_for_newer(self, page: Path, sent: int) -> bool:
        """Wait until a page is newer than when it was sent, but for no more than a minute."""
        with self.changed:
            newer = lambda: self.ended or self.built.get(page, 0) > sent  # noqa: E731
            return bool(self.changed.wait_for(newer, timeout=60)) and not self.ended


def pages_in_order() -> list[Path]:
    """All pages: English ones in the order of the nav, then Chinese ones."""
    found: dict[Path, None] = {}
    for each in LANGUAGES:
        found |= dict.fromkeys(navigation.pages(each))
        found |= dict.fromkeys(DOCS / each / path for path in page_paths(each))
    return [path for path in found if path.is_file()]


def say(why: str) -> None:
    print(f"ERROR: {why}", file=sys.stderr, flush=True)


def stories(page: Path) -> list[str]:
    """The stories of a page; of one that somebody is writing, and that cannot be read, none."""
    try:
        return notices.stories(read(page))
    except (SourceError, OSError):
        return []


def redirect(path: str, environ: dict, start_response) -> list[bytes]:
    """From the address that a page has where it is published to the one that it has here."""
    query = environ.get("QUERY_STRING", "")
    there = "/" + quote(path.lstrip("/")) + f"?{query}" * bool(query)
    start_response("302 Found", [("Location", there)])
    return []


def files() -> dict[Path, Page | int]:
    """All that the site is made of: each page, and when each other file was changed."""
    folders = [path for folder in (DOCS, ROOT / "mhattn") for path in folder.rglob("*.*")]
    paths = [ROOT / "mkdocs.yml", *(path for path in folders if path.suffix != ".pyc")]
    return {path: read(path) if path.suffix == ".md" else path.stat().st_mtime_ns for path in paths}


def _only_words(old: Page | int | None, new: Page | int | None) -> bool:
    """Whether a change shows nowhere but on the page."""
    if not isinstance(old, Page) or not isinstance(new, Page):
        return False
    shown = [(p.is_notebook, [block.text for block in p.headings]) for p in (old, new)]
    return shown[0] == shown[1]
