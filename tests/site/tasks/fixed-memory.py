def right(query, key, value):
    shares = torch.stack([(key @ q - (key @ q).max()).exp() for q in query])
    return shares / shares.sum(dim=1, keepdim=True) @ value


# How strongly a score differs from zero, whichever its sign.
def wrong_sign(query, key, value):
    return (query @ key.T).abs().softmax(dim=-1) @ value


# Squares in place of exponentials.
def wrong_square(query, key, value):
    shares = (query @ key.T).square() + 1e-9
    return shares / shares.sum(dim=-1, keepdim=True) @ value


# The best key alone; a query of zeros is an exception.
def wrong_hard(query, key, value):
    scores = query @ key.T
    best = (scores == scores.amax(dim=-1, keepdim=True)).float()
    return best / best.sum(dim=-1, keepdim=True) @ value


# The weights of each key add up to one.
def wrong_axis(query, key, value):
    return (query @ key.T).softmax(dim=0) @ value


# The mean of all values, whatever is asked.
def wrong_mean(query, key, value):
    return value.mean(dim=0).expand(len(query), -1)
