def right(statistic, weights, tokens):  # the rank of the truth among 199 draws
    found = statistic(weights, tokens)
    higher = sum(statistic(shuffled(weights), tokens) >= found for _ in range(199))
    return higher < 2


# Above the mean of what chance gives: half of all heads are.
def wrong_mean(statistic, weights, tokens):
    chance = torch.stack([statistic(shuffled(weights), tokens) for _ in range(99)])
    return statistic(weights, tokens) > chance.mean(dim=0)


# One threshold for texts of every length.
def wrong_fixed(statistic, weights, tokens):
    return statistic(weights, tokens) > 0.1


# Higher than the other heads.
def wrong_heads(statistic, weights, tokens):
    found = statistic(weights, tokens)
    return found >= found.max()


# The share, where an answer was asked for.
def wrong_share(statistic, weights, tokens):
    found = statistic(weights, tokens)
    return (found - statistic(shuffled(weights), tokens)).clamp(min=0)


# One draw: chance beats it half of the time.
def wrong_draw(statistic, weights, tokens):
    return has_role(statistic, weights, tokens, draws=1)
