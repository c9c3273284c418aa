def right(model, tokens, twin, heads, right, wrong):  # by names, as on a map
    source, found = head_outputs(model, twin), []
    for layer, head in heads:
        with patch_heads(model, [f"{layer + 1}.{head + 1}"], source):
            patched = model(tokens)
        both = torch.stack([model(tokens), patched, model(twin)])
        before, now, end = (gap(each, right, wrong).mean() for each in both)
        found.append(((before - now) / (before - end)).item())
    return found


def parts(model, tokens, twin, right, wrong, *contexts):
    before, end = (gap(model(each), right, wrong).mean() for each in (tokens, twin))
    found = []
    for context in contexts:
        with context:
            now = gap(model(tokens), right, wrong).mean()
        found.append(((before - now) / (before - end)).item())
    return found


# Zeros, not the twin: that is what a head is missed for.
def wrong_zeros(model, tokens, twin, heads, right, wrong):
    zeros = [torch.zeros_like(each) for each in head_outputs(model, twin)]
    patches = [patch_heads(model, [head], zeros) for head in heads]
    return parts(model, tokens, twin, right, wrong, *patches)


# All heads of the layer.
def wrong_layer(model, tokens, twin, heads, right, wrong):
    source = head_outputs(model, twin)
    patches = [
        patch_heads(model, [(layer, each) for each in range(6)], source) for layer, _ in heads
    ]
    return parts(model, tokens, twin, right, wrong, *patches)


# All heads of the list at once.
def wrong_together(model, tokens, twin, heads, right, wrong):
    together = patch_heads(model, heads, head_outputs(model, twin))
    return parts(model, tokens, twin, right, wrong, together) * len(heads)


# At the last token only.
def wrong_last(model, tokens, twin, heads, right, wrong):
    source = head_outputs(model, twin)
    patches = [patch_heads(model, [head], source, [-1]) for head in heads]
    return parts(model, tokens, twin, right, wrong, *patches)


# What is left of the gap, where its change was asked for.
def wrong_left(model, tokens, twin, heads, right, wrong):
    return [1 - each for each in moved(model, tokens, twin, heads, right, wrong)]


# The change of the gap without a scale.
def wrong_scale(model, tokens, twin, heads, right, wrong):
    before, end = (gap(model(each), right, wrong).mean() for each in (tokens, twin))
    found = moved(model, tokens, twin, heads, right, wrong)
    return [each * (before - end).item() for each in found]


# The other way round: the twin, with a head of the prompt.
def wrong_way(model, tokens, twin, heads, right, wrong):
    return moved(model, twin, tokens, heads, right, wrong)
