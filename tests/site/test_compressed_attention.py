"""Queries, keys and values of CCA in latent-attention.md are those of transformers' class."""

import pytest
import torch
from mhsite.stories.translation import shown_section


@pytest.mark.parametrize(("h", "h_kv", "d"), [(4, 2, 6), (6, 2, 4), (15, 5, 2), (3, 1, 8)])
def test_compressed_convolutional_attention_is_that_of_zaya(h, h_kv, d):
    from transformers.models.zaya.configuration_zaya import ZayaConfig
    from transformers.models.zaya.modeling_zaya import ZayaCCAProjection

    names = {"torch": torch}
    exec(shown_section("latent-attention.pycon:cca").code, names)
    torch.manual_seed(0)
    sizes = {"num_attention_heads": h, "num_key_value_heads": h_kv, "head_dim": d}
    theirs = ZayaCCAProjection(ZayaConfig(hidden_size=23, **sizes), 0).double()
    linear = {"q": theirs.q_proj, "k": theirs.k_proj}
    linear |= {"v now": theirs.v_proj_current, "v before": theirs.v_proj_delayed}
    p = {name: layer.weight.T for name, layer in linear.items()}
    p["c1"] = theirs.conv_qk_depthwise.weight, theirs.conv_qk_depthwise.bias
    p["c2"] = theirs.conv_qk_grouped.weight, theirs.conv_qk_grouped.bias
    x = torch.randn(11, 23).double()
    for ours, expected in zip(
        names["compressed"](x, p, h, h_kv), theirs(x[None], None), strict=True
    ):
        torch.testing.assert_close(ours, expected[0].flatten(1))


def test_zaya_keeps_what_the_page_says():
    from transformers.models.zaya.configuration_zaya import ZayaConfig

    config = ZayaConfig()
    assert 2 * config.num_key_value_heads * config.head_dim == 512
    assert config.hidden_size == 2048
    assert (config.cca_time0 - 1) + (config.cca_time1 - 1) == 2  # tokens before that are mixed in
