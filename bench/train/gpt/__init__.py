"""A small GPT in NumPy, trained with several kinds of parallelism: ``python -m bench.train --model gpt``."""
