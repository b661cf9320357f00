"""Print the costs of all algorithms as a Markdown table: ``python -m pycoll.costs``."""

from __future__ import annotations

from .base.command_line import Parser, until_the_reader_ends
from .schedule.costs import table


def main() -> None:
    """Print the table."""
    Parser(prog="python -m pycoll.costs", description=__doc__).parse_args()
    print(table())


if __name__ == "__main__":
    with until_the_reader_ends():
        main()
