"""The common parts of GPUs of all vendors: names, levels, threads, and functions that there is no code for."""

from __future__ import annotations

import sys
import threading

import jax.numpy as jnp
import pytest

import hlo_disc
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.targets import registry, workers
from hlo_disc.targets.gpu import vendor as gpu
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.gpu.rocm import AMD


@pytest.mark.parametrize(
    ("target", "levels"),
    [
        ("cuda", ("sm_80",)), ("cuda:sm_80", ("sm_80",)), ("cuda:sm_90", ("sm_90",)), ("rocm", ("gfx90a", "gfx942")),
        ("rocm:gfx90a", ("gfx90a",)), ("rocm:gfx942", ("gfx942",)),
    ],
)  # fmt: skip
def test_code_is_for_what_is_asked_for(target, levels):
    program = hlo_disc.compile(lambda x: x + 1, "f32[n]", target=target).program
    vendor = NVIDIA if target.startswith("cuda") else AMD
    assert tuple(vendor.notes(program.object)) == levels == tuple(program.features[: len(levels)])


@pytest.mark.usefixtures("all_kernels_built")  # which compile in no other thread
def test_what_fails_leaves_threads_as_they_were():
    before = sys.getswitchinterval()
    with workers.short_turns(), pytest.raises(UnsupportedOpError):
        assert sys.getswitchinterval() < before
        hlo_disc.compile(lambda x: jnp.fft.fft(x), "c64[n]", target="cuda", fallback=False)
    assert sys.getswitchinterval() == before
    for thread in threading.enumerate():
        if thread.name.startswith("hlo_disc-llvm"):  # nobody waits for it to end
            thread.join(60)
            assert not thread.is_alive()
    first, second = workers.short_turns(), workers.short_turns()  # of two threads
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


def test_a_function_without_code_is_named():
    """A function without code is refused by its name. LLVM would end the process."""
    text = "declare double @j0(double)\n"
    with pytest.raises(UnsupportedOpError, match="the function j0 has no code for GPUs yet; compile for the CPU"):
        gpu.check_functions(text, NVIDIA)


def test_machines_that_round_to_tf32() -> None:
    def rounds(target: str, level: str) -> bool:
        return registry.find(target).generator(level).device.rounds_to_tf32

    assert [rounds("cpu", "avx2"), rounds("cuda", "sm_90"), rounds("rocm", "gfx942")] == [False, True, True]
