def right(m, tokens):
    total = 0
    for kind in m.layer_kinds:
        limits = [tokens]
        limits += [kind.window] if kind.window else []
        chosen = m.index and (not m.mixed or kind.indexed)
        limits += [m.index.top_keys] if chosen else []
        total += 0 if kind.sees == "state" else kind.layers * min(limits)
    return total


# Windows see everything.
def wrong_window(m, tokens):
    seen = m.index.top_keys if m.index else tokens
    return sum(
        k.layers * min(tokens, seen if k.indexed or not m.mixed else tokens)
        for k in m.layer_kinds
        if k.sees != "state"
    )


# A state counts as if it read all keys.
def wrong_state(m, tokens):
    states = sum(k.layers for k in m.layer_kinds if k.sees == "state")
    return right(m, tokens) + states * tokens


# Where all layers are alike, nothing is marked, and the indexer is forgotten.
def wrong_marked(m, tokens):
    return right(m, tokens) if m.mixed or not m.index else m.layers * tokens


# The indexer chooses in all layers.
def wrong_everywhere(m, tokens):
    return m.layers * min(tokens, m.index.top_keys) if m.index else right(m, tokens)


# The indexer finds more keys than there are.
def wrong_short(m, tokens):
    return m.layers * m.index.top_keys if m.index and not m.mixed else right(m, tokens)
