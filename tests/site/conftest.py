import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading

import pytest
from filelock import FileLock
from mhsite.stories import child_processes, keys, results
from mhsite.stories.source import ROOT

BROWSERS = (
    "chromium-headless-shell",  # Chromium without windows of its own: a fifth faster
    "chromium",
    "chromium-browser",
    "google-chrome",
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


# Whose tests wait for the build.
BEHIND = {"site", "zensical_site", "story_run", "result_of"}

collect_ignore = ["tasks", "page_kernels.py"]  # what test_solutions.py and test_run_kernels.py run


@pytest.fixture(scope="session")
def story_run(tmp_path_factory, trained, say):
    """The run of all stories whose results were missing or stale; never beside a build."""
    with FileLock(shared_folder(tmp_path_factory) / "built.lock"):
        missing = sum(folder is None for folder in keys.results().values())
        if missing:
            say(f"{missing} stories run, whose results are not filed: up to some minutes")
        return run_script("stories.py")


@pytest.fixture(scope="session")
def story_results(story_run):
    """For each story, the folder with its figures and outputs."""
    assert story_run.returncode == 0, story_run.stdout + story_run.stderr
    return keys.results()


@pytest.fixture
def nothing_runs(monkeypatch):
    """What is filed is taken; a story that has no results prints what its file says."""
    monkeypatch.setattr(results, "_folders", {})
    monkeypatch.setattr(results, "_places", {})
    results.look()


def shared_folder(tmp_path_factory):
    """A folder of this run that all its test processes see."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def result_of(tmp_path_factory):
    """Gives the folder with the results of one story, which runs alone if they are missing."""

    def folder(story):
        with FileLock(shared_folder(tmp_path_factory) / "built.lock"):
            done = run_script("stories.py", story)
        assert done.returncode == 0, done.stdout + done.stderr
        return keys.results()[story]

    return folder


@pytest.fixture(scope="session")
def say(pytestconfig):
    """Tells on the terminal, whatever pytest captures, what the next minutes are needed for."""

    def aloud(line):
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    return aloud


def run_script(name, *options):
    """A command of ours, which ends with this process."""
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / name, *options],
        cwd=ROOT,
        env=child_processes.environment(),
        capture_output=True,
        encoding="utf-8",
    )


def build_once(tmp_path_factory, name, *options):
    """The folder of the site, and what its build said if it was built here."""
    shared = shared_folder(tmp_path_factory)
    folder = shared / name / "mhattn"
    with FileLock(shared / f"{name}.lock"):
        if folder.is_dir():
            return folder, ""
        done = run_script("build.py", "--site-dir", folder, *options)
    return folder, done.stdout + done.stderr


def built_once(say, tmp_path_factory, name, *options):
    """The site, built by the first of several test processes that comes here."""
    say(f"the site is {name}: a minute, and some more where results of stories are missing")
    folder, said = build_once(tmp_path_factory, name, *options)
    assert folder.is_dir(), said
    return folder


@pytest.fixture(scope="session")
def site(say, tmp_path_factory, trained):
    return built_once(say, tmp_path_factory, "built")


@pytest.fixture(scope="session")
def zensical_site(say, tmp_path_factory, trained):
    """The same site as its other engine builds it."""
    return built_once(say, tmp_path_factory, "built with Zensical", "--engine", "zensical")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="session")
def home(site):
    """The site's address, served under /mhattn/ as GitHub Pages does."""
    handler = functools.partial(Quiet, directory=site.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mhattn/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser():
    give_up = pytest.fail if os.environ.get("CI") else pytest.skip
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        give_up(f"there is no browser, none of {', '.join(BROWSERS)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def visits(browser, home, site):
    """What `visits.visit` noted on a page: in this run, or before if all that it loads is equal."""
    from visits import Visits

    return Visits(browser, home, site)


@pytest.fixture
def open_page(browser, home):
    """Opens a page of the site in a fresh profile, and closes it after the test."""
    contexts = []

    def open_(place, **options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        context.set_default_timeout(30_000)  # on a loaded machine
        contexts.append(context)
        page = context.new_page()
        page.goto(home + place, wait_until="load")
        return page

    yield open_
    for context in contexts:
        context.close()


def needs_site(item):
    return not BEHIND.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection_modifyitems(items):
    items.sort(key=needs_site)


def pytest_collection_finish(session):
    """The site is built behind the tests that do without it, which come first."""
    here = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if here and any("site" in getattr(item, "fixturenames", ()) for item in session.items):
        factory = session.config._tmp_path_factory
        threading.Thread(target=build_once, args=[factory, "built"], daemon=True).start()
