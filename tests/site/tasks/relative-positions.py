def right(numbers, i):
    n = len(numbers) // 2 + 1
    return numbers.as_strided((n,), (1,), n - 1 - i)


# A copy of the right numbers.
def wrong_copy(numbers, i):
    n = len(numbers) // 2 + 1
    return numbers[torch.arange(n) + n - 1 - i]


# Query and key are interchanged.
def wrong_way(numbers, i):
    n = len(numbers) // 2 + 1
    return numbers[i : i + n]


# Distances are counted from the query, in the other direction.
def wrong_flip(numbers, i):
    n = len(numbers) // 2 + 1
    return numbers.flip(0)[i : i + n].flip(0)[:n].flip(0)


# Eight keys, as in one test.
def wrong_size(numbers, i):
    return numbers[7 - i : 15 - i]


# Off by one.
def wrong_one(numbers, i):
    n = len(numbers) // 2 + 1
    return numbers[max(0, n - 2 - i) : max(0, n - 2 - i) + n]


# The last key is left out.
def wrong_last(numbers, i):
    return right(numbers, i)[:-1]


# All numbers: those of every query.
def wrong_all(numbers, i):
    return numbers
