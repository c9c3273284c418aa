def right(k):
    found = []
    with torch.no_grad():
        for end in range(33, len(test_tokens) + 1, 8):
            row = test_tokens[end - 1 - k : end]
            found.append(row)
        rows = torch.stack(found)
        logits = model(rows[:, :-1])[:, -1]
    return F.cross_entropy(logits, rows[:, -1])


# All k characters are asked, the first ones too.
def wrong_all(k):
    return losses(model, test_tokens.unfold(0, 33, 8)[:, -(k + 1) :]).mean()


# One character too few.
def wrong_count(k):
    return right(max(1, k - 1))


# The characters at the front are read, and asked is what follows them much later.
def wrong_front(k):
    rows = test_tokens.unfold(0, 33, 8)
    rows = torch.cat([rows[:, :k], rows[:, -1:]], dim=1)
    return losses(model, rows)[:, -1].mean()


# The whole row, whatever k is.
def wrong_k(k):
    return right(32)


# The losses are added up, not averaged.
def wrong_sum(k):
    rows = test_tokens.unfold(0, 33, 8)[:, -(k + 1) :]
    return losses(model, rows)[:, -1].sum()


# Each character's own loss.
def wrong_each(k):
    rows = test_tokens.unfold(0, 33, 8)[:, -(k + 1) :]
    return losses(model, rows)[:, -1]
