def right(ours, theirs, exact):
    def far(x):
        off = torch.linalg.vector_norm(x.double() - exact, dim=-1)
        return (off / torch.linalg.vector_norm(exact, dim=-1)).flatten().max()

    return (far(ours) <= 2 * far(theirs)).item()


# The norm of everything: one bad row is lost among the others.
def wrong_whole(ours, theirs, exact):
    return bool((ours.double() - exact).norm() <= 2 * (theirs.double() - exact).norm())


# Distances as they are: behind a large row, late and small ones hide.
def wrong_distance(ours, theirs, exact):
    def worst(x):
        return (x.double() - exact).norm(dim=-1).max()

    return bool(worst(ours) <= 2 * worst(theirs))


# Theirs taken for the truth.
def wrong_truth(ours, theirs, exact):
    return torch.allclose(ours, theirs, atol=1e-2, rtol=1e-2)


# The default tolerance of the dtype: refuses what is right.
def wrong_strict(ours, theirs, exact):
    return torch.allclose(ours.double(), exact, rtol=1.6e-2, atol=1e-5)


# NaN is not greater than anything, so it passes.
def wrong_nan(ours, theirs, exact):
    def worst(x):
        return ((x.double() - exact).norm(dim=-1) / exact.norm(dim=-1)).max()

    return not bool(worst(ours) > 2 * worst(theirs))
