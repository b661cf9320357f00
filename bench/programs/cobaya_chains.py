"""Sample a Gaussian with one chain on each rank, as in the documentation of Cobaya."""

from cobaya.run import run

run(
    {
        "likelihood": {"ring": "lambda a, b: -0.5 * (a**2 + (b - a) ** 2 / 0.1)"},
        "params": {name: {"prior": {"min": -5, "max": 5}, "proposal": 0.3, "ref": 0} for name in ("a", "b")},
        "sampler": {"mcmc": {"Rminus1_stop": 0.01, "max_samples": 4000, "learn_every": "20d"}},
    }
)
