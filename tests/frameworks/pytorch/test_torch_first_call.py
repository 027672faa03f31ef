"""The first call of a graph compiles the kernels that it takes; the others are made when they are needed, or later."""

import subprocess
import sys
import threading
import time

import child
import depth
import pytest
import torch

import hlo_disc.torch
from hlo_disc.compiled import deferred
from hlo_disc.import_.aten.imported import Interface

pytestmark = pytest.mark.usefixtures("all_kernels_built")  # kernels that are found are not deferred


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.fixture
def on_demand(monkeypatch):
    """Let no thread make what is deferred."""
    monkeypatch.setattr(deferred.background, "add", lambda kernels: kernels.packs_inputs.open())


def compiled(f, **options):
    return torch.compile(f, backend="hlo_disc", dynamic=True, options={"cache": "", **options})


def sums(x):
    """Return sums of columns, which have four kernels: for few or many columns, for few or many rows."""
    return x.sum(0)


def counts(made=None):
    made = made or hlo_disc.torch.compilations()[-1]
    return made.deferred_kernels, made.later_kernels


def test_a_call_makes_the_kernels_that_it_launches(on_demand):
    f, whole = compiled(sums), compiled(lambda x: x.sum(0), defer_kernels=False)
    assert torch.equal(whole(torch.ones(8, 5)), torch.full((5,), 8.0)) and counts() == (0, 0)
    wanted = [((8, 5), 3, 0), ((513, 5), 2, 1), ((512, 5), 2, 1), ((512, 17), 1, 2), ((513, 17), 0, 3), ((9, 5), 0, 3)]
    f(torch.randn(8, 5))
    made = hlo_disc.torch.compilations()[-1]
    for shape, *expected in wanted:
        x = torch.randn(shape)
        assert torch.equal(f(x), whole(x))
        assert counts(made) == tuple(expected)
    assert made.later_seconds > 0 and hlo_disc.torch.compilations()[-1] is made


USES_JAX = """
import sys
import torch

def run(function):
    compiled = torch.compile(function, backend="hlo_disc", dynamic=True, options={"fallback": False})
    torch.testing.assert_close(compiled(x), function(x))
    print("jax" in sys.modules)

torch.manual_seed(0)
x = torch.rand(3, 4, 5) + 2
run(torch.nn.Sequential(torch.nn.BatchNorm1d(4).eval(), torch.nn.Linear(5, 6), torch.nn.GELU()))
run(lambda x: torch.special.zeta(x, x + 1))
"""


def test_jax_is_imported_for_ops_that_it_traces():
    """To import JAX takes longer than to import PyTorch's reader and the compiler."""
    assert child.python("-c", USES_JAX).split() == ["False", "True"]


def test_a_thread_makes_the_others():
    f = compiled(sums)
    f(torch.randn(8, 5))
    end = time.monotonic() + 300
    while counts()[0]:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert counts() == (0, 3)


def test_a_backward_graph_has_the_sizes_of_its_call(on_demand):
    f = compiled(lambda x, y: (x @ y).tanh().sum(0))
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    for n in (3, 700):
        x = torch.randn(n, 4, requires_grad=True)
        found = torch.autograd.grad(f(x, y).sum(), (x, y))
        torch.testing.assert_close(found, torch.autograd.grad((x @ y).tanh().sum(), (x, y)), rtol=1e-4, atol=1e-4)
    forward, backward = hlo_disc.torch.compilations()[-2:]
    assert backward.kind == "backward" and all(sum(counts(made)) for made in (forward, backward))


def test_numbers_and_seeds_are_inputs_with_sizes(on_demand):
    """Numbers and seeds are inputs with sizes. With one size too few, no kernel would be deferred."""

    def f(x, n, m):
        return torch.nn.functional.dropout(x.sum(0), 0.5) * n + m

    run = compiled(f, fallback=False)
    for n in (7, -3):
        assert run(torch.ones(8, 5), n, 2).shape == (5,)
        assert sum(counts())
    assert compiled(lambda n: torch.arange(n).cumsum(0))(7)[-1] == 21


def test_sizes_that_pytorch_does_not_know():
    unknown = torch.fx.experimental.symbolic_shapes.ShapeEnv().create_unbacked_symint()
    interface = Interface(2, (0,), (1,), (), {}, True, {})
    assert interface.sizes([torch.ones(2, 3), -4]) == [(2, 3), (0, 4), ()]
    assert interface.sizes([torch.ones(2, 3), unknown]) is None
    assert Interface(0, (), (), (), {}, False, {}).sizes([]) == [(0, 0)]


def test_a_graph_of_sizes_of_data_is_whole(on_demand):
    f = torch.compile(lambda x: x[x > 0].tanh().sum(), backend="hlo_disc", dynamic=True, fullgraph=True,
                      options={"cache": ""})  # fmt: skip
    x = torch.randn(30, requires_grad=True)
    (found,) = torch.autograd.grad(f(x), x)
    torch.testing.assert_close(found, torch.autograd.grad(x[x > 0].tanh().sum(), x)[0])
    assert hlo_disc.torch.compilations()[-1].kind == "backward" and counts() == (0, 0)


def test_a_report_waits_for_nothing(on_demand, monkeypatch):
    monkeypatch.setattr(deferred.Deferred, "whole", lambda self: 1 / 0)
    compiled(sums)(torch.randn(8, 5))
    (text,) = hlo_disc.torch.compilations()[-1].programs
    assert "reduce" in text and text in hlo_disc.torch.explain(programs=True)
    assert counts() == (3, 0)


def test_what_may_be_written_is_whole(on_demand):
    made = torch.compile(sums, backend="hlo_disc", dynamic=True, fullgraph=True, options={"cache": ""})
    with torch.no_grad():
        assert made.aot_compile(((torch.ones(8, 5),), {}))(torch.ones(513, 17))[3] == 513
    assert counts() == (0, 0)


def test_many_threads_at_once():
    f, results = compiled(sums), []
    f(torch.randn(8, 5))
    xs = [torch.randn(n, m) for n in (9, 513, 700) for m in (5, 17, 40)]
    threads = [threading.Thread(target=lambda x=x: results.append((x, f(x)))) for x in xs * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 27
    for x, found in results:
        torch.testing.assert_close(found, x.sum(0), rtol=1e-4, atol=1e-4)


PROGRAM = """
import os, torch
f = torch.compile(lambda x: x.sum(0), backend="hlo_disc", dynamic=True, options={"cache": ""})
g = torch.compile(lambda x: (x @ x.T).sum(0), backend="hlo_disc", dynamic=True, options={"cache": ""})
print(f(torch.ones(8, 5))[0].item(), g(torch.ones(8, 5))[0].item(), flush=True)
"""
FORK = """
child = os.fork()
if child == 0:
    os._exit(7 if f(torch.ones(513, 17))[3] == 513 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("text", "printed"), [("", []), (FORK, ["7"])], ids=["end", "fork"])
def test_a_process_may_end_or_fork_right_after_its_first_call(text, printed):
    for _ in range(depth.examples(1, 3)):
        done = subprocess.run([sys.executable, "-c", PROGRAM + text], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout.split()) == (0, ["8.0", "40.0", *printed]), done.stderr
        assert "Error" not in done.stderr and "Fatal" not in done.stderr


def test_inequalities_of_products_are_not_asked_of_calls(on_demand):
    """PyTorch has inequalities of convolutions, of strides and of numbers of elements, and checks them itself."""
    layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.Conv2d(8, 8, 3, 2, 1)).eval()
    with torch.no_grad():
        compiled(layer)(torch.randn(2, 3, 65, 70).contiguous(memory_format=torch.channels_last))
    (text,) = hlo_disc.torch.compilations()[-1].programs
    guards = [line for line in text.splitlines() if line.startswith("guard ")]
    assert guards and not any("*" in line for line in guards), guards
