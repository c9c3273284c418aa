def right(steps):  # from each operation back to those that it needs
    def depth(n):
        needed = [i for i in range(n) if steps[i][1] & steps[n][0]]
        return 1 + max(map(depth, needed), default=0)

    return max(map(depth, range(len(steps))), default=0)


# All operations.
def wrong_all(steps):
    return len(steps)


# Only neighbours in time are compared.
def wrong_neighbours(steps):
    longest = length = 0
    for n, (reads, _) in enumerate(steps):
        length = length + 1 if n and reads & steps[n - 1][1] else 1
        longest = max(longest, length)
    return longest


# The shortest of what it waits for.
def wrong_shortest(steps):
    ready = {}
    for reads, writes in steps:
        before = min((ready.get(each, 0) for each in reads), default=0)
        ready.update(dict.fromkeys(writes, before + 1))
    return max(ready.values(), default=0)


# The chain to the last operation.
def wrong_last(steps):
    ready, last = {}, 0
    for reads, writes in steps:
        last = 1 + max((ready.get(each, 0) for each in reads), default=0)
        ready.update(dict.fromkeys(writes, last))
    return last


# What is waited for is added up.
def wrong_sum(steps):
    ready = {}
    for reads, writes in steps:
        before = sum(ready.get(each, 0) for each in reads)
        ready.update(dict.fromkeys(writes, before + 1))
    return max(ready.values(), default=0)


# One result of each operation is noted.
def wrong_result(steps):
    ready = {}
    for reads, writes in steps:
        before = max((ready.get(each, 0) for each in reads), default=0)
        ready[max(writes)] = before + 1
    return max(ready.values(), default=0)
