"""Train a multilayer perceptron with the data-parallel drivers."""
