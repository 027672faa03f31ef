"""torchvision's ops over regions of images, next to what they say point by point."""

from __future__ import annotations

import warnings

import pytest
import torch
import torchvision

from hlo_disc.errors import FallbackWarning

WHOLE = {"fallback": False}
SIZES = [(2, 9, 11, 5), (1, 7, 8, 3), (3, 16, 9, 1), (2, 5, 5, 0)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def regions(count: int, pictures: int) -> torch.Tensor:
    """Return regions of all sizes, some of them partly outside of a picture."""
    corners = torch.rand(count, 2) * 20 - 4
    return torch.cat([torch.randint(0, pictures, (count, 1)), corners, corners + torch.rand(count, 2) * 25], 1)


@pytest.mark.parametrize("aligned", [False, True])
def test_regions_are_cut_into_bins(aligned: bool):
    def cut(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return torchvision.ops.roi_align(x, boxes, (3, 4), 0.5, sampling_ratio=2, aligned=aligned)

    compiled = torch.compile(cut, backend="hlo_disc", dynamic=True, options=WHOLE)
    for pictures, height, width, count in SIZES:
        x, boxes = torch.randn(pictures, 3, height, width), regions(count, pictures)
        torch.testing.assert_close(compiled(x, boxes), cut(x, boxes), rtol=1e-4, atol=1e-5)


def test_how_many_bins_there_are_may_change():
    def cut(x: torch.Tensor, boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
        return torchvision.ops.roi_align(x, boxes, (height, width), 0.5, sampling_ratio=2)

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(cut, backend="hlo_disc", dynamic=True, options=WHOLE)
    x, boxes = torch.randn(2, 3, 9, 11), regions(5, 2)
    for shape in [(3, 4), (7, 6), (2, 9)]:
        torch.testing.assert_close(compiled(x, boxes, *shape), cut(x, boxes, *shape), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_as_many_places_as_a_region_is_large_stay_torchvisions():
    def cut(x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return torchvision.ops.roi_align(x, boxes, (2, 2)) + 1

    x, boxes = torch.randn(2, 3, 9, 8), regions(3, 2)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", FallbackWarning)
        made = torch.compile(cut, backend="hlo_disc", dynamic=True)(x, boxes)
    torch.testing.assert_close(made, cut(x, boxes))
    raised = [x for x in raised if issubclass(x.category, FallbackWarning)]
    assert [str(x.message).split("(")[0] for x in raised] == ["torchvision.roi_align.default"]
    assert "sampling_ratio must be above 0" in str(raised[0].message)


def test_boxes_that_a_better_one_covers_go():
    def kept(boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torchvision.ops.nms(boxes, scores, 0.3) * 2

    compiled = torch.compile(kept, backend="hlo_disc", dynamic=True, fullgraph=True, options=WHOLE)
    for count in (12, 31, 40, 20):  # torchvision tells PyTorch that two at least stay
        boxes, scores = regions(count, 1)[:, 1:], torch.rand(count)
        scores[2:4] = 0.5
        wanted = kept(boxes, scores)
        assert compiled(boxes, scores).equal(wanted)
        assert 2 <= len(wanted) < count
    boxes, scores = regions(30, 1)[:, 1:], torch.rand(30)
    boxes[:9, 2:] = boxes[:9, :2]  # nothing is in them
    scores[3], scores[5:7] = torch.inf, torch.nan
    assert compiled(boxes, scores).equal(kept(boxes, scores))
