def right(similarity, share):
    mean = sum(p * q * similarity[i, j] for i, p in enumerate(share) for j, q in enumerate(share))
    return 1 / mean


# Heads count alike.
def wrong_even(similarity, share):
    return 1 / similarity.mean()


# Shares of single heads, as if none were like another.
def wrong_alone(similarity, share):
    return 1 / (share @ share)


# The mean similarity, not one over it.
def wrong_mean(similarity, share):
    return share @ similarity @ share


# Drawn without putting back: no head is compared with itself.
def wrong_self(similarity, share):
    others = similarity - similarity.diagonal().diag()
    return 1 / (share @ others @ share + 1e-3)
