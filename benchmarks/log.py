"""How fast the log is, beside the raw limit and a peer in the same run.

make bench                          all of it: some minutes, and some gigabytes of disk meanwhile
make bench ARGS="--quick"           a taste, which writes no results

The tables go to benchmarks/results/ as Markdown and JSON.
"""

import argparse

from benchmarks import embedded, growth, mongo
from benchmarks.measuring import machine, out, show, write

TITLE = "The log: append, read, growth"


def main() -> None:
    options = _options()
    most, large, few = (5_000, 50_000, 5_000) if options.quick else (100_000, options.large, 50_000)
    comparisons = []
    sections = (
        embedded.append_comparisons(most),
        iter([embedded.read_comparison(most)]),
        mongo.comparisons(few),
    )
    for section in sections:
        for comparison in section:
            out.print(f"{comparison.what}: {comparison.ratio:.2f}")
            comparisons.append(comparison)
    out.print(f"publishing {large:,} events …")
    facts = list(growth.facts(large))
    show(comparisons, facts)
    if not options.quick:
        write("log", TITLE, machine("orjson", "pymongo", "persist-queue"), comparisons, facts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the log.")
    parser.add_argument("--quick", action="store_true", help="few events, and no results written")
    parser.add_argument("--large", type=int, default=10_000_000, help="events of the large log")
    return parser.parse_args()


if __name__ == "__main__":
    main()
