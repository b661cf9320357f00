"""Tests of torch that fail on the backend "pycoll", each with the reason."""

MONITORED = "monitored_barrier is a function of gloo's process group"

KNOWN = {
    "test_ddp_logging_data_cpu": "DistributedDataParallel logs the name of the backend, which is not gloo",
    "test_monitored_barrier_gloo": MONITORED,
    "test_monitored_barrier_gloo_rank_0_timeout": MONITORED,
    "test_monitored_barrier_gloo_subgroup": MONITORED,
}
