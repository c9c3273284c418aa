def right(seeds, x, lengths):
    rows = [mha(seeds[None], x[[b], :n])[0] for b, n in enumerate(lengths)]
    return torch.stack(rows)


# Padding is read.
def wrong_padding(seeds, x, lengths):
    return mha(seeds.expand(len(x), -1, -1), x)


# Only the padding is read, by the other convention of masks.
def wrong_mask(seeds, x, lengths):
    hide = torch.arange(x.shape[1]) < lengths[:, None]
    return mha(seeds.expand(len(x), -1, -1), x, mask=~hide[:, None, None])


# Nothing asks: the mean of the tokens.
def wrong_mean(seeds, x, lengths):
    rows = [x[b, :n].mean(dim=0).expand_as(seeds) for b, n in enumerate(lengths)]
    return torch.stack(rows)


# The tokens are never read.
def wrong_seeds(seeds, x, lengths):
    return seeds.expand(len(x), -1, -1)


# The first seed asks for all.
def wrong_seed(seeds, x, lengths):
    return right(seeds[:1].expand_as(seeds), x, lengths)


# The loop ends before the last text.
def wrong_last(seeds, x, lengths):
    return right(seeds, x[:-1], lengths[:-1])


# Each text gives one row, the mean over the seeds.
def wrong_rows(seeds, x, lengths):
    return right(seeds, x, lengths).mean(dim=1)
