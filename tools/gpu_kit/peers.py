"""The same functions by other compilers on this machine, at equal precision: each row of `PEERS` is one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cases
import numpy as np
from kit import HERE, Kit, expected, is_wrong, leaves, off, rates, timed


@dataclass(frozen=True)
class Peer:
    """compiled: a case's function. put, get: an array to where functions run, and back. wait: for all results."""

    version: str
    compiled: Callable[[str], Callable[..., Any]]
    put: Callable[[np.ndarray], Any]
    get: Callable[[Any], np.ndarray]
    wait: Callable[[Any], object]


def _jax(emulated: bool) -> Peer | str:
    """`jax.jit`, for which every shape is a program of its own. f32 in f32, as ours."""
    import jax

    if jax.devices()[0].platform == "cpu" and not emulated:
        return "JAX sees no GPU"
    jax.config.update("jax_default_matmul_precision", "highest")
    return Peer(
        jax.__version__, lambda name: jax.jit(cases.CASES[name].function), jax.device_put, np.asarray,
        jax.block_until_ready,
    )  # fmt: skip


def _torch(emulated: bool) -> Peer | str:
    """`torch.compile` for dynamic shapes. f32 in f32, as ours."""
    import torch
    import torch_programs

    if not torch.cuda.is_available() and not emulated:
        return "torch sees no GPU"
    torch.set_float32_matmul_precision("highest")
    where = "cpu" if emulated else "cuda"

    def put(array: np.ndarray) -> Any:
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(where)
        return torch.from_numpy(array).to(where)

    def compiled(name: str) -> Callable[..., Any]:
        function = torch.no_grad()(torch_programs.PROGRAMS[name])
        return function if emulated else torch.compile(function, dynamic=True)

    return Peer(
        torch.__version__, compiled, put, lambda x: x.float().cpu().numpy(),
        lambda results: None if emulated else torch.cuda.synchronize(),
    )  # fmt: skip


PEERS: dict[str, Callable[[bool], Peer | str]] = {"jax": _jax, "torch": _torch}


def run(kit: Kit, which: str, save: Callable[[Any], object]) -> None:
    """All cases, which are saved one by one: that results are ours at a size, and times."""
    from hlo_disc.saved import read

    try:
        peer = PEERS[which](kit.emulated)
    except ImportError as error:
        peer = str(error)
    if isinstance(peer, str):
        save({"skipped": [peer]})
        return
    found: dict[str, Any] = {"version": peer.version, "cases": {}, "skipped": []}
    for name in kit.cases:
        if kit.is_late:
            found["skipped"].append(f"{name}: no time was left")
            continue
        case, rows = cases.CASES[name], read(HERE / "programs" / f"{name}.disc").inputs
        try:
            found["cases"][name] = _measured(kit, peer, name, case, rows)
        except Exception as error:
            found["skipped"].append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        save(found)
    save(found)


def _measured(kit: Kit, peer: Peer, name: str, case: cases.Case, rows: Sequence[Any]) -> dict[str, Any]:
    function, made = peer.compiled(name), {"times": {}, "skipped": []}  # type: ignore[var-annotated]

    def given(sizes: cases.Sizes) -> list[Any]:
        return cases.nested(rows, [peer.put(array) for array in cases.inputs(rows, sizes)])

    sizes = case.checked[-1]
    made["off"] = off([peer.get(x) for x in leaves(function(*given(sizes)))], expected(name, sizes))
    made["wrong"] = is_wrong(case, made["off"])
    for sizes in [] if kit.emulated else case.timed:
        if kit.is_late:
            made["skipped"].append(f"{cases.key(sizes)}: no time was left")
            continue
        args, last = given(sizes), [None]

        def run(args: list[Any] = args, last: list[Any] = last) -> None:
            last[0] = function(*args)

        made["times"][cases.key(sizes)] = rates(case, sizes, timed(run, lambda: peer.wait(last[0])))  # noqa: B023
    return made
