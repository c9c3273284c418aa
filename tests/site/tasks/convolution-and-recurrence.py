def right(mha, r):
    def layer(x):
        near = torch.ones(x.shape[1], x.shape[1]).bool()
        return mha(x, mask=near.triu(-(r // 2)).tril(r // 2))

    return layer


# It reaches as far, but it is a convolution.
def wrong_convolution(mha, r):
    return wide(r)()


# r positions on each side.
def wrong_wide(mha, r):
    return right(mha, 2 * r + 1)


# Only positions before.
def wrong_causal(mha, r):
    def layer(x):
        i = torch.arange(x.shape[1])
        back = i[:, None] - i
        return mha(x, mask=(back >= 0) & (back < r))

    return layer


# Near keys are hidden, by the other convention of masks.
def wrong_mask(mha, r):
    def layer(x):
        i = torch.arange(x.shape[1])
        return mha(x, mask=((i[:, None] - i).abs() > r // 2) | (i[:, None] == i))

    return layer


# All positions are seen.
def wrong_all(mha, r):
    return mha
