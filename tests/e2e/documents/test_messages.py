"""The messages about users' mistakes: they come at once, in terms of what the user wrote."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import ArgumentError, ShapeError


def test_features_are_looked_at_before_there_is_a_call():
    for make in (hlo_disc.jit, lambda f, **options: hlo_disc.compile(f, "f32[n]", **options)):
        with pytest.raises(
            ArgumentError, match="unknown target 'cpu:avx3'; the targets are auto, cpu, cpu:avx2, cpu:avx512, "
        ):
            make(lambda x: x, target="cpu:avx3")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, "the stage execute of handler h is a int, must be a capsule"),
        ({}, "stages of handler h are none; they must be of instantiate, prepare, initialize, execute"),
        ({"execute": "h"}, "the stage execute of handler h is a str, must be a capsule"),
        ({"executes": 1, 2: 3}, "the stages of handler h are executes, 2; they must be of"),
    ],
    ids=["number", "nothing", "text", "other stages"],
)
def test_what_is_no_handler(function, message):
    with pytest.raises(ArgumentError, match=message):
        hlo_disc.register_ffi_target("h", function)


@pytest.mark.parametrize("registration", [{}, 3, {"type_id": 1, "type_info": 2}], ids=str)
def test_what_is_no_type_of_a_state(registration):
    with pytest.raises(
        ArgumentError, match="type t must be what jax.ffi.register_ffi_type takes, .*no capsule type_id"
    ):
        hlo_disc.register_ffi_type("t", registration)


def test_a_missing_file_is_one_wherever_it_is_asked_for():
    for read in (hlo_disc.compile, hlo_disc.load):
        with pytest.raises(FileNotFoundError, match="No such file or directory: 'missing.mlir'"):
            read("missing.mlir")


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x.reshape(-1, 4), r"x: float32\[n, 3\].*\n.*\(n, 3\) and \(-1, 4\)"),
        (lambda x: x + jnp.ones(4), r"x: float32\[n, 3\].*\n.*\(n, 3\), \(4,\)"),
    ],
    ids=["reshape", "broadcast"],
)
def test_sizes_that_nobody_passed_are_not_spoken_of(fn, message):
    with pytest.raises(ShapeError, match=message) as caught:
        hlo_disc.compile(fn, "f32[n, 3]")
    assert "at fixed sizes" not in str(caught.value)
    assert "(1, 3)" not in str(caught.value)


def test_sizes_that_were_passed_are():
    with pytest.raises(TypeError, match=r"cannot reshape array of shape \(5, 3\)"):
        hlo_disc.compile(lambda x: x.reshape(-1, 4), np.ones((5, 3), np.float32), dims={"x": "(n, _)"})


def test_what_is_no_matter_of_sizes_is_raised_as_it_is():
    with pytest.raises(AttributeError, match="nothing"):
        hlo_disc.compile(lambda x: x.nothing, "f32[n]")
