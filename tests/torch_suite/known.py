"""Tests of torch that fail on the backend "pycoll", each with the reason."""

MONITORED = "monitored_barrier is a function of gloo's process group"

KNOWN = {
    "test_monitored_barrier_gloo": MONITORED,
    "test_monitored_barrier_gloo_rank_0_timeout": MONITORED,
    "test_monitored_barrier_gloo_subgroup": MONITORED,
}
