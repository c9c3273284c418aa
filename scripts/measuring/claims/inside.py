"""Claims, tried again: Inside models. See `measuring.claims`."""

from __future__ import annotations

# A check is found here by its name; the files are apart to stay short.
from measuring.claims.inside_cuts import *  # noqa: F403
from measuring.claims.inside_languages import *  # noqa: F403
from measuring.claims.inside_models import *  # noqa: F403
from measuring.claims.inside_toys import *  # noqa: F403
from measuring.claims.live_models import *  # noqa: F403
from measuring.claims.smollm2 import *  # noqa: F403
