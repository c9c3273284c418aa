def right_one_more_column(scores, b):
    empty = torch.full_like(scores[..., :1], b)
    return torch.cat([scores, empty], dim=-1).softmax(dim=-1)[..., :-1]


# Adds b to the denominator, and not its exponential.
def wrong_bias(scores, b):
    terms = scores.exp()
    return terms / (terms.sum(dim=-1, keepdim=True) + b)


# Takes what is written for what is computed: the exponentials of large scores are infinite.
def wrong_large(scores, b):
    terms = scores.exp()
    return terms / (terms.sum(dim=-1, keepdim=True) + torch.tensor(b).exp())


# Subtracts the largest score from the scores alone.
def wrong_shift(scores, b):
    terms = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return terms / (terms.sum(dim=-1, keepdim=True) + torch.tensor(b).exp())


# Keeps the weight of the empty chair, too.
def wrong_column(scores, b):
    empty = torch.full_like(scores[..., :1], b)
    return torch.cat([scores, empty], dim=-1).softmax(dim=-1)


# Lets the rows sum to one again.
def wrong_sum(scores, b):
    weights = right_one_more_column(scores, b)
    return weights / weights.sum(dim=-1, keepdim=True)


# Weights of columns.
def wrong_axis(scores, b):
    return right_one_more_column(scores.T, b).T
