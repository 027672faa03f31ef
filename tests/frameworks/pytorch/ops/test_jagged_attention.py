"""`hlo_disc.torch.jagged_attention` next to PyTorch's attention of each sentence: values, gradients, compiled."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hlo_disc
import hlo_disc.torch
from hlo_disc.torch import jagged_attention

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
LENGTHS = [(3, 7, 5), (1, 30, 2, 9), (130,), (4, 0, 6)]


def sentences(lengths, dtype=torch.float32, heads=2, width=8):
    """Return a leaf (words, heads, width), and the offsets of the sentences.

    Offsets are given: `nested_tensor` makes none of empty sentences.
    """
    offsets = torch.tensor([0, *itertools.accumulate(lengths)])
    rows = torch.randn(int(offsets[-1]), heads, width, dtype=dtype, requires_grad=True)
    return rows, offsets


def nested(rows, offsets):
    return torch.nested.nested_tensor_from_jagged(rows, offsets).transpose(1, 2)


def dense(q, k, v, of_q, of_k, **options):
    """Return the attention of each sentence alone, one sentence behind the other."""
    made = []
    for rows, keys in zip(itertools.pairwise(of_q.tolist()), itertools.pairwise(of_k.tolist()), strict=True):
        parts = (x[slice(*where)].transpose(0, 1)[None] for x, where in ((q, rows), (k, keys), (v, keys)))
        made.append(F.scaled_dot_product_attention(*parts, **options)[0].transpose(0, 1))
    return torch.cat(made)


def check(got, want, leaves, tolerance):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    weights = torch.randn_like(want)
    ours, theirs = (torch.autograd.grad((x * weights).sum(), leaves) for x in (got, want))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.7}])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9), (torch.bfloat16, 2e-2)])
def test_words_see_their_sentence(dtype, tolerance, options):
    for lengths in LENGTHS:
        (q, offsets), (k, _), (v, _) = (sentences(lengths, dtype) for _ in range(3))
        made = jagged_attention(*(nested(x, offsets) for x in (q, k, v)), **options)
        assert (made.layout, made.shape[:2], made.shape[3]) == (torch.jagged, (len(lengths), 2), 8)
        got = made.transpose(1, 2).values()
        check(got, dense(q, k, v, offsets, offsets, **options), (q, k, v), tolerance)


def test_keys_of_other_sentences():
    (q, rows), (k, keys), (v, _) = (sentences(x) for x in ((3, 1, 20), (5, 9, 2), (5, 9, 2)))
    got = jagged_attention(nested(q, rows), nested(k, keys), nested(v, keys)).transpose(1, 2).values()
    check(got, dense(q, k, v, rows, keys), (q, k, v), 1e-5)


def test_sentences_without_keys_or_words():
    (q, rows), (k, keys) = sentences((3, 0, 2)), sentences((0, 4, 2))
    got = jagged_attention(nested(q, rows), nested(k, keys), nested(k, keys)).transpose(1, 2).values()
    assert got[:3].eq(0).all()
    torch.testing.assert_close(got[3:], dense(q[3:], k[4:], k[4:], torch.tensor([0, 2]), torch.tensor([0, 2])))
    none, offsets = sentences((0, 0))
    assert jagged_attention(*[nested(none, offsets)] * 3).values().shape == (2, 0, 8)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        q, k, v = (project(x).unflatten(-1, [2, -1]).transpose(1, 2) for project in self.projections[:3])
        return x + self.projections[3](jagged_attention(q, k, v).transpose(1, 2).flatten(-2)).relu()


def test_it_is_a_part_of_compiled_graphs():
    torch._dynamo.reset()
    torch.manual_seed(0)
    layer = Layer()
    run = torch.compile(layer, backend="hlo_disc", dynamic=True, fullgraph=True, options={"fallback": False})
    before = len(hlo_disc.torch.compilations())
    with warnings.catch_warnings():
        warnings.simplefilter("error", hlo_disc.FallbackWarning)
        for lengths in ((3, 7, 5), (2, 9, 30, 4), (17, 40)):
            x = torch.nested.nested_tensor(
                [torch.randn(n, 16) for n in lengths], layout=torch.jagged, requires_grad=True
            )
            check(run(x).values(), layer(x).values(), tuple(layer.parameters()), 1e-5)
    made = hlo_disc.torch.compilations()[before:]
    assert [(x.kind, len(x.programs), x.left) for x in made] == [("forward", 2, ()), ("backward", 2, ())]


def test_what_is_refused():
    rows, offsets = sentences((3, 4))
    x = nested(rows, offsets)
    with pytest.raises(
        hlo_disc.ArgumentError, match="the key is no jagged nested tensor .*: it has 4 axes, torch.strided"
    ):
        jagged_attention(x, torch.ones(2, 2, 3, 8), x)
    with pytest.raises(hlo_disc.ArgumentError, match="the query is no jagged nested tensor .*: it has 3 axes"):
        jagged_attention(x.transpose(1, 2).flatten(-2), x, x)
    narrow = nested(*sentences((3, 4), width=4))
    with pytest.raises(hlo_disc.ArgumentError, match="batch, heads and width must agree"):
        jagged_attention(narrow, x, x)
    other = nested(*sentences((4, 3)))
    with pytest.raises(hlo_disc.ArgumentError, match="words of the last two"):
        jagged_attention(x, x, other)
    gaps = torch.nested.nested_tensor_from_jagged(rows, offsets, lengths=torch.tensor([2, 4])).transpose(1, 2)
    with pytest.raises(hlo_disc.ArgumentError, match="the query has gaps"):
        jagged_attention(gaps, x, x)
