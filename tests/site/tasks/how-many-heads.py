# A cuboctahedron.
right = (
    torch.tensor(
        [[a, b, 0] for a in (1, -1) for b in (1, -1)]
        + [[a, 0, b] for a in (1, -1) for b in (1, -1)]
        + [[0, a, b] for a in (1, -1) for b in (1, -1)]
    )
    / 2**0.5
)

ANGLES = torch.arange(12) * torch.pi / 6

# On a circle.
wrong_circle = torch.stack([ANGLES.cos(), ANGLES.sin(), 0 * ANGLES], dim=1)

DRAWN = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))

# At random.
wrong_random = DRAWN / DRAWN.norm(dim=1, keepdim=True)

# Far enough apart, but of norm 2.
wrong_norm = 2 * right

# On two circles, one above the other.
wrong_circles = torch.stack(
    [(2 * ANGLES).cos() * 0.8, (2 * ANGLES).sin() * 0.8, torch.tensor([0.6, -0.6] * 6)], dim=1
)

CUBE = torch.cartesian_prod(*[torch.tensor([1.0, -1])] * 3) / 3**0.5

# The corners of a cube, and four of them once more.
wrong_twice = torch.cat([CUBE, CUBE[:4]])


# Opposite keys on the axes, and nothing between them.
wrong_axes = torch.cat([torch.eye(3), -torch.eye(3)]).repeat(2, 1)
