"""docs/data/texts/masks-of-transformers.tsv against transformers."""

import pytest
from mask_table import MODELS, WAYS, measured, rows

pytestmark = pytest.mark.filterwarnings("ignore")  # the library has many


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", WAYS)
def test_a_mask_does_what_the_table_says(name, way):
    """If it does another thing by now: `python tests/package/mask_table.py` writes it."""
    assert measured(name, way) == rows()[f"{name} {way}"]
