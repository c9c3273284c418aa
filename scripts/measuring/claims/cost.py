"""Claims, tried again: Cost. See `measuring.claims`."""

from __future__ import annotations
