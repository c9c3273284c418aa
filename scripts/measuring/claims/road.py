"""Claims, tried again: The course. See `measuring.claims`."""

from __future__ import annotations
