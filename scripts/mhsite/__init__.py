"""What makes the site, in four rooms; imports run from each to those above it, and never back.

- `stories`: what they are, what they gave, and when they must run again.
- `pages`: what stands in their Markdown, and the HTML that it becomes.
- `beside`: notebooks, the search index, cards, the zip.
- `engines`: who renders the pages, and when.

All of them may import two modules beside the rooms: `folders`, where this project lies, and
`words`, those of the interface in both languages.

Whoever imports it gets this clone's `mhattn`, whatever another clone has installed there.
"""

import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]


def come_first() -> None:
    """Let this clone's modules be found before all others."""
    ours = [str(HOME.parent), str(HOME)]
    if sys.path[:2] != ours:
        sys.path[:] = [*ours, *(path for path in sys.path if path not in ours)]


come_first()
