"""A script that writes the examples in docs/internals: `python tools/internals.py`.

The pages follow one program through the compiler. The script runs each stage, and writes its result between two markers
in the page of that stage. Long texts are excerpts: `…` stands for what is left out. A test checks that the pages are
current.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import numpy as np

from hlo_disc import sources
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.passes.rules.rewrite import rewrite
from hlo_disc.dynamic_hlo.passes.simplify import RULES
from hlo_disc.dynamic_hlo.print.dhlo import to_text
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError
from hlo_disc.executable import Executable
from hlo_disc.explain.text import full
from hlo_disc.import_ import jax as import_jax
from hlo_disc.options import Options
from hlo_disc.pipeline import STAGES, Compiled, Formed, Request, compile
from hlo_disc.stitch.scheduling import Step

DIRECTORY = Path(__file__).parent.parent / "docs" / "internals"
PAGES = (
    "1-overview.md",
    "2-reading.md",
    "3-sizes.md",
    "4-rewriting.md",
    "5-fusion.md",
    "6-forms.md",
    "7-kernels.md",
    "8-host-code.md",
    "9-memory.md",
    "10-runtime.md",
)
# One target for all machines that run this, and one thread, so that no text depends on the machine.
OPTIONS = Options(target="cpu:avx2", cache="", threads=1)
SPECS = ("f32[n, d]", "f32[d, 32]", "f32[32]")
STATIC = ("f32[n, 64]", "f32[64, 32]", "f32[32]")  # of a weight without symbols a packed form can be kept
SIZES = ((1, 64), (1000, 64), (1000, 8192), (4096, 8192))  # n and d of calls
CONSTANT = r"= arith\.constant"
# The lines of `main` that are shown: what it reads from env, where values lie in the arena, and the steps.
MAIN = ("func", r"memref\.load", r"memref\.view", "call @", "return", "}")
# The lines that are shown of a function that launches a group: the conditions, and the launches.
STEP = ("func", r"arith\.cmpi", r"arith\.andi", r"scf\.if", r"gpu\.launch_func", "}", "return")
WIDTH = 118
BLOCK = re.compile(r"(<!-- made by tools/internals\.py: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def classify(x: Any, w: Any, b: Any) -> Any:
    """Return the probabilities of 32 classes for each row of `x`."""
    return jax.nn.softmax(x @ w + b)


class Made(NamedTuple):
    """The results of all stages for the example.

    module: as JAX lowered it. read, simpler: the graph as it was read, and after rewriting. last: the last stage's
    result. dumps: the text of each stage, by its name and a suffix. executable: the linked program.
    """

    module: str
    read: Graph
    simpler: Graph
    last: Compiled
    dumps: dict[tuple[str, str], str]
    executable: Executable


def make(specs: tuple[str, ...]) -> Made:
    """Compile the example. Return the results of its stages."""
    modules: list[str] = []
    read_module = import_jax.read_module

    def noted(module: Any, **arguments: Any) -> Graph:
        modules.append(str(module))
        return read_module(module, **arguments)

    with jax.enable_x64(False), patch.object(import_jax, "read_module", noted):
        graph = sources.graph(classify, *specs)
    shown = replace(OPTIONS, dump="kept")  # stages make texts then, which nothing here writes to files
    c: Any = Request(source=graph, options=shown)
    dumps: dict[tuple[str, str], str] = {}
    simpler = graph
    with c.open:
        for stage in STAGES:
            c = stage.run(c)
            dumps |= {(stage.name, suffix): text for suffix, text in stage.dump(c)}
            if stage.name == "rewrite":
                simpler = c.graph
    return Made(modules[-1], graph, simpler, c, dumps, Executable(compile(graph, OPTIONS), OPTIONS))


# ------------------------------------------------------------------------------------------------------------ texts


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


def function(text: str, name: str) -> list[str]:
    """Return the lines of a function of MLIR or LLVM IR, without indentation."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if re.search(rf"(func|define)\b.*@{re.escape(name)}\(", line))
    indent = _indent(lines[start])
    end = next(i for i in range(start, len(lines)) if lines[i].startswith(f"{indent}}}"))
    return [line.removeprefix(indent) for line in lines[start : end + 1]]


def without(lines: Iterable[str], *patterns: str) -> list[str]:
    """Return the lines in which no pattern is found, with one `…` for each run of other lines."""
    return _excerpt(lines, lambda line: not any(re.search(pattern, line) for pattern in patterns))


def only(lines: Iterable[str], *patterns: str) -> list[str]:
    """Return the lines in which a pattern is found, with one `…` for each run of other lines."""
    return _excerpt(lines, lambda line: any(re.search(pattern, line) for pattern in patterns))


def _excerpt(lines: Iterable[str], keep: Callable[[str], bool]) -> list[str]:
    shown: list[str] = []
    for line in lines:
        if keep(line):
            shown.append(line)
        elif not shown or shown[-1].strip() != "…":
            shown.append(f"{_indent(line)}…")
    return shown


def shortened(line: str) -> list[str]:
    """Drop attributes and repeated types from a line of MLIR or LLVM IR. Break it at spaces if it is too long."""
    line = re.sub(r" (kernel )?attributes \{[^}]*\}", "", line)
    line = re.sub(r" \{(llvm|jax|mhlo)\.[^}]*\}", "", line)
    line = re.sub(r' nounwind( "[^"]*"="[^"]*")*( \w+)* \{', " {", line)
    line = re.sub(r" threads in \(%c1, %c1, %c1\)", "", line)
    line = re.sub(r"#gpu.address_space<workgroup>", "fast", line)
    line = re.sub(r"^( *(func\.)?call @\w+\(.*?\)) : .*", r"\1", line)
    line = line.replace("stablehlo.", "").replace(", precision = [DEFAULT, DEFAULT]", "")
    if "func" in line and "memref" in line:
        line = re.sub(r"(%arg\d+): [^,)]*", r"\1", line)
    if "launch_func" in line:
        line = re.sub(r"(%\w+) : [^,)]*", r"\1", line)
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def _fenced(lines: Iterable[str], language: str = "text") -> str:
    return "\n".join([f"```{language}", *(part for line in lines for part in shortened(line)), "```"])


# ----------------------------------------------------------------------------------------------------------- blocks


def _stages() -> str:
    rows = [f"| {i} | {stage.name} | {stage.why} |" for i, stage in enumerate(STAGES)]
    return "\n".join(["| number | stage | the reason for its position |", "| ---: | --- | --- |", *rows])


def _calls(executable: Executable) -> str:
    """Show three calls at different sizes, and one that breaks a guard."""
    lines = []
    for x, w in (((3, 5), (5, 32)), ((1, 64), (64, 32)), ((0, 64), (64, 32)), ((3, 5), (6, 32))):
        arrays = [np.ones(shape, np.float32) for shape in (x, w, (32,))]
        result = ""
        try:
            result = f"a result of shape {executable(*arrays).shape}"
        except ShapeError as error:
            result = f"ShapeError: {error}"
        lines.append(f"x: {x}, w: {w}  →  {result}")
    return _fenced(lines)


def _symbols(graph: Graph) -> str:
    bound = [f"symbol  {name} = {expression}" for name, expression in graph.bindings.items()]
    guards = [f"guard   {guard.lhs} {guard.relation} {guard.rhs}" for guard in graph.guards]
    return _fenced([*bound, *guards])


def _questions() -> str:
    """Show answers of facts, without and with a constraint."""
    n = Dim.symbol("n")
    plain, bounded = ShapeFacts(), ShapeFacts()
    bounded.add_at_most(n, 2048)
    lines = ["| question | no facts | `n <= 2048` is a fact |", "| --- | --- | --- |"]
    for lhs, relation, rhs in (
        (Dim.parse("min(n, 32)"), "<=", 32),
        (n, ">=", 1),
        (32 * n, "<=", 65536),
        (n, ">=", 4096),
    ):
        answers = [facts.holds(lhs, relation, rhs).name.lower() for facts in (plain, bounded)]
        lines.append(f"| is {lhs} {relation} {rhs}? | {' | '.join(answers)} |")
    return "\n".join(lines)


def _fired(graph: Graph) -> str:
    fired: Counter[str] = Counter()
    rewrite(graph, RULES, fired)
    pictures = {rule.name: rule.picture for rule in RULES}
    lines = ["| rule | times | picture |", "| --- | ---: | --- |"]
    return "\n".join([*lines, *(f"| {name} | {count} | `{pictures[name]}` |" for name, count in fired.most_common())])


def _taken(step: Step, n: int, d: int) -> str:
    """Return the kernel of the first choice whose conditions hold."""
    sizes = {"n": Dim.const(n), "d": Dim.const(d)}
    nothing = ShapeFacts()
    for choice, kernel in zip(step.choices, step.kernels, strict=True):
        conditions = (condition.on(step.sized.real).on(lambda d: d.substitute(sizes)) for condition in choice.when)
        if all(condition.truth(nothing) is Truth.YES for condition in conditions):
            return kernel
    raise AssertionError("the last choice applies always")


def _forms(c: Formed) -> str:
    lines = ["| n | d | kernels |", "| ---: | ---: | --- |"]
    for n, d in SIZES:
        taken = [f"`{_taken(step, n, d)}`" for step in c.scheduled.steps.values()]
        lines.append(f"| {n} | {d} | {', '.join(taken)} |")
    return "\n".join(lines)


def _arena(executable: Executable) -> str:
    lines = ["| n | d | bytes |", "| ---: | ---: | ---: |"]
    return "\n".join([*lines, *(f"| {n} | {d} | {executable.memory(n=n, d=d).temporary} |" for n, d in SIZES)])


def _explained(executable: Executable) -> str:
    """Show the text of `explain(full=True)`, without times and sizes of code."""
    text = full(executable.program)
    return _fenced(line for line in text.split("\n") if not line.startswith(("compile", "object")))


def _env(c: Compiled) -> str:
    env, names = c.code.env, {}
    names[env.arena], names[env.scratch] = "bytes of the arena", "bytes of a worker's scratch"
    names |= {env.symbols + i: f"the symbol {name}" for i, name in enumerate(c.code.symbols)}
    sizes = [f"size {axis} of output {i}" for i, v in enumerate(c.graph.outputs) for axis in range(v.rank)]
    names |= {env.outputs + i: text for i, text in enumerate(sizes)}
    rows = [f"| {word} | {names[word]} |" for word in range(env.words)]
    return "\n".join(["| word of `env` | value |", "| ---: | --- |", *rows])


def blocks() -> dict[str, str]:
    """Return the text of every block, by its name."""
    made, static = make(SPECS), make(STATIC)
    kernels, host, code = (made.dumps[key] for key in (("kernels", "mlir"), ("host flow", "mlir"), ("codegen", "ll")))
    # The name of its form; in the LLVM IR of all modules, with the number of its module.
    compiled = next(re.finditer(r"@(kernels\.\d+\.reduce)\(", code))[1]
    return {
        "stages": _stages(),
        "calls": _calls(made.executable),
        "module": _fenced(_begun(function(made.module, "main"), 12, 2), "mlir"),
        "graph": _fenced(to_text(made.read).split("\n")),
        "symbols": _symbols(made.read),
        "questions": _questions(),
        "plan": _fenced(_plan(function(host, "plan")), "mlir"),
        "fired": _fired(made.read),
        "simpler": _fenced(to_text(made.simpler).split("\n")),
        "groups": _fenced(made.dumps["fuse", "txt"].split("\n")),
        "launches": _fenced(made.dumps["schedule", "txt"].split("\n")),
        "static launches": _fenced(static.dumps["schedule", "txt"].split("\n")),
        "forms": _forms(made.last),
        "kernel": _fenced(without(function(kernels, "reduce"), CONSTANT), "mlir"),
        "llvm": _fenced(_loop(function(code, compiled)), "llvm"),
        "main": _fenced(only(function(host, "main"), *MAIN), "mlir"),
        "step": _fenced(only(function(host, "step0"), *STEP), "mlir"),
        "memory": _fenced(made.dumps["memory", "txt"].split("\n")),
        "arena": _arena(made.executable),
        "static memory": _fenced(static.dumps["memory", "txt"].split("\n")),
        "launch": _fenced(_begun(function(code, "step1"), 7, 3), "llvm"),
        "env": _env(made.last),
        "explain": _explained(made.executable),
    }


def _begun(lines: list[str], first: int, last: int) -> list[str]:
    """Return the first lines of a function, and its last ones."""
    return [*lines[:first], "  …", *lines[-last:]]


def _loop(lines: list[str]) -> list[str]:
    """Return the first loop of a function that loads vectors, up to its branch."""
    load = next(i for i, line in enumerate(lines) if "= load <" in line)
    start = max(i for i in range(load) if lines[i].endswith(":"))
    end = next(i for i in range(load, len(lines)) if lines[i].startswith("  br "))
    return lines[start : end + 1]


def _plan(lines: list[str]) -> list[str]:
    """Return the guards, and the code that stores values for `main`."""
    guards = next(i for i, line in enumerate(lines) if "arith.cmpi eq" in line and "%c0_i32" in line)
    stores = ("scf.if", "memref.store", "call @broken", "}", "return")
    return without([*lines[: guards + 1], *only(lines[guards + 1 :], *stores)], CONSTANT)


# ------------------------------------------------------------------------------------------------------------ pages


def filled(text: str, made: dict[str, str]) -> str:
    """Return a page with the current text between its markers. Raises KeyError for a block that has no text."""
    return BLOCK.sub(lambda found: f"{found[1]}{made[found[2]]}\n{found[3]}", text)


if __name__ == "__main__":
    current = blocks()
    for page in PAGES:
        (DIRECTORY / page).write_text(filled((DIRECTORY / page).read_text(), current))
