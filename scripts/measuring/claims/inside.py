"""Claims, tried again: Inside models. See `measuring.claims`."""

from __future__ import annotations
