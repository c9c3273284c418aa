"""What a test of somebody's layer can ask for: checks that must run, mistakes that are meant."""

import pytest
from torch import nn

from mhattn.testing import assert_attention


class Backwards(nn.MultiheadAttention):
    """Reads its values in reverse order: `order` finds that."""

    def forward(self, query, key, value, **options):
        return super().forward(query, key, value.flip(1), **options)


def layer(kind=nn.MultiheadAttention):
    return kind(24, 3, batch_first=True)


def backwards(*only, **how):
    assert_attention(layer(Backwards), only=only, inputs="qkv", **how)


def test_a_right_layer_passes_with_all_that_it_can_do_required():
    assert_attention(layer(), require=["mask", "padding", "formula"])


def test_what_is_required_must_not_be_skipped():
    with pytest.raises(AssertionError, match="cache is required, and was not made: takes no cache"):
        assert_attention(layer(), require=["mask", "cache"])
    with pytest.raises(AssertionError, match="mask is required, and was not made: only leaves it"):
        assert_attention(layer(), only=["batch"], require=["mask"])


def test_a_mistake_that_is_meant_passes_and_others_do_not():
    with pytest.raises(AssertionError, match="error: order"):
        backwards("order")
    backwards("order", allow={"order": "reads backwards"})
    with pytest.raises(AssertionError, match="error: mask"):
        backwards("order", "mask", allow={"order": "reads backwards"})


def test_a_mistake_that_is_gone_must_leave_the_list():
    says = "order finds nothing, and is allowed: reads backwards"
    with pytest.raises(AssertionError, match=says):
        assert_attention(layer(), only=["order"], allow={"order": "reads backwards"})


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"require": ["masks"]}, ValueError, "require must name checks, got 'masks'"),
        ({"allow": {"masks": "why"}}, ValueError, "allow must name checks, got 'masks'"),
        ({"allow": {"mask": ""}}, TypeError, "allow must say why, got 'mask': ''"),
        ({"allow": {"mask": None}}, TypeError, "allow must say why, got 'mask': None"),
    ],
)
def test_nonsense_is_refused(how, error, says):
    with pytest.raises(error, match=says):
        assert_attention(layer(), **how)
