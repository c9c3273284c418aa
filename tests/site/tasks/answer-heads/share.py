def right(weights, tokens, names):  # prompt by prompt
    found = 0
    for maps, words, name in zip(weights, tokens, names, strict=True):
        found = found + maps[:, -1, words == name].sum(dim=-1)
    return found / len(tokens)


# What the name gives to the last token: a column, where a row was meant.
def wrong_column(weights, tokens, names):
    here = (tokens == names[:, None]).float()
    return (weights[..., -1] * here[:, None]).sum(dim=-1).mean(dim=0)


# All queries.
def wrong_queries(weights, tokens, names):
    here = (tokens == names[:, None]).float()
    return (weights * here[:, None, None]).sum(dim=-1).mean(dim=(0, 2))


# Only where the name stands first.
def wrong_first(weights, tokens, names):
    place = (tokens == names[:, None]).int().argmax(dim=-1)
    return weights[torch.arange(len(tokens)), :, -1, place].mean(dim=0)


# The mean over the places of a name, where the sum was asked for.
def wrong_mean(weights, tokens, names):
    here = (tokens == names[:, None]).float()
    return name_share(weights, tokens, names) / here.sum(dim=-1).mean()


# A number for each prompt.
def wrong_prompts(weights, tokens, names):
    here = (tokens == names[:, None]).float()
    return (weights[:, :, -1] * here[:, None]).sum(dim=-1)
