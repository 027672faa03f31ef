"""Samples of the cases of a test."""

import depth
import pytest


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("inner", range(1, 13))
def test_a_sample_has_all_values_of_each_parameter(inner: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "full", False)
    outer = 4 * step
    kept = [number for number in range(outer * inner) if depth.is_kept(number, step)]
    assert {number % inner for number in kept} == set(range(inner))
    assert {number // inner for number in kept} == set(range(outer)) or inner < 2 * step
    assert abs(len(kept) - outer * inner / step) <= 2


def test_each_case_has_a_level_and_each_level_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "full", False)
    assert depth.crossed("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    monkeypatch.setattr(depth, "full", True)
    assert depth.crossed("ab", [1, 2]) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
