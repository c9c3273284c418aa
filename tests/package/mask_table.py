"""What transformers does with a mask of one's own, with four axes.

    python tests/package/mask_table.py

writes what was found to docs/data/texts/masks-of-transformers.tsv; `test_mask_table` compares.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
from rights.hub import config, model  # nothing is downloaded

FILE = Path(__file__).parents[2] / "docs" / "data" / "texts" / "masks-of-transformers.tsv"
SIZES = {"vocab_size": 53, "num_hidden_layers": 2, "num_attention_heads": 4}
ROOM = 13  # of a cache of fixed size
MODELS = {
    "Llama": ("llama", "LlamaModel", {"hidden_size": 32, "intermediate_size": 40}),
    "GPT-2": ("gpt2", "GPT2Model", {"hidden_size": 32}),
    "BERT": ("bert", "BertModel", {"hidden_size": 32, "intermediate_size": 40}),
}
WAYS = ("eager", "sdpa")
LEAST = torch.finfo(torch.float32).min
FORMS = {
    "boolean": lambda sees: sees,
    "boolean, True = hidden": lambda sees: ~sees,
    "integers 0, 1": lambda sees: sees.long(),
    "floats 0, 1": lambda sees: sees.float(),
    "floats 0, finfo.min": lambda sees: torch.zeros(sees.shape).masked_fill(~sees, LEAST),
    "floats 0, -inf": lambda sees: torch.zeros(sees.shape).masked_fill(~sees, -torch.inf),
}
CACHES = (
    "growing cache: (B, 1, L, S)",
    "fixed cache: (B, 1, L, S)",
    "fixed cache: (B, 1, L, room)",
)


OWN = ("own function, no mask registered", "own function, mask registered")
ANEW = torch.tensor([[0, 1, 2, 3, 0, 1, 2]] * 2)  # two texts in a row, four and three tokens
PACKED = {
    "packed: positions": {},
    "packed: positions, no cache": {"use_cache": False},
    "packed: positions, no cache, mask of ones": {
        "use_cache": False,
        "attention_mask": torch.ones(2, 7, dtype=torch.long),
    },
}
REUSED = (
    "tokens in a cache of five: two more, use_cache=False",
    "tokens in a cache of five: crop(-2)",
    "tokens in a cache of five: two more on a copy",
    "two more on a copy",
)
BOTH_WAYS = ("is_causal=False in the call", "is_causal=False in the configuration")


def made(name, way):
    module, kind, sizes = MODELS[name]
    torch.manual_seed(0)
    settings = config(kind.replace("Model", "Config"), way, **SIZES, **sizes)
    return model(module, kind)(settings).eval()


def window(count, keys):
    """Each of `count` last queries sees itself and the three before it, of `keys`."""
    at = torch.arange(keys)[-count:, None]
    distance = at - torch.arange(keys)
    return ((distance >= 0) & (distance < 4))[None, None].expand(2, 1, count, keys)


def right(name, ids):
    """By the written-out form and the mask that its documentation names."""
    mask = FORMS["floats 0, finfo.min"](window(*[ids.shape[1]] * 2))
    return made(name, "eager")(ids, attention_mask=mask).last_hidden_state


def sign(compute, expected):
    try:
        found = compute()
    except (RuntimeError, ValueError, IndexError, TypeError):
        return "!"
    return "=" if torch.allclose(found, expected, atol=1e-5) else "≠"


def cached(name, way, row, ids):
    """Five tokens, then two more with a mask of our own."""
    from transformers import DynamicCache, StaticCache

    layer = made(name, way)
    fixed, full = row.startswith("fixed"), row.endswith("room)")
    cache = StaticCache(config=layer.config, max_cache_len=ROOM) if fixed else DynamicCache()
    least = FORMS["floats 0, finfo.min"]
    first, second = least(window(5, 5)), least(window(2, 7))
    if fixed:
        first = torch.nn.functional.pad(first, (0, ROOM - 5), value=LEAST)
    if full:
        second = torch.nn.functional.pad(second, (0, ROOM - 7), value=LEAST)
    layer(ids[:, :5], attention_mask=first, past_key_values=cache)
    return layer(ids[:, 5:], attention_mask=second, past_key_values=cache).last_hidden_state


def own_function(name, way, ids):
    """A copy of the library's own function under another name, without and with its mask."""
    import importlib

    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    module = importlib.import_module(made(name, way).__module__)
    function = sdpa_attention_forward if way == "sdpa" else module.eager_attention_forward
    padding = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1]])  # the second text has five tokens
    real = padding.bool()
    expected = made(name, way)(ids, attention_mask=padding).last_hidden_state[real]
    found = {}
    for row in OWN:
        own = f"own {way}, {row}"
        AttentionInterface.register(own, function)
        if row == OWN[1]:
            AttentionMaskInterface.register(own, getattr(masking_utils, f"{way}_mask"))
        layer = made(name, own)

        def compute(layer=layer):
            return layer(ids, attention_mask=padding).last_hidden_state[real]

        found[row] = sign(compute, expected)
    return found


def packed(layer, ids):
    """The second text of a row: is it as it is alone?"""
    alone = layer(ids[:, 4:]).last_hidden_state

    def second(options):
        return layer(ids, position_ids=ANEW, **options).last_hidden_state[:, 4:]

    return {row: sign(lambda o=options: second(o), alone) for row, options in PACKED.items()}


def reused(layer, ids, expected):
    """One prompt of five tokens, and what is done with its cache."""
    from copy import deepcopy

    from transformers import DynamicCache

    cache, found = DynamicCache(), []
    layer(ids[:, :5], past_key_values=cache)
    layer(ids[:, 5:], past_key_values=cache, use_cache=False)
    found.append(str(cache.get_seq_length()))
    cache.crop(-2)
    found.append(str(cache.get_seq_length()))
    copied = layer(ids[:, 5:], past_key_values=deepcopy(cache)).last_hidden_state
    found += [str(cache.get_seq_length()), sign(lambda: copied, expected)]
    return dict(zip(REUSED, found, strict=True))


def both_ways(name, way, ids):
    """A decoder whose tokens see what follows, too: by a mask of zeros, which is the truth."""
    everything = torch.zeros(2, 1, 7, 7)
    expected = made(name, "eager")(ids, attention_mask=everything).last_hidden_state
    layer, told = made(name, way), made(name, way)
    told.config.is_causal = False
    calls = (lambda: layer(ids, is_causal=False), lambda: told(ids))
    signs = [sign(lambda c=call: c().last_hidden_state, expected) for call in calls]
    return dict(zip(BOTH_WAYS, signs, strict=True))


@torch.no_grad()
def measured(name, way):
    """The column of one model and one way, row by row."""
    torch.manual_seed(1)
    ids = torch.randint(53, (2, 7))
    expected, layer = right(name, ids), made(name, way)
    found = {}
    for row, form in FORMS.items():
        mask = form(window(7, 7))
        found[row] = sign(lambda m=mask: layer(ids, attention_mask=m).last_hidden_state, expected)
    for row in CACHES:
        whole = expected[:, 5:]
        known = name != "BERT"  # an encoder writes nothing step by step
        found[row] = sign(lambda r=row: cached(name, way, r, ids), whole) if known else ""
    found |= own_function(name, way, ids)
    maps = layer(ids, output_attentions=True).attentions
    found["attentions"] = "=" if maps and all(each is not None for each in maps) else "–"
    if name == "BERT":  # sees everything, and keeps no cache
        return found | dict.fromkeys((*PACKED, *REUSED, *BOTH_WAYS), "")
    found |= packed(layer, ids) | reused(layer, ids, layer(ids).last_hidden_state[:, 5:])
    return found | both_ways(name, way, ids)


def rows():
    with FILE.open(encoding="utf-8", newline="") as file:
        head, *lines = [line.rstrip("\n").split("\t") for line in file]
    columns = zip(*lines, strict=True)
    names = list(next(columns))
    return {
        key: dict(zip(names, column, strict=True))
        for key, column in zip(head[1:], columns, strict=True)
    }


if __name__ == "__main__":
    table = {f"{name} {way}": measured(name, way) for name in MODELS for way in WAYS}
    lines = [["mask", *table]]
    lines += [[row, *(column[row] for column in table.values())] for row in table["Llama eager"]]
    FILE.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
