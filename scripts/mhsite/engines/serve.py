"""What `mkdocs serve` shows while stories run: pages at once, and each anew as soon as it changes.

The server listens before a page is built. One thread builds pages, a few at a time: first those
that a reader waits for, then all in the order of the nav, then those that changed. Another runs
the stories that have no results, the ones of the page opened last first, and has the pages that
show them built anew. A browser reloads a page only when that page was built again.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import Abort

from mhsite.engines import with_mkdocs
from mhsite.pages import data, notices
from mhsite.pages.page import Page, language, page_paths, read
from mhsite.stories import results, schedule
from mhsite.stories.source import DOCS, LANGUAGES, ROOT, SourceError

# Of a build of a few pages MkDocs warns that its navigation will be wrong. Ours has every title:
# `with_mkdocs.navigation`. And nobody wants to read how long each took.
logging.getLogger("mkdocs.commands.build").addFilter(
    lambda record: not re.search("'dirty' build|Documentation built", str(record.msg))
)
AT_ONCE = 2.0  # seconds that pages may take which are built together
POLL = re.compile(r"/livereload/(\d+)/(\d+)")  # the version and the moment that a page was sent at
FAULT = "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=3><pre>{}</pre>"


class Site:
    """The site that the server shows.

    Args:
        server: of MkDocs.
        config: what the English site is built with.
        built: what `files` gave before the server started.
    """

    def __init__(self, server, config, built: dict):
        self.config, self.seen, self.answer = config, built, server.serve_request
        self.mount = server.mount_path
        self.changed = threading.Condition()  # held by who changes what follows
        self.waiting: list[Path] = []  # pages to be built
        self.asked: list[Path] = []  # pages that somebody opened, the last one first
        self.built: dict[Path, int] = {}  # when, in milliseconds
        self.faults: dict[Path, str] = {}
        self.to_index: set[str] = set()  # languages
        self.each, self.ended, self.run = 0.5, False, None
        self.told, self.start_time = False, time.monotonic()
        self.addresses: dict[str, Path] = {}
        self.renew(pages_in_order())
        self.threads = [threading.Thread(target=w, daemon=True) for w in (self.build, self.compute)]

    def start(self) -> None:
        """Begin, with what was filed before."""
        with_mkdocs.write_progress(self.config)
        for name in results.folders():
            warn(name)
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
        self.see_results()
        self.renew(pages_in_order())

    def see_results(self) -> None:
        """Take what is filed for the stories as they are now, and run the others."""
        for name in results.look():
            warn(name)
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
        return self.mount + ("" if page.language == LANGUAGES[0] else "zh/") + page.url

    # Pages

    def build(self) -> None:
        """Build what waits, until the end."""
        while pages := self.next_pages():
            start = time.thread_time()  # which does not count what others compute meanwhile
            self.build_pages(pages)
            self.each = (time.thread_time() - start) / len(pages)
            if not self.waiting:
                self.index()
                self.tell()

    def next_pages(self) -> list[Path]:
        """The pages of one language to be built together, or none at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.ended)
            if self.ended:
                return []
            first = next((page for page in self.asked if page in self.waiting), self.waiting[0])
            many = max(1, int(AT_ONCE / self.each)) if self.built else 1
            same = [p for p in self.waiting if language(p) == language(first) and p != first]
            return [first, *same][: many if first not in self.faults else 1]

    def build_pages(self, pages: list[Path]) -> None:
        """Build pages of one language; one at which that fails is tried again alone."""
        with self.changed:
            self.waiting = [page for page in self.waiting if page not in pages]
        why = ""
        try:
            with_mkdocs.build_pages(pages, self.config, lambda: self.ended)
        except Abort:  # a warning, which MkDocs has said; the pages are there
            pass
        except with_mkdocs.Ended:
            return
        except Exception as error:
            if self.ended:
                return
            why = error.message if isinstance(error, SourceError) else f"{error!r}"
        with self.changed:
            if why and len(pages) > 1:
                self.faults |= dict.fromkeys(pages, "")
                self.waiting = [*pages, *self.waiting]
                return
            self.faults |= dict.fromkeys(pages, why) if why else {}
            self.built |= dict.fromkeys(pages, 0 if why else round(time.monotonic() * 1000))
            self.to_index.add(language(pages[0]))
            self.changed.notify_all()
        if why:
            say(why)

    def index(self) -> None:
        """Let what was built be found."""
        for each in sorted(self.to_index):
            try:
                with_mkdocs.index(each, self.config)
            except SourceError as error:
                say(error.message)
        self.to_index.clear()

    def tell(self) -> None:
        """Say in the terminal that all is there, once."""
        if not self.told:
            took = time.monotonic() - self.start_time
            print(f"all {len(self.built)} pages are there, after {took:.0f} s", file=sys.stderr)
        self.told = True

    # Stories

    def compute(self) -> None:
        """Run the stories that have no results, until the end."""
        while self.wait_for_stories():
            self.run = schedule.Run(
                self.next_stories(), results.device(), lenient=True, behind=True
            )
            for done in self.run.finished():
                self.take(done)
            with self.changed:
                self.run = None

    def wait_for_stories(self) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.ended or results.missing())
            return not self.ended

    def next_stories(self) -> list[Path]:
        """Those without results: of pages that somebody opened, then as the pages follow."""
        left = {story.stem: story for story in results.missing()}
        order = [*self.asked, *pages_in_order()]
        names = dict.fromkeys(name for page in order for name in notices.stories(read(page)))
        return [left.pop(name) for name in names if name in left] + list(left.values())

    def take(self, done: schedule.Done) -> None:
        """Show what a story gave on each page that shows something of it."""
        if not results.take(*done):
            return  # it has changed since
        name = done.story.stem
        print("stories: {} of {}: {}".format(*results.done(), name), file=sys.stderr, flush=True)
        warn(name)
        with_mkdocs.write_progress(self.config)
        self.renew([p for p in pages_in_order() if name in notices.stories(read(p))])

    # Requests

    def serve(self, environ, start_response):
        """Answer a request: a page as soon as it is built, all else as MkDocs does."""
        path = unquote(environ["PATH_INFO"])
        if (poll := POLL.fullmatch(path)) and (page := self.page(environ.get("HTTP_REFERER", ""))):
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(int(poll[1]) + self.wait_for_newer(page, int(poll[2]))).encode()]
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
                self.run.first(notices.stories(read(page)))
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
        found |= dict.fromkeys(data.pages(each))
        found |= dict.fromkeys(DOCS / each / path for path in page_paths(each))
    return [path for path in found if path.is_file()]


def say(why: str) -> None:
    print(f"ERROR: {why}", file=sys.stderr, flush=True)


def warn(name: str) -> None:
    """Say what is wrong with a story; its pages say it as well."""
    for why in filter(None, [results.failure(name), *results.differences(name)]):
        print(f"WARNING: {why}", file=sys.stderr, flush=True)


def files() -> dict[Path, Page | int]:
    """All that the site is made of: each page, and when each other file was changed."""
    folders = [path for folder in (DOCS, ROOT / "mhattn") for path in folder.rglob("*.*")]
    paths = [ROOT / "mkdocs.yml", *(path for path in folders if path.suffix != ".pyc")]
    return {path: read(path) if path.suffix == ".md" else path.stat().st_mtime_ns for path in paths}


def _only_words(old: Page | int | None, new: Page | int | None) -> bool:
    """Whether a change shows nowhere but on the page."""
    if not isinstance(old, Page) or not isinstance(new, Page):
        return False
    titles = [[block.text for block in page.headings] for page in (old, new)]
    return titles[0] == titles[1]
