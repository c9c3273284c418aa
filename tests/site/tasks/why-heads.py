ANGLE = torch.tensor(0.8)
right = torch.zeros(8, 4)
right[6, :2] = torch.stack([ANGLE.cos(), ANGLE.sin()])
right[7, :2] = torch.stack([-ANGLE.sin(), ANGLE.cos()])

# A longer query is as right: it asks for the same, more firmly.
right_scaled = 5 * right

# The word before: the arrow turns the other way.
wrong_before = torch.zeros(8, 4)
wrong_before[6], wrong_before[7] = torch.tensor([[4.0, -4, 0, 0], [4, 4, 0, 0]])

# The word itself: the arrow doesn't turn.
wrong_self = torch.eye(8).roll(2, 1)[:, :4] * 4

# Two words on: it turns twice as far.
wrong_far = torch.zeros(8, 4)
wrong_far[6], wrong_far[7] = torch.tensor([[0.0, 4, 0, 0], [-4, 0, 0, 0]])

# The meaning asks, not the place.
wrong_meaning = torch.eye(8, 4)

# Rows and columns are interchanged.
wrong_transposed = right.T

# All zeros: every word looks at the first one.
wrong_zeros = torch.zeros(8, 4)
