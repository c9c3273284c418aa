def right(suspect):
    class Repaired(suspect):
        def scores(self, q, k):
            return q @ k.mT / math.sqrt(q.shape[-1])

        def may(self, length):
            return square(length).tril()

    return Repaired


# The scale is mended, the leak at odd lengths stays.
def wrong_leak(suspect):
    class Repaired(suspect):
        scores = Layer.scores

    return Repaired


# The mask is mended; the scale still knows the length.
def wrong_scale(suspect):
    class Repaired(suspect):
        may = Layer.may

    return Repaired


# The merge looked suspicious, and was right.
def wrong_merge(suspect):
    class Repaired(suspect):
        may = Layer.may

        def merge(self, x):
            return x.flatten(2)

    return Repaired


# Another layer, in place of a repair.
def wrong_other(suspect):
    return Layer


# The methods are put into the class itself, and no subclass is made.
def right_patched(suspect):
    suspect.scores, suspect.may = Layer.scores, Layer.may
    return suspect
