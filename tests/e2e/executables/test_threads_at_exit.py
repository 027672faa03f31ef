"""Threads that run programs when the interpreter goes: the process ends as if they were not there.

Python ends a thread that asks for its lock then by unwinding it, which no C++ destructor survives. What must not happen
is an abort, or waiting for ever.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

_PROGRAMS = {
    "compiled": "f = hlo_disc.compile(lambda x: jnp.tanh(x).sum(0), jax.ShapeDtypeStruct((2000, 2000), np.float32))",
    "jit": "f = hlo_disc.jit(lambda x: jnp.tanh(x).sum(0))",
    "callback": "f = hlo_disc.jit(lambda x: jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1)",
    "callback in jax.jit": (
        "f = jax.jit(hlo_disc.jit(lambda x: jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1))"
    ),
}


@pytest.mark.parametrize("program", _PROGRAMS)
def test_the_process_ends_while_threads_call(program: str) -> None:
    inside = 1 if "jax.jit" in program else 3  # threads that are in the program at once: XLA queues the others
    text = f"""
        import threading, time, jax, jax.numpy as jnp, numpy as np, hlo_disc
        def slow(x):  # does not return once threads call it: jaxlib aborts where it makes arrays then
            while stay.is_set():
                entered.add(threading.get_ident())
                time.sleep(0.001)
            return np.asarray(x)
        stay, entered = threading.Event(), set()
        {_PROGRAMS[program]}
        x = np.ones((2000, 2000), np.float32)
        f(x)
        stay.set()
        def loop():
            while True:
                {"" if "callback" in program else "entered.add(threading.get_ident())"}
                f(x)
        for _ in range(3):
            threading.Thread(target=loop, daemon=True).start()
        while len(entered) < {inside}:
            time.sleep(0.001)
        time.sleep({0.1 if inside == 3 else 1})
        print("end")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr[-2000:]
