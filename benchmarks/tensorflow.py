"""The time of a call of hlo_disc's op in eager TensorFlow, next to an op that does nothing: `make bench-tensorflow`.

The calls take turns in one process. Times are medians over turns of many calls; differences are within a turn.
"""

from __future__ import annotations

import statistics

import click
import tensorflow as tf

import hlo_disc.tensorflow
from benchmarks.measure import per_call

CALLS = 500


@click.command()
@click.option("--rounds", default=41, show_default=True)
def main(rounds: int) -> None:
    """Time x * 2 on f32[8], compiled for any size."""
    x = tf.zeros([8])
    compiled = hlo_disc.tensorflow.compile(lambda x: x * 2.0, [tf.TensorSpec([None])])
    op = compiled._op  # as the graph of a tf.function calls it
    ways = {
        "tf.identity": lambda: tf.identity(x),
        "x * 2 of TensorFlow": lambda: x * 2.0,
        "hlo_disc's op": lambda: op([x]),
        "the compiled function": lambda: compiled(x),
    }
    turns = [{name: 1e6 * per_call(call, CALLS, 1) for name, call in ways.items()} for _ in range(rounds)]
    for name in ways:
        taken = statistics.median(turn[name] for turn in turns)
        more = statistics.median(turn[name] - turn["tf.identity"] for turn in turns)
        click.echo(f"{name}: {taken:.2f} µs, {more:+.2f} µs to tf.identity")


if __name__ == "__main__":
    main()
