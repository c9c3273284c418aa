"""What the process of a story that uses torch needs of it: loaded once, before it is forked."""

from __future__ import annotations

import os

import torch

# The first comparison imports hundreds of modules.
torch.testing.assert_close(torch.zeros(()), torch.zeros(()))


def prepare(device: str) -> None:
    """One thread, unless asked for more; ``device`` is where tensors are made."""
    torch.set_num_threads(int(os.environ.get("MHATTN_THREADS", "1")))
    if device != "cpu":
        torch.set_default_device(device)
