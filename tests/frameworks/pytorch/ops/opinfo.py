"""PyTorch's own database of ops (OpInfo): each of its samples compiled next to eager mode.

    python tests/frameworks/pytorch/ops/opinfo.py --filter 'nn.functional.*' --dtypes float32,int64 --samples 6

Every sample is one `torch.compile(…, backend="hlo_disc", dynamic=True, fullgraph=True)`, whose whole graph has to be
one program. `--backward` differentiates it. All is in build/opinfo.json. What eager mode cannot do itself is left out,
and what PyTorch cannot trace is listed but not counted. Of ops whose results are random only types are compared.
"""

from __future__ import annotations

import collections
import copy
import fnmatch
import functools
import itertools
import json
import random
import signal
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
RESULTS, KINDS = Path("build/opinfo.json"), Path("build/opinfo-kinds.json")
FAILURES = Path(__file__).with_name("opinfo_failures.txt")
_LIMIT = 150  # seconds of a case
_BATCH = 150  # cases of a process
_ROUNDINGS = 8
# Ops that find one of equal elements, where PyTorch does not say which; where their argument `dim` stands.
_FOUND = {"topk": 1, "kthvalue": 1, "median": 0, "nanmedian": 0, "mode": 0, "sort": 0, "argsort": 0}


def main_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def find(name: str) -> Any:
    return next(op for op in op_db if main_name(op) == name)


def is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def samples(op: Any, dtype: torch.dtype, count: int, gradients: bool) -> list[Any]:
    """Return samples of an op, the same ones each time."""
    torch.manual_seed(0)
    random.seed(0)
    made = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), count))
    for sample in made if op.name in _FOUND else ():
        sample.output_process_fn_grad = functools.partial(found, op.name, sample)
    return made


def found(name: str, sample: Any, result: Any) -> Any:
    """Replace the indices in a result by the elements at these indices."""
    number, line = _FOUND[name], sample.input.detach()
    axis = sample.kwargs.get("dim", sample.args[number] if len(sample.args) > number else -1)
    if name == "argsort":
        return line.gather(axis, result)
    if is_tensor(result):
        return result
    values, where = result
    kept = where.dim() == line.dim()
    there = line.gather(axis, where if kept else where.unsqueeze(axis))
    return values, there if kept else there.squeeze(axis)


def leaves_of(x: Any) -> list[torch.Tensor]:
    return [y for y in torch.utils._pytree.tree_leaves(x) if is_tensor(y)]


def copied(x: Any, dtype: torch.dtype | None = None) -> Any:
    """Copy tensors with their strides; floats, if asked, to another type."""

    def one(y: Any) -> Any:
        if not is_tensor(y):
            return y
        other = dtype if dtype and y.is_floating_point() else y.dtype
        if y.dtype == other and y.is_leaf:
            return copy.deepcopy(y)
        return y.detach().to(other, copy=True).requires_grad_(y.requires_grad)

    return torch.utils._pytree.tree_map(one, x)


def called(fn: Any, sample: Any, backward: bool, dtype: torch.dtype | None = None, seed: int = 2) -> list[Any]:
    """Return all results of a function of a sample, freed of what is arbitrary in them, and gradients."""
    args, kwargs = copied(((sample.input, *sample.args), sample.kwargs), dtype)
    torch.manual_seed(seed)
    result = sample.output_process_fn_grad(fn(*args, **kwargs))
    made = leaves_of(result)
    if not backward:
        return made
    inputs = [x for x in leaves_of((args, kwargs)) if x.requires_grad]
    outputs = [x for x in made if x.requires_grad]
    if not outputs or not inputs:
        return made
    torch.manual_seed(1)
    weights = [torch.randn(x.shape, dtype=x.dtype) for x in outputs]  # of any order in memory
    return [x.detach() for x in made] + list(torch.autograd.grad(outputs, inputs, weights, allow_unused=True))


def compiled(fn: Any, backend: str) -> Any:
    whole = {"options": {"fallback": False}} if backend == "hlo_disc" else {}
    return torch.compile(fn, backend=backend, dynamic=True, fullgraph=True, **whole)


def prepare() -> None:
    """Let PyTorch's sample functions do nothing but their op: Dynamo refuses the rest."""

    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
    for module in [x for name, x in sys.modules.items() if name.startswith("torch.testing._internal")]:
        if hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = _called  # type: ignore[attr-defined]


def _called(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def is_random(fn: Any, sample: Any, backward: bool, expected: list[Any]) -> bool:
    """Return whether another seed gives other results."""
    try:
        compare(called(fn, sample, backward, seed=3), expected, False)
    except AssertionError:
        return True
    return False


def check(name: str, dtype: str, count: int, backward: bool, kind: str | None = None) -> dict[str, Any]:
    """Compare an op's samples with eager mode. Return a row: its status is ok, or the first error's kind.

    Samples that PyTorch cannot trace itself, or of which its graph is wrong, are left out. If there are no others, the
    status of the row is "torch".
    """
    prepare()
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT, 10)  # again and again: a callback may swallow what is raised
    op, start, done, theirs = find(name), time.perf_counter(), 0, ""
    row: dict[str, Any] = {"op": name, "dtype": dtype, "backward": backward, "status": "nothing", "native": kind}

    def fn(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    torch._dynamo.reset()
    for sample in samples(op, getattr(torch, dtype), count, backward):
        try:
            expected = called(fn, sample, backward)
        except Exception:
            continue
        if row["native"] is None:
            row["native"] = native(fn, sample, backward)
        drawn = "empty" in name or is_random(fn, sample, backward, expected)
        try:
            got = called(compiled(fn, "hlo_disc"), sample, backward)
            exact = functools.partial(called, fn, sample, backward, torch.float64)
            compare(got, expected, drawn, exact)
            done += 1
        except Exception as error:
            inner = getattr(error, "inner_exception", None) or error
            message = f"{type(inner).__name__}: {inner}"[:1000]
            if fails_in_torch(fn, sample, backward, expected, drawn):
                theirs = theirs or message
                continue
            row |= {"status": "failed", "error": message, "sample": str(sample)[:600]}
            row["trace"] = "".join(traceback.format_exception(inner)[-3:])[-1500:]
            break
    if row["status"] != "failed":
        row |= {"status": "ok"} if done else {"status": "torch", "error": theirs} if theirs else {}
    signal.setitimer(signal.ITIMER_REAL, 0)
    return row | {"samples": done, "seconds": time.perf_counter() - start}


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"it takes more than {_LIMIT} s")


def fails_in_torch(fn: Any, sample: Any, backward: bool, expected: list[Any], drawn: bool) -> bool:
    """Return whether the same graph, run op by op without this compiler, fails."""
    torch._dynamo.reset()
    try:
        compare(called(compiled(fn, "aot_eager"), sample, backward), expected, drawn)
    except Exception:
        return True
    finally:
        torch._dynamo.reset()
    return False


def compare(got: list[Any], expected: list[Any], drawn: bool, exact: Any = None) -> None:
    """Compare results.

    drawn: they are random numbers, or memory that nobody has written, so that only types can be the same. exact:
    computes the results in f64. What is not close may be as far from those as eager mode's results are.
    """
    if len(got) != len(expected):
        raise AssertionError(f"{len(got)} results in place of {len(expected)}")
    truth = None
    for i, (x, y) in enumerate(zip(got, expected, strict=True)):
        if x is None or y is None:
            assert x is y, "a gradient that is there in one of both"
        elif drawn:
            assert (x.shape, x.dtype) == (y.shape, y.dtype)
        else:
            try:
                torch.testing.assert_close(x, y, equal_nan=True, check_stride=False)
            except AssertionError:
                if exact is None or not (y.is_floating_point() or y.is_complex()) or x.shape != y.shape:
                    raise
                truth = truth or exact()
                if not as_near(x, y, truth[i]):
                    raise


def as_near(x: torch.Tensor, y: torch.Tensor, truth: torch.Tensor) -> bool:
    """Return whether the error is at most twice that of eager mode, or a few roundings. Infinities and NaN agree."""
    wide = [z.detach().to(torch.complex128 if z.is_complex() else torch.float64) for z in (x, y, truth)]
    finite = wide[1].isfinite() & wide[2].isfinite()
    if not torch.equal(x.isfinite() & finite, finite):
        return False
    same = torch.where(finite, torch.zeros_like(wide[0]), wide[0])
    torch.testing.assert_close(same, torch.where(finite, same, wide[1]), equal_nan=True)
    a, b, c = (torch.where(finite, z, torch.zeros_like(z)) for z in wide)
    if not a.numel():
        return True
    ours, eager = (a - c).abs().max(), (b - c).abs().max()
    return bool(ours <= max(2 * eager, _ROUNDINGS * torch.finfo(y.dtype).eps * c.abs().max()))


def native(fn: Any, sample: Any, backward: bool) -> str:
    """Return how Inductor would compile it: "native", "fallback" where it would call an op of ATen's, "random"."""
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

    traced = aot_autograd(fw_compiler=capture, bw_compiler=capture, decompositions=select_decomp_table())
    try:
        called(torch.compile(fn, backend=traced, fullgraph=True, dynamic=True), sample, backward)
    except Exception:
        return "fallback"
    finally:
        torch._dynamo.reset()
    return "random" if "random" in kinds else "fallback" if kinds else "native"


def cases(pattern: str, dtypes: list[str], backward: bool) -> Iterator[tuple[str, str]]:
    for op in op_db:
        if not any(fnmatch.fnmatch(main_name(op), part) for part in pattern.split(",")):
            continue
        for dtype in dtypes:
            supported = op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
            if getattr(torch, dtype) in supported and (op.supports_autograd or not backward):
                yield main_name(op), dtype


def shuffled(chosen: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return cases in a random order that is always the same."""
    return random.Random(0).sample(chosen, len(chosen))


def run(
    chosen: list[tuple[str, str]], count: int, backward: bool, jobs: int, kinds: bool = True
) -> Iterator[dict[str, Any]]:
    """Run each case in a worker process, which is started anew after a crash."""
    left, known = collections.deque(chosen), known_kinds()
    other = None if kinds else "unknown"
    while left:
        batch = [left.popleft() for _ in range(min(_BATCH * jobs, len(left)))]
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(check, *x, count, backward, known.get(kind_key(*x, backward), other)) for x in batch]
            for number, (case, future) in enumerate(zip(batch, waiting, strict=True)):
                try:
                    yield future.result()
                except Exception as error:  # the process died, of one of them
                    if len(batch) == 1:
                        yield {"op": case[0], "dtype": case[1], "backward": backward, "status": "crashed",
                               "error": repr(error), "samples": 0}  # fmt: skip
                    else:
                        for one in batch[number : number + jobs]:
                            yield from run([one], count, backward, 1, kinds)
                        left.extendleft(reversed(batch[number + jobs :]))
                    break


def known_failures() -> set[str]:
    return set(FAILURES.read_text().split("\n")) if FAILURES.exists() else set()


def kind_key(name: str, dtype: str, backward: bool) -> str:
    return f"{name} {dtype}{' backward' if backward else ''}"


def known_kinds() -> dict[str, str]:
    """Return what `native` has found before: to ask PyTorch costs as much as compiling."""
    return json.loads(KINDS.read_text()) if KINDS.exists() else {}


def remember(rows: list[dict[str, Any]]) -> None:
    found = {
        kind_key(x["op"], x["dtype"], x["backward"]): x["native"]
        for x in rows
        if x.get("native") not in (None, "unknown")
    }
    KINDS.write_text(json.dumps(known_kinds() | found, indent=0, sort_keys=True))


def keep_failures(rows: list[dict[str, Any]]) -> None:
    """Write these cases that are not ok to the list. Entries of other cases stay."""
    keys = {kind_key(x["op"], x["dtype"], x["backward"]): x["status"] for x in rows}
    kept = {key for key in known_failures() if key and key not in keys}
    FAILURES.write_text("\n".join(sorted(kept | {key for key, status in keys.items() if status != "ok"})) + "\n")


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return a summary by type, of all ops and of those that Inductor generates itself."""
    lines = []
    tried = [row for row in rows if row["status"] not in ("nothing", "torch")]
    for dtype in (*dict.fromkeys(row["dtype"] for row in rows), "all types"):
        kept = [row for row in tried if dtype in (row["dtype"], "all types")]
        parts = []
        for what, some in (("", kept), ("of Inductor's own ", [x for x in kept if x.get("native") == "native"])):
            ok = sum(row["status"] == "ok" for row in some)
            parts.append(f"{what}{ok} of {len(some)} cases ok ({100 * ok / max(len(some), 1):.1f} %)")
        left = sum(row["status"] == "torch" and dtype in (row["dtype"], "all types") for row in rows)
        lines.append(f"{dtype}: {', '.join(parts)}; {left} that PyTorch cannot trace itself")
    return lines


@click.command()
@click.option("--filter", "pattern", default="*", help="names of ops, with * in them, separated by commas")
@click.option("--dtypes", default=",".join(DTYPES))
@click.option("--samples", "count", default=6)
@click.option("--backward", is_flag=True)
@click.option("--jobs", default=1)
@click.option("--draw", default=0, help="so many cases, drawn with a fixed seed")
@click.option("--kinds/--no-kinds", default=True, help="ask how Inductor would compile each, which takes as long again")
@click.option("--failures", is_flag=True, help="keep what fails in the list of known failures, of these cases")
@click.option("--out", default=str(RESULTS))
def main(
    pattern: str, dtypes: str, count: int, backward: bool, jobs: int, draw: int, kinds: bool, failures: bool, out: str
) -> None:
    """Compile PyTorch's ops, and list what is not as in eager mode."""
    chosen = list(cases(pattern, dtypes.split(","), backward))
    if draw:
        chosen = shuffled(chosen)[:draw]
    Path(out).parent.mkdir(exist_ok=True)
    rows: list[dict[str, Any]] = []
    for row in run(chosen, count, backward, jobs, kinds):
        rows.append(row)
        if row["status"] not in ("ok", "nothing"):
            print(f"{row['op']} {row['dtype']}: {row['status']}: {row['error'].splitlines()[0][:200]}", flush=True)
        if not len(rows) % 20:
            Path(out).write_text(json.dumps(rows, indent=1))
    Path(out).write_text(json.dumps(rows, indent=1))
    remember(rows)
    if failures:
        keep_failures(rows)
    print("\n".join(summary(rows)))
    sys.exit(0)


if __name__ == "__main__":
    main()
