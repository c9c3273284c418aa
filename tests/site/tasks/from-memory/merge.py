def right(output, lse, other, other_lse):  # over the larger of both, as tiles do
    largest = torch.maximum(lse, other_lse)
    a, b = (lse - largest).exp(), (other_lse - largest).exp()
    mixed = (a[:, None] * output + b[:, None] * other) / (a + b)[:, None]
    return mixed, largest + (a + b).log()


def right_softmax(output, lse, other, other_lse):  # the two parts as two keys
    both = torch.stack([lse, other_lse])
    weights = both.softmax(0)[..., None]
    return (weights * torch.stack([output, other])).sum(0), both.logsumexp(0)


# Both parts count alike, however much their keys weigh.
def wrong_mean(output, lse, other, other_lse):
    return (output + other) / 2, torch.logaddexp(lse, other_lse)


# Exponentials of scores of hundreds are infinite.
def wrong_overflow(output, lse, other, other_lse):
    a, b = lse.exp()[:, None], other_lse.exp()[:, None]
    return (a * output + b * other) / (a + b), torch.logaddexp(lse, other_lse)


# The logarithms are shared out, not what they are logarithms of.
def wrong_logarithms(output, lse, other, other_lse):
    share = (lse / (lse + other_lse))[:, None]
    return share * output + (1 - share) * other, torch.logaddexp(lse, other_lse)


# Each part gets the weight of the other.
def wrong_swapped(output, lse, other, other_lse):
    return merge(output, other_lse, other, lse)


# The larger logarithm stands for both.
def wrong_largest(output, lse, other, other_lse):
    return merge(output, lse, other, other_lse)[0], torch.maximum(lse, other_lse)


# Logarithms add up as if exponentials were multiplied.
def wrong_product(output, lse, other, other_lse):
    return merge(output, lse, other, other_lse)[0], lse + other_lse


# The sum is not divided.
def wrong_undivided(output, lse, other, other_lse):
    largest = torch.maximum(lse, other_lse)
    a, b = (lse - largest).exp()[:, None], (other_lse - largest).exp()[:, None]
    return a * output + b * other, torch.logaddexp(lse, other_lse)


# One number for all queries.
def wrong_together(output, lse, other, other_lse):
    share = (lse.logsumexp(0) - torch.cat([lse, other_lse]).logsumexp(0)).exp()
    return share * output + (1 - share) * other, torch.logaddexp(lse, other_lse)
