def right(numbers):
    B, L = numbers.shape
    mask = torch.zeros(B, 1, L, L, dtype=torch.bool)
    for b, row in enumerate(numbers):
        for i in range(L):
            mask[b, 0, i, : i + 1] = row[: i + 1] == row[i]
    return mask


# There are two documents, 0 and 1.
def wrong_two(numbers):
    return right(numbers % 2)


# Later tokens of the document are seen.
def wrong_future(numbers):
    return numbers[:, None, :, None] == numbers[:, None, None, :]


# Documents before are seen.
def wrong_causal(numbers):
    L = numbers.shape[1]
    return torch.ones(L, L).tril().bool().expand(len(numbers), 1, L, L)


# All rows of the batch are packed as the first.
def wrong_batch(numbers):
    return right(numbers[:1])


# Numbers in ascending order are asked for.
def wrong_order(numbers):
    L = numbers.shape[1]
    mask = numbers[:, None, :, None] <= numbers[:, None, None, :]
    return mask & torch.ones(L, L).tril().bool()


# Zeros and minus infinity: numbers that are added.
def wrong_kind(numbers):
    return torch.zeros(len(numbers), 1, 6, 6).masked_fill(~right(numbers), -torch.inf)


# The mask says who is hidden.
def wrong_hidden(numbers):
    return ~right(numbers)


# The first token of a document sees the last one of the document before.
def wrong_border(numbers):
    mask = right(numbers)
    mask |= torch.ones(6, 6).tril(-1).triu(-1).bool()
    return mask
