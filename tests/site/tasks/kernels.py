def right(x):
    half = (x.clamp(min=-87) / 1024).double()  # e^x is the 1024th power of e^(x / 1024)
    power = 1 + half + half**2 / 2 + half**3 / 6 + half**4 / 24
    for _ in range(10):
        power = power * power
    return power.float()


# The function itself.
def wrong_exp(x):
    return x.exp()


# A power of 2, not of e.
def wrong_base(x):
    return exp2(x)


# Multiplied by log 2, not divided.
def wrong_factor(x):
    return exp2(x * math.log(2))


# Too few terms.
def wrong_terms(x):
    return exp2(x / math.log(2), n=2)


# A series around zero, which is far off.
def wrong_series(x):
    return 1 + x + x**2 / 2 + x**3 / 6


# A power with x above is the function itself.
def wrong_power(x):
    return math.e**x


# So is any other program for it.
def wrong_pow(x):
    return torch.pow(2, x / math.log(2))


# Only the whole powers of 2.
def wrong_whole(x):
    return torch.ldexp(torch.ones_like(x), (x / math.log(2)).clamp(min=-127).floor())
