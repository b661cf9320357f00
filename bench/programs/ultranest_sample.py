"""Sample a likelihood in two dimensions with nested sampling, as in the documentation of UltraNest."""

import ultranest


def likelihood(parameters):
    """Return the logarithm of the likelihood at each point."""
    return -0.5 * (((parameters - 0.5) / 0.1) ** 2).sum(axis=1)


sampler = ultranest.ReactiveNestedSampler(["a", "b"], likelihood, lambda cube: cube, vectorized=True)
sampler.run(min_num_live_points=100, viz_callback=None, show_status=False)
