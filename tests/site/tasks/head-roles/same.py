def right(weights, tokens):  # text by text
    found, asked = 0, 0
    for maps, words in zip(weights, tokens, strict=True):
        for i in range(1, len(words)):
            keys = (words[:i] == words[i]).nonzero().flatten()
            if len(keys):
                found, asked = found + maps[:, i, keys].sum(dim=-1), asked + 1
    return found / asked


# The query's own token is the same as well.
def wrong_self(weights, tokens):
    return share(weights, (tokens[:, :, None] == tokens[:, None, :]).tril())


# Queries whose token is new count as if they had missed it.
def wrong_new(weights, tokens):
    equal = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    return (weights * equal[:, None]).sum(dim=-1).mean(dim=(0, 2))


# The tokens of the first text for all.
def wrong_text(weights, tokens):
    equal = tokens[:1, :, None] == tokens[:1, None, :]
    return share(weights, equal.tril(-1).expand(len(tokens), -1, -1))
