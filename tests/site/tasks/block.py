class RightPower(nn.Module):
    def __init__(self, E):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(E))

    def forward(self, x):
        return x * (x * x).mean(dim=-1, keepdim=True).rsqrt() * self.weight


right = RightPower


def divided_by(length):
    """A module with this length of a vector."""

    class Norm(RightPower):
        def forward(self, x):
            return self.weight * x / length(x)

    return Norm


# The standard deviation, as in LayerNorm: the mean is taken away before the squares.
wrong_mean = divided_by(lambda x: x.std(dim=-1, correction=0, keepdim=True))

# The sum of squares, not their mean.
wrong_sum = divided_by(lambda x: x.norm(dim=-1, keepdim=True))

# The mean of all words, not one for each word.
wrong_all = divided_by(lambda x: x.square().mean().sqrt())

# Without the root.
wrong_root = divided_by(lambda x: x.square().mean(dim=-1, keepdim=True))

# Along the words, not along the features.
wrong_axis = divided_by(lambda x: x.square().mean(dim=-2, keepdim=True).sqrt())


# The weight isn't used.
class wrong_weight(RightPower):
    def forward(self, x):
        return x * x.square().mean(dim=-1, keepdim=True).rsqrt()
