def right(logits, right, wrong):  # by gathering
    pair = torch.stack([right, wrong], dim=1)
    found = logits[:, -1].gather(1, pair)
    return found[:, 0] - found[:, 1]


# Of probabilities: they depend on all other words as well.
def wrong_probabilities(logits, right, wrong):
    row, last = torch.arange(len(logits)), logits[:, -1].softmax(dim=-1)
    return last[row, right] - last[row, wrong]


# Over all tokens, though only the last one answers.
def wrong_all(logits, right, wrong):
    row, mean = torch.arange(len(logits)), logits.mean(dim=1)
    return mean[row, right] - mean[row, wrong]


# One number for all prompts.
def wrong_mean(logits, right, wrong):
    return gap(logits, right, wrong).mean()


# The other way round.
def wrong_sign(logits, right, wrong):
    return gap(logits, wrong, right)


# The right name alone: it rises with all logits.
def wrong_alone(logits, right, wrong):
    return logits[torch.arange(len(logits)), -1, right]


# Every name for every prompt.
def wrong_table(logits, right, wrong):
    return logits[:, -1, right] - logits[:, -1, wrong]
