"""How the tools of `mhattn.inside` do on each architecture.

    python tests/package/architecture_table.py

writes what was found to docs/data/texts/architectures.tsv; `test_architectures` compares.
"""

import re
import warnings
from contextlib import ExitStack
from pathlib import Path

import torch
from architectures import KIND_OF, made

from mhattn import attention_maps
from mhattn.inside import (
    ablate_heads,
    attention_layers,
    captured_maps,
    fed_heads,
    head_outputs,
    logit_attribution,
    patch_heads,
    register,
)
from mhattn.inside.layers import REGISTERED

FILE = Path(__file__).parents[2] / "docs" / "data" / "texts" / "architectures.tsv"
TOOLS = {
    "maps": "attention_maps",
    "any": "captured_maps",
    "remove": "ablate_heads",
    "outputs": "head_outputs",
    "logits": "logit_attribution",
}
SIGNS = {  # in the file; the story says what they mean
    "yes": "=",
    "register": "+",
    "by hand": "*",
    "partly": "~",
    "other heads": "≠",
    "no": "–",
}
EAGER = {"attn_implementation": "eager"}
NAMED = {  # what a reader of these classes' source fills into the advice of the error
    "FunnelRelMultiheadAttention": {"projection": "post_proj"},
    "ProphetNetAttention": {"num_heads": "num_attn_heads"},
    "ProphetNetNgramSelfAttention": {"num_heads": "num_attn_heads"},
}


def owns(output):
    """The weights that the library returns, in whatever field, and those of parts of the model."""
    fields = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    found = [x for field in fields for x in getattr(output, field, None) or () if x is not None]
    parts = (getattr(output, f"{part}_model_output", None) for part in ("text", "vision"))
    return found + [x for part in parts if part is not None for x in owns(part)]


def is_own(weights, own):
    """Equal to what the library returns. SqueezeBert and ProphetNet return scores under this name,
    WavLM the mean of its heads in the place of each."""
    if not torch.allclose(own.sum(dim=-1), torch.ones(1), atol=1e-4) and (own < 0).any():
        own = own.softmax(dim=-1)
    if weights.shape != own.shape:
        return False
    mean = weights.mean(dim=1, keepdim=True).expand_as(own)
    if len(own[0]) > 1 and torch.equal(own[:, 0], own[:, 1]):
        return torch.allclose(mean, own, atol=1e-5)
    return torch.allclose(weights, own, atol=1e-5)


def compared(maps, expected, warned):
    """`yes` if all maps of the library are there, `partly` if a warning says which are not."""
    missing = [own for own in expected if not any(is_own(weights, own) for weights in maps)]
    wrong = [x for x in maps if x.shape in {y.shape for y in missing}]
    if not missing:
        return "yes"
    return "partly" if warned and not wrong else "wrong"


def follow(error, model):
    """Do what the error advises; False if it advises nothing, or nothing new."""
    classes = {type(module).__name__: type(module) for module in model.modules()}
    named = re.findall(r"register\((\w+)", str(error))
    for name in named:
        register(classes[name], **NAMED.get(name, {}))
    return bool(named)


def tried(call, model):
    """What the call returns, whether it warned, and how often advice was followed; or the error."""
    for times in range(4):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                result = call()
            except ValueError as error:
                if times == 3 or not follow(error, model):
                    return error, False, times
                continue
        return result, any("no maps of" in str(x.message) for x in said), times
    raise AssertionError


def removed_as_zeros(model, call):
    """Each layer's head 1 removed, patched with zeros, and with zeros in the weight: the same."""
    layers, whole = attention_layers(model), call()
    for place, layer in enumerate(layers):
        with ablate_heads(model, [(place, 1)]):
            ablated = call()
        weight = layer.projection.weight
        before = weight.clone()
        columns = weight.T if type(layer.projection).__name__ == "Conv1D" else weight
        size = columns.shape[1] // layer.num_heads
        columns[:, size : 2 * size] = 0
        zeroed = call()
        weight.copy_(before)
        if not torch.allclose(ablated, zeroed, atol=1e-5) or torch.allclose(ablated, whole):
            return False
    return torch.equal(call(), whole)


def patched_with_own(model, call, heads):
    every = [(i, head) for i, one in enumerate(heads) for head in range(one.shape[2])]
    with patch_heads(model, every, heads):
        patched = call()
    with patch_heads(model, [(0, 1)], [torch.zeros_like(one) for one in heads]):
        emptied = call()
    with ablate_heads(model, [(0, 1)]):
        ablated = call()
    return torch.equal(patched, call()) and torch.equal(emptied, ablated)


def measured(name):
    """How each tool does on a model: a row for the file."""
    model, inputs = made(name, **EAGER)
    with torch.no_grad():
        row = {"model": name, "kind": KIND_OF[name]}
        expected = owns(model(**inputs, output_attentions=True)) if expects(name) else []

        def call():
            output = model(**inputs)
            return output[0]

        found, warned, times = tried(lambda: attention_maps(model, **inputs), model)
        row["maps"] = status(found, warned, times, expected)
        same, advised = "", 0
        if row["maps"] != "no":
            diagonal = tried(lambda: fed_heads(model, **inputs), model)[0]
            if isinstance(diagonal, list):
                right = all(torch.equal(x, torch.eye(len(x)).long()) for x in diagonal)
                same = "" if right else "other heads"
        done, _, advised = tried(lambda: removed_as_zeros(model, call), model)
        row["remove"] = same or status(done, False, times + advised, None)
        heads, _, advised = tried(lambda: head_outputs(model, **inputs), model)
        if isinstance(heads, list):
            done = patched_with_own(model, call, heads)
            row["outputs"] = same or status(done, False, times + advised, None)
        else:
            row["outputs"] = "no"
        row["any"] = captured(name, model, inputs, expected)
    done, _, advised = tried(lambda: attributed(model, inputs), model)
    row["logits"] = same or status(done, False, times + advised, None)
    return row


def attributed(model, inputs):
    """What each head adds to a number that is read behind the last norm; whether any does."""
    norm, width = last_norm(model, inputs)
    direction = torch.randn(width)
    parts = logit_attribution(model, direction=direction, norm=norm, position=2, **inputs)
    return bool(parts.heads.any())


def last_norm(model, inputs):
    """The last that is called once, of (B, L, E), and E."""
    calls, stack = [], ExitStack()
    with torch.no_grad(), stack:
        for module in model.modules():
            if "norm" in type(module).__name__.lower() and not list(module.children()):
                hook = module.register_forward_hook(lambda norm, args, y: calls.append((norm, y)))
                stack.callback(hook.remove)
        model(**inputs)
    norms = [norm for norm, _ in calls]
    for norm, y in reversed(calls):
        if y.ndim == 3 and sum(norm is other for other in norms) == 1:
            return norm, y.shape[-1]
    raise ValueError(f"model must have a last norm, got {type(model).__name__}")


def expects(name):
    return KIND_OF[name] != "no softmax over keys"


def status(found, warned, times, expected):
    if isinstance(found, ValueError):
        return "no"
    if expected is None:
        good = "yes" if found else "wrong"
    else:
        good = compared(found.maps, expected, warned)
    return "register" if good == "yes" and times else good


def captured(name, eager, inputs, expected):
    """With the kernel that the library chooses, and nothing registered."""
    kept = dict(REGISTERED)
    REGISTERED.clear()
    model, _ = made(name)
    model.load_state_dict(eager.state_dict())
    before = model(**inputs)[0]
    try:
        for by_hand in (False, True):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    found = captured_maps(model, **inputs, by_hand=by_hand)
                except ValueError:
                    continue
            assert torch.equal(found.output[0], before)
            good = compared(found.maps, expected, any("no maps of" in str(x.message) for x in said))
            return "by hand" if by_hand and good == "yes" else good
        found, _, times = tried(lambda: captured_maps(model, **inputs), model)
        return status(found, False, times, expected)
    finally:
        REGISTERED.clear()
        REGISTERED.update(kept)


def rows():
    with FILE.open(encoding="utf-8", newline="") as file:
        _, *lines = (line.rstrip("\n").split("\t") for line in file)
    words = {sign: word for word, sign in SIGNS.items()}
    found = {}
    for name, kind, *signs in lines:
        found[name] = {"model": name, "kind": kind}
        found[name] |= {tool: words[sign] for tool, sign in zip(TOOLS, signs, strict=True)}
    return found


def main():
    lines = ["\t".join(["model", "kind", *TOOLS.values()])]
    for name, kind in KIND_OF.items():
        row = measured(name)
        lines.append("\t".join([name, kind, *(SIGNS[row[tool]] for tool in TOOLS)]))
        print(lines[-1], flush=True)
        REGISTERED.clear()
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
