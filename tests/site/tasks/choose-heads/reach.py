def right(weights):  # the largest of each column
    largest = weights.amax(dim=2)  # (B, H, S)
    return (largest > 0.5).double().sum(dim=2).mean(dim=0)


# Queries that choose, and not keys that are chosen.
def wrong_queries(weights):
    return (weights > 0.5).any(dim=-1).sum(dim=-1).double().mean(dim=0)


# A half is counted.
def wrong_half(weights):
    return (weights >= 0.5).any(dim=-2).sum(dim=-1).double().mean(dim=0)


# A key counts if it has most of the weight of all queries together.
def wrong_mean(weights):
    return (weights.mean(dim=-2) > 0.5).sum(dim=-1).double().mean(dim=0)


# A key chosen in any text counts.
def wrong_texts(weights):
    return (weights > 0.5).any(dim=-2).any(dim=0).sum(dim=-1).double()


# The largest of each row counts, however small.
def wrong_largest(weights):
    chosen = torch.nn.functional.one_hot(weights.argmax(dim=-1), weights.shape[-1])
    return chosen.any(dim=-2).sum(dim=-1).double().mean(dim=0)
