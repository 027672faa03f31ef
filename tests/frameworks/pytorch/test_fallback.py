"""Parts that cannot be compiled stay PyTorch's: an op, the part around it or the graph. One warning says why."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import hlo_disc.torch
from hlo_disc import pipeline
from hlo_disc.errors import CompileError, FallbackWarning
from hlo_disc.import_.aten.rows import HANDLERS

LIBRARY = torch.library.Library("fallback_tests", "DEF")
LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.impl("twice", lambda x: torch.empty_like(x), "Meta")
twice = torch.ops.fallback_tests.twice
torch.library.register_autograd("fallback_tests::twice", lambda _, g: twice(g), lib=LIBRARY)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def check(fn, *calls, warned=1, gradients=False):
    """Check that results are those of eager mode, with so many warnings at lines of this file. Return the warnings."""
    ours = torch.compile(fn, backend="hlo_disc", dynamic=True, fullgraph=True)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", FallbackWarning)
        for args in calls:
            args = [x.requires_grad_() if gradients and x.is_floating_point() else x for x in args]
            got, wanted = ours(*args), fn(*args)
            torch.testing.assert_close(got, wanted, equal_nan=True)
            if gradients:
                found, right = (torch.autograd.grad(x.sum(), args) for x in (got, wanted))
                torch.testing.assert_close(found, right)
    raised = [x for x in raised if issubclass(x.category, FallbackWarning)]
    assert len(raised) == warned
    assert all(x.filename == __file__ and x.lineno for x in raised)
    return [str(x.message) for x in raised]


@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e4m3fn])
def test_arguments_of_a_type_that_there_is_not(dtype, monkeypatch):
    monkeypatch.setattr("hlo_disc.import_.aten.reader.DTYPES", {torch.float32: np.dtype(np.float32)})
    ours = torch.compile(lambda x, y: (x[1:], y + 1), backend="hlo_disc", dynamic=True)
    for n in (3, 5):
        x, y = torch.ones(n).to(dtype), torch.randn(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = ours(x, y)
        assert torch.equal(got[0].to(torch.complex64), x[1:].to(torch.complex64)) and torch.equal(got[1], y + 1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: twice(x.flatten(0, 1)).sin() + 1,
        lambda x: twice(x.flatten(0, 1)).reshape(x.shape).sin() + x,
        lambda x: twice(torch.cat([x, x])[1:]).sum(0) * x.shape[0],
        lambda x: twice(x.sin().flatten(0, 1)).cos().unflatten(0, x.shape[:2]).mean(1),
        lambda x: twice(x[: x.shape[0] // 2].repeat(3, 1, 1)).exp()[::2] - 1,
        lambda x: twice(x.sin()).flatten(1).softmax(-1),
    ],
    ids=["products", "products again", "sums", "there and back", "quotients", "bare"],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_parts_with_sizes_that_are_no_symbols(fn, gradients):
    calls = [(torch.randn(n, m, 2),) for n, m in [(4, 3), (6, 5), (9, 7)]]
    (message, *_) = check(fn, *calls, warned=2 if gradients else 1, gradients=gradients)
    assert "fallback_tests.twice.default" in message


def test_sizes_of_data_between_parts():
    def fn(x):
        y = x[x > 0]
        return twice(y).sin() * y.shape[0], twice(y.repeat(2))[1:] + 1

    check(fn, (torch.randn(9),), (torch.ones(4),), (-torch.ones(5),), warned=2)


@pytest.mark.parametrize("error", [RuntimeError("no"), AssertionError(), NotImplementedError("sym"), RecursionError()])
def test_a_bug_of_a_handler_is_none_of_the_program(error, monkeypatch):
    def fails(*_, **__):
        raise error

    monkeypatch.setitem(HANDLERS, "aten.sin.default", fails)
    (message,) = check(lambda x: (x + 1).sin() * 2, (torch.randn(3),), (torch.randn(5),))
    assert message.startswith("aten.sin.default at ") and type(error).__name__ in message
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="aten.sin.default"):
        torch.compile(lambda x: x.sin(), backend="hlo_disc", options={"fallback": False})(torch.ones(3))


def test_a_bug_of_the_compiler_is_none_of_the_program(monkeypatch):
    compile_ = pipeline.compile_for_call

    def fails(read, options, *sizes):
        graph = read()
        if any(op.name == "sine" for op in graph.ops):
            raise CompileError("groups wait for each other")
        return compile_(graph, options, *sizes)

    monkeypatch.setattr(pipeline, "compile_for_call", fails)
    (message,) = check(lambda x: x.sin() * 2, (torch.randn(3),), (torch.randn(5),))
    assert "groups wait for each other" in message and "aten.sin.default" in message
    first, second = check(lambda x: twice((x + 1).sin()).cos(), (torch.randn(3),), (torch.randn(5),), warned=2)
    assert "twice" in first and "2 ops from aten.add.Tensor" in second
    assert len(hlo_disc.torch.compilations()[-1].programs) == 1  # the cosine
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="wait for each other"):
        torch.compile(lambda x: x.sin(), backend="hlo_disc", options={"fallback": False})(torch.ones(3))


def test_a_backward_graph_is_compiled_when_it_runs():
    compiled = torch.compile(lambda x, y: (x @ y).tanh().flatten(), backend="hlo_disc", dynamic=True)
    before = len(hlo_disc.torch.compilations())
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    result = compiled(x, y)
    assert [c.kind for c in hlo_disc.torch.compilations()[before:]] == ["forward"]
    for _ in range(2):
        (got,) = torch.autograd.grad(result.sum(), x, retain_graph=True)
    assert [c.kind for c in hlo_disc.torch.compilations()[before:]] == ["forward", "backward"]
    torch.testing.assert_close(got, torch.autograd.grad((x @ y).tanh().sum(), x)[0])


def test_a_backward_graph_that_cannot_be_compiled(monkeypatch):
    monkeypatch.delitem(HANDLERS, "aten.cos.default")
    messages = check(lambda x: x.sin() * 3, (torch.randn(3),), (torch.randn(5),), gradients=True)
    assert messages[0].startswith("aten.cos.default(float32[s")


def test_modes_of_inductor_say_nothing_here():
    x = torch.randn(3)
    for mode in ("reduce-overhead", "max-autotune"):
        assert torch.equal(torch.compile(torch.neg, backend="hlo_disc", mode=mode)(x), -x)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="mode='fast' is none of PyTorch's"):
        torch.compile(lambda x: x + 1, backend="hlo_disc", mode="fast")(x)


def test_an_executable_as_an_op_is_no_fallback():
    """Programs lie around the op. Nothing stays PyTorch's, and nothing is warned of."""
    executable = hlo_disc.compile(lambda x: x * 3, "f32[n, 4]")
    triple = hlo_disc.torch.op(executable, "tests_triple")
    run = torch.compile(
        lambda x: triple(x.sin() + 1)[0].cos() * 2, backend="hlo_disc", dynamic=True, options={"fallback": False}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", hlo_disc.FallbackWarning)
        for n in (3, 7):
            x = torch.randn(n, 4)
            torch.testing.assert_close(run(x), ((x.sin() + 1) * 3).cos() * 2)
    made = hlo_disc.torch.compilations()[-1]
    assert (len(made.programs), made.left) == (2, ())
    strict = torch.compile(lambda x: triple(twice(x))[0], backend="hlo_disc", dynamic=True, options={"fallback": False})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"UnsupportedOpError: fallback_tests.twice"):
        strict(torch.ones(3, 4))
    left = torch.compile(lambda x: triple(twice(x.sin()))[0] + 1, backend="hlo_disc", dynamic=True)
    with pytest.warns(hlo_disc.FallbackWarning, match="twice"):
        torch.testing.assert_close(left(torch.ones(3, 4)), torch.ones(3, 4).sin() * 6 + 1)
