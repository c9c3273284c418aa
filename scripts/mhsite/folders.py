"""Where this project lies. All rooms may import it.

It stays beside the rooms: measurements whose code reads a file are filed with a hash of these lines
as well, and the path of this module decides how many folders up the project begins.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
