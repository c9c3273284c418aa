"""Functions as they were when runs that took hours were filed, and that were written anew since.

Each returns the same as today's, to the last bit, which a test compares. So a run that needs
today's is as good as it was: by `fingerprints.AS_FILED` the text of these counts in its place.
"""

from collections.abc import Callable
from os import PathLike
from typing import Any, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor

from mhattn.core import checks as check
from mhattn.core.frequencies import rotary_frequencies
from mhattn.core.fused import FEW, LARGE, Kernel, two_products
from mhattn.core.positions import (
    KEPT,
    Position,
    angles_at,
    checked,
    shared_table,
    steps_of,
)
from mhattn.models.language_model import KNOWN, NAMES, LanguageModel, halves_apart, tokenizer_of


def load_gguf(path: str | PathLike[str]) -> tuple[LanguageModel, "Tokenizer"]:
    """Read a model of the Llama architecture, and its tokenizer, from llama.cpp's format.

    Weights of any type of the format are computed back to float32.

    Args:
        path: of a GGUF file.

    Returns:
        The model, without gradients, and what turns text into tokens and back.

    Raises:
        ValueError: the file is no GGUF file, or holds another architecture or tokenizer.
        FileNotFoundError: there is no such file.

    Examples:
        >>> from mhattn.lessons.files import cache_folder
        >>> path = cache_folder() / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
        >>> if path.exists():  # mhattn.lessons.data_file fetches it
        ...     model, tokenizer = load_gguf(path)
        ...     assert model.embedding.weight.shape == (49152, 576)
    """
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(path)
    fields = reader.fields.items()
    about = {name: field.contents() for name, field in fields}
    for key, known in KNOWN.items():
        if (got := about.get(key)) != known:
            rule = f"{key} in {path} must be {known!r}"
            raise ValueError(f"{rule}, got {got!r}")
    heads = {"attn_q": about["llama.attention.head_count"]}
    heads["attn_k"] = about["llama.attention.head_count_kv"]
    model = LanguageModel(
        vocab_size=about["llama.vocab_size"],
        num_layers=about["llama.block_count"],
        embed_dim=about["llama.embedding_length"],
        num_heads=heads["attn_q"],
        num_kv_heads=heads["attn_k"],
        mlp_dim=about["llama.feed_forward_length"],
        base=about["llama.rope.freq_base"],
        eps=about["llama.attention.layer_norm_rms_epsilon"],
    )
    state = {}
    for stored in reader.tensors:
        parts = stored.name.split(".")  # blk, 0, attn_q, weight
        numbers = dequantize(stored.data, stored.tensor_type)
        rows = torch.tensor(numbers)
        if parts[-2] in heads:
            rows = halves_apart(rows, heads[parts[-2]])
        ours = [NAMES.get(part, part) for part in parts]
        state[".".join(ours)] = rows
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False), tokenizer_of(about)


class Rotary(Position):
    """Turn each pair of features by an angle that grows with the position."""

    steps: Tensor

    def __init__(
        self,
        head_dim: int,
        base: float = 10_000.0,
        *,
        frequencies: Tensor | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        from_base = rotary_frequencies(head_dim, base)
        self.head_dim = head_dim
        self.base = base
        self.frequencies = from_base if frequencies is None else checked(frequencies, head_dim)
        steps = torch.empty(head_dim // 2, dtype=torch.int64, device=device)
        self.register_buffer("steps", steps, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Compute the angles from one position to the next anew."""
        self.steps.copy_(steps_of(self.frequencies))
        self.table = shared_table(self.frequencies, self.steps.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Take the table of the device that the layer goes to."""
        module: Any = super()
        module._apply(fn, recurse)
        self.table = shared_table(self.frequencies, self.steps.device)
        return self

    def rotate(self, x: Tensor, start: int = 0, *, positions: Tensor | None = None) -> Tensor:
        """Turn queries or keys."""
        check.floats("x", x)
        check.last_axis("x", x, "head_dim", self.head_dim)
        cos, sin = self._cos_and_sin(x, start, positions)  # (L, D / 2) or (B, 1, L, D / 2)
        first, second = x.to(cos.dtype).chunk(2, dim=-1)  # (B, H, L, D / 2)
        turned = (
            torch.addcmul(first * cos, second, sin, value=-1),
            torch.addcmul(second * cos, first, sin),
        )
        return torch.cat(turned, dim=-1).to(x.dtype)  # (B, H, L, D)

    def _cos_and_sin(
        self, x: Tensor, start: int, positions: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of the angle of each pair of features."""
        end, wide = start + x.shape[-2], torch.promote_types(x.dtype, torch.float32)
        if positions is not None:
            check.positions(positions, x)
        elif (
            torch.compiler.is_compiling()
            or wide == torch.float64
            or not 0 <= start <= end <= KEPT
            or self.table.cos.device != x.device
        ):
            positions = torch.arange(start, end, device=x.device)
        else:
            return self.table.cos[start:end], self.table.sin[start:end]
        angles = angles_at(positions, self.steps, wide)
        angles = angles[:, None] if angles.ndim == 3 else angles
        return angles.cos(), angles.sin()

    def extra_repr(self) -> str:
        names = [f"head_dim={self.head_dim}", f"base={self.base}"]
        if not self.frequencies.equal(rotary_frequencies(self.head_dim, self.base)):
            low, high = self.frequencies.min(), self.frequencies.max()
            names[1] = f"frequencies from {low:.3g} to {high:.3g}"
        return ", ".join(names)


class RotaryTable:
    """Cosines and sines of the first positions, ``(KEPT, D / 2)`` each, in float32."""

    def __init__(self, frequencies: Tensor, device: torch.device) -> None:
        self.made_of = frequencies, device
        places = torch.arange(KEPT, device="cpu")
        angles = angles_at(places, steps_of(frequencies), torch.float64)
        self.cos, self.sin = (x.to(device, torch.float32) for x in (angles.cos(), angles.sin()))

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_table, self.made_of


def group_as_rows(
    kernel: Kernel,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """The queries of a group become the rows of one product, since all of them see the same."""
    kv_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    rows = query.unflatten(1, (kv_heads, group))  # (B, H_kv, group, L, D)
    rows = rows.flatten(2, 3)  # (B, H_kv, group * L, D)
    few = rows.shape[2] <= FEW and key.is_cpu and key.dtype == torch.float32
    if few and key.nbytes >= LARGE:
        mixed = two_products(rows, key, value, mask, scale, dropout)
    else:
        mixed = kernel(rows, key, value, mask)  # (B, H_kv, group * L, D)
    return mixed.reshape(query.shape)  # (B, H, L, D)
