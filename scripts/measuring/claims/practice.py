"""Claims, tried again: Practice. See `measuring.claims`."""

from __future__ import annotations
