"""Claims, tried again: In depth. See `measuring.claims`."""

from __future__ import annotations
