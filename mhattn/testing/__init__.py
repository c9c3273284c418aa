"""The doctor: checks for mistakes in attention that raise no error, on any layer.

- `doctor`: `check_attention`; `asserted`: `assert_attention`, for a test; `pytest_plugin`: each
  check a subtest.
- `models`, `caught`, `own_masks`, `watched`, `layouts`: `check_model`, every attention of a model
  as the model calls it; `tiny`, `shrunk`, `fed`: a small model of any configuration of
  transformers.
- `targets`, `formats`: what the command line names, and what it prints for other programs.
- `report`, `ranks`: what was found, the cause first; `language`, `columns`: how it is printed, in
  English or Chinese.
- `registry`: the list of checks; `calls`: how a layer is called.
- `adapters`, `adapted`, `hub`, `rotations`: attention of other libraries in that form.
- `subject`, `probes`: the layer in one form, and what is done to it.
- `computed`, `mistakes`: the formula, right or with one thing otherwise, and its name.
- `formula` with `projections` and `products`, `likeness`, `heads`, `weights`, `numbers`,
  `precision`, `pairs`, `order`, `far`, `masks`, `empty`, `batches`, `caches`, `dropped`: the
  checks.

It needs torch alone. As a command:
``python -m mhattn.testing package.module:Layer --embed-dim 64``.
"""

from typing import TYPE_CHECKING

from mhattn.door import lazy

NAMES = {
    "doctor": "check_attention",
    "asserted": "assert_attention",
    "models": "ModelReport check_model",
    "tiny": "tiny_model",
    "report": "Finding Report",
    "calls": "Calls",
    "adapters": "adapt",
}

if TYPE_CHECKING:  # type checkers read the imports; nothing else does
    from mhattn.testing.adapters import *
    from mhattn.testing.asserted import *
    from mhattn.testing.calls import *
    from mhattn.testing.doctor import *
    from mhattn.testing.models import *
    from mhattn.testing.report import *
    from mhattn.testing.tiny import *
else:
    __all__, __getattr__, __dir__ = lazy(__name__, NAMES)
