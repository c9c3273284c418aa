def right(X):
    seen = torch.ones(len(X), len(X)).tril()
    return seen / seen.sum(dim=1, keepdim=True) @ X


# Words to come are averaged as well.
def wrong_all(X):
    return X.mean(dim=0).expand_as(X)


# The sum is divided by one word too many.
def wrong_count(X):
    return X.cumsum(dim=0) / torch.arange(2, len(X) + 2)[:, None]


# The sum is taken along the features of a word.
def wrong_axis(X):
    return X.cumsum(dim=1) / torch.arange(1, X.shape[1] + 1)


# The sum is never divided.
def wrong_sum(X):
    return X.cumsum(dim=0)


# A word doesn't count itself.
def wrong_earlier(X):
    weights = torch.ones(len(X), len(X)).tril(-1)
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=1) @ X


# No row at all, and so no wrong one.
def wrong_empty(X):
    return X[:0]


# The last word is left out.
def wrong_last(X):
    return right(X)[:-1]
