def right(batch, length):
    tokens = torch.randint(26, (batch, length))
    place = torch.arange(length)
    pattern = (place[:, None] - place == 2).repeat(batch, 1, 1)
    target = torch.cat([torch.full((batch, 2), -100), tokens[:, :-2]], dim=1)
    return Lookup(tokens, target, pattern)


def changed(batch, length, **fields):
    """A right task with other fields, each made from it."""
    task = right(batch, length)
    return task._replace(**{name: make(task) for name, make in fields.items()})


# The first two ask for tokens at the end.
def wrong_first(batch, length):
    return changed(batch, length, target=lambda task: task.tokens.roll(2, dims=1))


# One before.
def wrong_one(batch, length):
    return changed(batch, length, target=lambda task: task.target.roll(-1, dims=1))


# The pattern points to the token after.
def wrong_way(batch, length):
    return changed(batch, length, pattern=lambda task: task.pattern.mT)


# One pattern, without a batch.
def wrong_batch(batch, length):
    return changed(batch, length, pattern=lambda task: task.pattern[0])


# The first two rows point to the end.
def wrong_round(batch, length):
    return changed(
        batch,
        length,
        pattern=lambda task: torch.eye(length).bool().roll(2, dims=0).expand(batch, -1, -1),
    )


# A pattern without a key.
def wrong_empty(batch, length):
    return changed(batch, length, pattern=lambda task: torch.zeros_like(task.pattern))


# One text, over and over: nothing can be learned from it but the text.
def wrong_text(batch, length):
    task = right(1, length)
    return Lookup(*(part.expand(batch, *part.shape[1:]) for part in task))
