def right(a):
    b = 1 - a
    return torch.tensor([a / (a * a + b * b), b / (a * a + b * b)])


# The shares themselves.
def wrong_shares(a):
    return torch.tensor([a, 1 - a])


# The larger one is guessed, and the other is not.
def wrong_best(a):
    return torch.tensor([1.0, 0.0])


# Divided by the norm, not by its square.
def wrong_norm(a):
    shares = torch.tensor([a, 1 - a])
    return shares / shares.norm()


# The mean itself is the guess of both.
def wrong_mean(a):
    return torch.ones(2)


# One number for both.
def wrong_one(a):
    return right(a)[:1]
