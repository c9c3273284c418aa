"""Small inputs for a model of transformers, from what its forward method takes."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

__all__: list[str] = []

TEXT, ANSWER, SIDE, FRAMES = 11, 7, 4, 40
MAINS = ("input_ids", "pixel_values", "input_features", "input_values")
OTHERS = ("inputs_embeds", "attention_mask", "labels")


class Feed:
    """Inputs by their names; each name has several forms, of which the first that fits is taken."""

    def __init__(self, model: Any, config: Any) -> None:
        self.model, self.config = model, config
        self.takes = inspect.signature(model.forward).parameters
        self.source = torch.Generator().manual_seed(1)

    def size(self, *names: str, default: int = 0) -> int:
        """The first number of these names in the configuration, or in those of its parts."""
        for place in _places(self.config):
            for name in names:
                value = vars(place).get(name)
                value = value[-1] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return default

    def floats(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.source)

    def seen(self, name: str) -> list[Tensor]:
        """Masks of which all are seen."""
        long = (
            TEXT if name == "attention_mask" else 2 * self.size("max_source_positions", default=20)
        )
        ones = torch.ones(2, long, dtype=torch.long)
        return [ones, ones.bool(), torch.ones(2, TEXT, dtype=torch.long)]

    def tokens(self, length: int) -> Tensor:
        largest = min(97, self.size("vocab_size", default=97))
        return torch.randint(min(4, largest - 1), largest, (2, length), generator=self.source)

    def boxes(self, number: int) -> Tensor:
        corners = torch.randint(0, 20, (2, TEXT, number), generator=self.source)
        return corners.cumsum(-1)  # from the upper left to the lower right

    @property
    def channels(self) -> int:
        return self.size("num_channels", "in_channels", "in_chans", "num_channels_in", default=3)

    @property
    def patch(self) -> int:
        return self.size("patch_size", default=8)

    def pictures(self) -> list[Tensor]:
        """As wide as the configuration says, or of other usual sizes; packed patches; videos."""
        given = [v for v in self._image_sizes() if v]
        others = [(32, 32), (64, 64), (128, 128), (224, 224)]
        # Of the smallest picture, a tower of convolutions leaves one token.
        others = others[1:] if "backbone_config" in vars(self.config) else others
        sizes = [*given, *others]
        sizes = list(dict.fromkeys(sizes))
        wide = self.channels * self.patch**2
        if "spatial_shapes" in self.takes or "pixel_position_ids" in self.takes:
            return [self.floats(2, SIDE**2, wide)]
        if self._grid():
            time = self.size("temporal_patch_size", default=1)
            number = 2 * SIDE**2
            return [
                self.floats(number, time * wide),
                self.floats(number, self.channels, self.patch, self.patch),
                self.floats(1, number, self.channels, self.patch, self.patch),
                self.floats(number, wide),
            ]
        frames = self.size("num_frames", "frames_per_clip", default=2)
        flat = [self.floats(2, self.channels, *size) for size in sizes]
        return [*flat, *(self.floats(2, frames, self.channels, *size) for size in sizes[:2])]

    def _image_sizes(self) -> Iterator[tuple[int, int]]:
        for place in (self.config, *(v for v in vars(self.config).values())):
            size = getattr(place, "image_size", None) if hasattr(place, "to_dict") else None
            if isinstance(size, int):
                yield size, size
            elif isinstance(size, list | tuple) and len(size) >= 2:
                yield int(size[-2]), int(size[-1])

    def _grid(self) -> str:
        return next((n for n in ("grid_thw", "image_grid_thw") if n in self.takes), "")

    def sounds(self) -> list[Tensor]:
        """Spectra, ``(B, features, frames)`` or the other way round."""
        names = ["num_mel_bins", "n_mels", "num_mels", "input_feat_per_channel", "mel_bins"]
        names += ["feature_projection_input_dim", "feat_size", "input_feat_size", "input_dim"]
        wide = self.size(*names, default=80)
        long = 2 * self.size("max_source_positions", default=FRAMES // 2)
        return [self.floats(2, wide, long), self.floats(2, long, wide), self.floats(2, wide, 3000)]

    def waves(self) -> list[Tensor]:
        """Samples of a sound, or its spectra."""
        names = ("num_mel_bins", "hidden_size")
        spectra = [self.floats(2, self.size("max_length", default=32), self.size(n)) for n in names]
        waves = [self.floats(2, 3840), self.floats(2, 1, 3840)]
        return (
            [*reversed(spectra), *waves] if "max_length" in vars(self.config) else waves + spectra
        )

    def makers(self) -> dict[str, Callable[[], list[Any]]]:
        """What makes an input, by its name."""
        wide = self.size("hidden_size", "d_model", "dim", "n_embd", default=32)
        grid = torch.tensor([[1, SIDE, SIDE]] * 2)
        places = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE)).expand(2, -1, -1)
        answers = self.size("num_channels", "num_codebooks", default=2)
        return {
            "input_ids": lambda: [self.tokens(TEXT)],
            "decoder_input_ids": lambda: [
                self.tokens(ANSWER),
                self.tokens(ANSWER)[..., None].expand(-1, -1, answers),
            ],
            "decoder_input_values": lambda: [self._wide(ANSWER)],
            "flattened_patches": lambda: [
                torch.cat(
                    [places[:, :9].float() + 1, self.floats(2, 9, self.channels * self.patch**2)],
                    -1,
                )
            ],
            "inputs": lambda: [self.floats(2, TEXT, wide), self.tokens(TEXT)],
            "qformer_input_ids": lambda: [self.tokens(TEXT)],
            "pixel_values": self.pictures,
            "pixel_values_videos": lambda: self.pictures()[::-1],
            "input_features": self.sounds,
            "audio_mel": self.sounds,
            "input_values": self.waves,
            "bbox": lambda: [self.boxes(4), self.boxes(8).float() / 200],
            "attention_mask": lambda: self.seen("attention_mask"),
            "pixel_attention_mask": lambda: [torch.ones(2, SIDE**2, dtype=torch.long)],
            "pixel_position_ids": lambda: [places],
            "spatial_shapes": lambda: [torch.tensor([[SIDE, SIDE]] * 2)],
            "grid_thw": lambda: [grid],
            "image_grid_thw": lambda: [grid],
            "merge_sizes": lambda: [torch.tensor([1, 1])],
        } | self._others(wide)

    def _others(self, wide: int) -> dict[str, Callable[[], list[Any]]]:
        """Those of a memory, and of series of numbers."""
        cross = self.size("encoder_hidden_size", "cross_attention_hidden_size", default=wide)
        return {
            "hidden_states": lambda: self.pictures() if self._grid() else [self._wide(TEXT)],
            "encoder_hidden_states": lambda: [self.floats(2, ANSWER, cross)],
            "inputs_embeds": lambda: [self._wide(TEXT)],
            "query_embeds": lambda: [self._wide(ANSWER)],
            "noise_embeds": lambda: [self._wide(TEXT)],
            "visual_feats": lambda: [self.floats(2, 5, self.size("visual_feat_dim", default=wide))],
            "visual_pos": lambda: [self.floats(2, 5, 4)],
            "past_values": self._series,
            "future_values": lambda: [self.floats(2, 4)],
            "past_observed_mask": lambda: [torch.ones_like(self._series()[1])],
            "past_time_features": lambda: [self._series()[1][..., None]],
            "future_time_features": lambda: [self.floats(2, 4, 1)],
            "prompt_pixel_values": self.pictures,
            "prompt_masks": self.pictures,
        }

    def _wide(self, length: int) -> Tensor:
        return self.floats(2, length, self.size("hidden_size", "d_model", "dim", default=32))

    def _series(self) -> list[Tensor]:
        long = self.size("context_length", default=32)
        channels = self.size("num_input_channels", "input_size", default=1)
        lags = vars(self.config).get("lags_sequence") or [0]
        return [self.floats(2, long, channels), self.floats(2, long + max(lags))]

    def tries(self) -> Iterator[dict[str, Any]]:
        """What the model may be given: the fewest inputs first."""
        makers, named = self.makers(), [n for n in self.takes if n not in ("self", "args")]
        masks = [n for n in named if "mask" in n and n not in makers]
        makers |= {n: partial(self.seen, n) for n in masks}
        empty = inspect.Parameter.empty
        plain = {n for n, p in self.takes.items() if p.kind is p.POSITIONAL_OR_KEYWORD}
        required = [n for n in plain if self.takes[n].default is empty]
        first = [self.model.main_input_name, *required]
        first += ["decoder_input_ids"] if "decoder_input_ids" in named else []
        every = [n for n in named if n in makers and n not in OTHERS and "mask" not in n]
        sets = [first, [*first, *(n for n in MAINS if n in named)], [*first, *every], every]
        sets += [["inputs_embeds"]] if "inputs_embeds" in named else []
        tried: list[set[str]] = []
        for names in sets:
            names = [n for n in dict.fromkeys(names) if n in makers and n in named]
            if not names or set(names) in tried:
                continue
            tried.append(set(names))
            forms = {name: makers[name]() for name in names}
            for number in range(max(map(len, forms.values()))):
                yield {name: each[min(number, len(each) - 1)] for name, each in forms.items()}


def _places(config: Any) -> Iterator[Any]:
    """A configuration, and those of its parts."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield from _places(value)
