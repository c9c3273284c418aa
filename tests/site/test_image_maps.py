"""The grids of image-maps.md are those of transformers' vision models."""

import pytest
import torch
from mhsite.stories.source import DOCS
from mhsite.stories.translation import shown_section

from mhattn import attention_maps

TABLE = DOCS / "data" / "texts" / "tokens-before-patches.tsv"
ROWS = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()][1:]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 4}
WIDTHS = {"intermediate_size": 30}
REGISTERS = {"num_register_tokens": 3}  # not the library's own number
OPTIONS = {
    "ViTModel": WIDTHS,
    "DeiTModel": WIDTHS,
    "CLIPVisionModel": WIDTHS,
    "SiglipVisionModel": WIDTHS,
    "Dinov2Model": {},
    "Dinov2WithRegistersModel": REGISTERS,
    "DINOv3ViTModel": WIDTHS | REGISTERS,
}
FREE = {"Dinov2Model", "Dinov2WithRegistersModel", "DINOv3ViTModel"}  # take any size as they are


@pytest.fixture(scope="module")
def page():
    names = {"torch": torch}
    exec(shown_section("image-maps.pycon:class-map").code, names)
    return names


def made(name):
    import transformers  # two seconds, which not every collection has to wait

    torch.manual_seed(0)
    kind = name.removesuffix("Model") + "Config"
    config = getattr(transformers, kind)(**SIZES, image_size=20, **OPTIONS[name])
    model = getattr(transformers, name)(config).eval()
    model.set_attn_implementation("eager")
    for parameter in model.parameters():  # a class token of zeros has no favourites
        torch.nn.init.normal_(parameter, std=0.2)
    return model, config


@torch.no_grad()
def first_map(model, name, images):
    options = {} if name in FREE else {"interpolate_pos_encoding": True}
    return attention_maps(model, images, **options).maps[0]


@pytest.mark.parametrize(("name", "prefix"), ROWS)
def test_another_patch_changes_its_own_cell(page, name, prefix):
    """In the first layer a key knows only its patch: all other weights keep their proportions."""
    model, config = made(name)
    prefix = eval(prefix, {"config": config})
    images = torch.randn(1, 3, 12, 20)  # 3 rows of 5
    assert first_map(model, name, images).shape[-1] == prefix + 3 * 5
    other = images.clone()
    other[:, :, 4 : 2 * 4, 3 * 4 : 4 * 4] += 1  # row 1, column 3
    one, two = (
        page["class_map"](first_map(model, name, each), (12, 20), 4, prefix)
        for each in (images, other)
    )
    ratio = two / one  # (1, H, 3, 5)
    rest = ratio[:, :, 0, :1].expand(-1, -1, 15).clone().unflatten(-1, (3, 5))
    away = (ratio - rest).abs() > 1e-4
    expected = torch.zeros(3, 5, dtype=torch.bool)
    expected[1, 3] = True
    assert torch.equal(away.any(dim=1)[0], expected)


@pytest.mark.parametrize("name", ["Dinov2WithRegistersModel", "DINOv3ViTModel"])
def test_a_wrong_prefix_is_refused(page, name):
    model, _ = made(name)
    weights = first_map(model, name, torch.randn(1, 3, 12, 20))
    with pytest.raises(RuntimeError, match="unflatten"):
        page["class_map"](weights, (12, 20), 4, 1)
    with pytest.raises(RuntimeError, match="unflatten"):
        page["class_map"](weights, (12, 16), 4, 4)


def test_pixels_of_a_patch_are_alike(page):
    grid = torch.arange(15.0).view(3, 5)
    pixels = page["on_pixels"](grid, 4)
    assert pixels.shape == (12, 20)
    assert all(pixels[i, j] == grid[i // 4, j // 4] for i in range(12) for j in range(20))
