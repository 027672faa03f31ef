"""PyTorch's own database of ops (OpInfo): each of its samples compiled next to eager mode.

    python tests/frameworks/pytorch/opinfo.py --filter 'nn.functional.*' --dtypes float32,int64 --samples 6

Every sample is one `torch.compile(…, backend="hlo_disc", dynamic=True, fullgraph=True)`, whose whole graph has to be
one program. `--backward` differentiates it. All is in build/opinfo.json. What eager mode cannot do itself is left out.
Of ops whose results are random only types are compared.
"""

from __future__ import annotations

import collections
import fnmatch
import itertools
import json
import random
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import torch
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = ("float32", "float64", "int64", "bool", "bfloat16")
RESULTS = Path("build/opinfo.json")


def main_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def find(name: str) -> Any:
    return next(op for op in op_db if main_name(op) == name)


def is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def samples(op: Any, dtype: torch.dtype, count: int, gradients: bool) -> list[Any]:
    """The same ones each time."""
    torch.manual_seed(0)
    random.seed(0)
    return list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), count))


def flat(result: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if is_tensor(x)]


def differentiated(fn: Any, result: Any, inputs: list[torch.Tensor]) -> list[Any]:
    """Gradients of the sum of the results, weighted."""
    outputs = [x for x in flat(result) if x.requires_grad]
    if not outputs or not inputs:
        return []
    torch.manual_seed(1)
    weights = [torch.randn_like(x) for x in outputs]
    return [x for x in torch.autograd.grad(outputs, inputs, weights, allow_unused=True)]


def check(name: str, dtype: str, count: int, backward: bool) -> dict[str, Any]:
    """What becomes of an op's samples: ok, or the first error and its kind."""
    import hlo_disc.torch  # noqa: F401

    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    op, start, done = find(name), time.perf_counter(), 0
    row: dict[str, Any] = {"op": name, "dtype": dtype, "status": "ok", "native": None, "samples": 0}
    torch._dynamo.reset()
    for sample in samples(op, getattr(torch, dtype), count, backward):
        args = (sample.input, *sample.args)
        leaves = [x for x in torch.utils._pytree.tree_leaves((args, sample.kwargs)) if is_tensor(x) and x.requires_grad]

        def fn(*args: Any, **kwargs: Any) -> Any:
            return op.op(*args, **kwargs)

        try:
            torch.manual_seed(2)
            expected = fn(*args, **sample.kwargs)
            expected = flat(expected) + (differentiated(fn, expected, leaves) if backward else [])
        except Exception:
            continue
        if row["native"] is None:
            row["native"] = native(fn, args, sample.kwargs)
        try:
            whole = {"fallback": False}
            compiled = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True, options=whole)
            torch.manual_seed(2)
            got = compiled(*args, **sample.kwargs)
            got = flat(got) + (differentiated(fn, got, leaves) if backward else [])
            compare(got, expected, row["native"] == "random")
            done += 1
        except Exception as error:
            inner = getattr(error, "inner_exception", None) or error
            row |= {"status": "failed", "error": f"{type(inner).__name__}: {inner}"[:1000], "sample": str(sample)[:600]}
            row["trace"] = "".join(traceback.format_exception(inner)[-3:])[-1500:]
            break
    if not done and row["status"] == "ok":
        row["status"] = "nothing"
    return row | {"samples": done, "seconds": time.perf_counter() - start}


def compare(got: list[Any], expected: list[Any], is_random: bool) -> None:
    if len(got) != len(expected):
        raise AssertionError(f"{len(got)} results in place of {len(expected)}")
    for x, y in zip(got, expected, strict=True):
        if x is None or y is None:
            assert x is y, "a gradient that is there in one of both"
        elif is_random:
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
        else:
            low = 2e-2 if y.dtype == torch.bfloat16 else None
            torch.testing.assert_close(x, y, equal_nan=True, rtol=low, atol=low, check_stride=False)


def native(fn: Any, args: Any, kwargs: Any) -> str:
    """How Inductor would compile it: "native", "fallback" where it would call an op of ATen's, "random"."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor import lowering
    from torch._inductor.decomposition import select_decomp_table

    kinds: set[str] = set()

    def capture(module: Any, _: Any) -> Any:
        for node in module.graph.nodes:
            if isinstance(node.target, torch._ops.OpOverload):
                if torch.Tag.nondeterministic_seeded in node.target.tags:
                    kinds.add("random")
                elif node.target in lowering.fallbacks or node.target not in lowering.lowerings:
                    kinds.add("fallback")
        return module.forward

    try:
        traced = torch.compile(
            fn,
            backend=aot_autograd(fw_compiler=capture, decompositions=select_decomp_table()),
            fullgraph=True,
            dynamic=True,
        )
        with torch.no_grad():
            traced(*args, **kwargs)
    except Exception:
        return "fallback"
    return "random" if "random" in kinds else "fallback" if kinds else "native"


def cases(pattern: str, dtypes: list[str], backward: bool) -> Iterator[tuple[str, str]]:
    for op in op_db:
        if not any(fnmatch.fnmatch(main_name(op), part) for part in pattern.split(",")):
            continue
        for dtype in dtypes:
            supported = op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
            if getattr(torch, dtype) in supported and (op.supports_autograd or not backward):
                yield main_name(op), dtype


def run(chosen: list[tuple[str, str]], count: int, backward: bool, jobs: int) -> Iterator[dict[str, Any]]:
    """Each case in a worker process, anew after a crash."""
    left = collections.deque(chosen)
    while left:
        batch = [left.popleft() for _ in range(min(40 * jobs, len(left)))]
        seen = set()
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            waiting = {case: pool.submit(check, *case, count, backward) for case in batch}
            for case, future in waiting.items():
                try:
                    yield future.result(timeout=300)
                except TimeoutError:
                    yield {"op": case[0], "dtype": case[1], "status": "failed", "error": "TimeoutError", "samples": 0}
                except Exception as error:  # the process died, of one of them
                    if not seen and len(batch) == 1:
                        yield {"op": case[0], "dtype": case[1], "status": "crashed", "error": repr(error), "samples": 0}
                    else:
                        for one in batch[batch.index(case) :]:
                            yield from run([one], count, backward, 1)
                    break
                seen.add(case)


@click.command()
@click.option("--filter", "pattern", default="*", help="names of ops, with * in them, separated by commas")
@click.option("--dtypes", default=",".join(DTYPES))
@click.option("--samples", "count", default=6)
@click.option("--backward", is_flag=True)
@click.option("--jobs", default=1)
@click.option("--draw", default=0, help="so many cases, drawn with a fixed seed")
@click.option("--out", default=str(RESULTS))
def main(pattern: str, dtypes: str, count: int, backward: bool, jobs: int, draw: int, out: str) -> None:
    """Compile PyTorch's ops, and list what is not as in eager mode."""
    chosen = list(cases(pattern, dtypes.split(","), backward))
    if draw:
        chosen = random.Random(0).sample(chosen, min(draw, len(chosen)))
    rows = []
    for row in run(chosen, count, backward, jobs):
        rows.append(row)
        if row["status"] not in ("ok", "nothing"):
            print(f"{row['op']} {row['dtype']}: {row['error'].splitlines()[0][:200]}", flush=True)
    Path(out).parent.mkdir(exist_ok=True)
    Path(out).write_text(json.dumps(rows, indent=1))
    tried = [row for row in rows if row["status"] != "nothing"]
    for title, kept in (
        ("all", tried),
        ("that Inductor generates itself", [row for row in tried if row.get("native") == "native"]),
    ):
        ok = sum(row["status"] == "ok" for row in kept)
        print(f"{ok} of {len(kept)} cases {title}: {100 * ok / max(len(kept), 1):.1f} %")
    sys.exit(0)


if __name__ == "__main__":
    main()
