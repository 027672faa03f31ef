"""Data-parallel training in several processes, on sequences whose length changes from step to step.

    python examples/data_parallel.py --processes 2 --devices 2 --steps 100

Each device has its part of the batch. The loss and its gradient are compiled by hlo_disc, once for all lengths; XLA
sums the gradients over the devices and updates the weights. What is printed is the same for any number of processes
and devices, but for rounding.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

LENGTHS = (5, 9, 16, 23)
BATCH, VOCABULARY, WIDTH = 8, 50, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1, help="of each process")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--address", default="", help="of the first process; given to those that this one starts")
    parser.add_argument("--process", type=int, default=0)
    options = parser.parse_args()
    if options.processes > 1 and not options.address:
        sys.exit(start(options))
    train(options)


def start(options: argparse.Namespace) -> int:
    """Run each process of the training; only the first one prints losses. Return the largest exit code."""
    import socket

    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, __file__, *sys.argv[1:], "--address", address, "--process"]
    started = [subprocess.Popen([*command, str(k)]) for k in range(options.processes)]
    try:
        return max(process.wait() for process in started)
    finally:
        for process in started:
            process.kill()


def train(options: argparse.Namespace) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import PartitionSpec as P

    import hlo_disc

    jax.config.update("jax_num_cpu_devices", options.devices)
    if options.address:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(options.address, options.processes, options.process)
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    @hlo_disc.jit(dims={"tokens": "(b, s)"})
    def loss(weights: Any, tokens: Any) -> Any:
        """Return the mean negative log-likelihood of each token, predicted from the one before it."""
        hidden = jax.nn.relu(weights["embedding"][tokens[:, :-1]] @ weights["hidden"])
        scores = jax.nn.log_softmax(hidden @ weights["out"])
        return -jnp.take_along_axis(scores, tokens[:, 1:, None], -1).mean()

    def step(weights: Any, tokens: Any) -> Any:
        mine = jax.lax.pcast(weights, ("data",), to="varying")
        value, gradients = jax.value_and_grad(loss)(mine, tokens)
        value, gradients = jax.lax.pmean((value, gradients), "data")
        return value, jax.tree.map(lambda w, g: w - 0.5 * g, weights, gradients)

    step = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P()))
    rng = np.random.default_rng(0)
    shapes = {"embedding": (VOCABULARY, WIDTH), "hidden": (WIDTH, WIDTH), "out": (WIDTH, VOCABULARY)}
    weights = {name: (rng.normal(size=shape) / shape[0] ** 0.5).astype(np.float32) for name, shape in shapes.items()}
    spread = jax.sharding.NamedSharding(mesh, P("data"))
    for k in range(options.steps):
        start = rng.integers(VOCABULARY, size=(BATCH, 1))
        tokens = ((start + 7 * np.arange(LENGTHS[k % len(LENGTHS)])) % VOCABULARY).astype(np.int32)
        everywhere = jax.make_array_from_callback(tokens.shape, spread, lambda part, whole=tokens: whole[part])
        value, weights = step(weights, everywhere)
        # Every process waits for its step. On CPUs XLA lets 32 steps wait in a device's queue; a 33rd holds the thread
        # that another device needs for the sum, and all processes stop.
        loss_now = float(value)
        if options.process == 0 and (k % 20 == 0 or k == options.steps - 1):
            print(f"step {k}: loss {loss_now:.4f}")
    backward = sum(record.backward for record in loss.stats().records)
    forward = loss.stats().compilations - backward
    print(f"process {options.process}: compiled {forward} program and {backward} backward", file=sys.stderr)


if __name__ == "__main__":
    main()
