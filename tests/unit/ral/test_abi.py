"""The calling convention: what Python says of it is what headers say, and `env` has room for the longest message."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import abi, errors, ral
from hlo_disc.errors import ShapeError
from hlo_disc.library.tables import MOST_RANK
from hlo_disc.ral.contexts.jax import call_in_jit

CORE = Path(abi.__file__).parent / "ral" / "core"
HEADER = (CORE / "ral.h").read_text()


def test_numbers_are_those_of_the_header():
    found = re.findall(r"#define RAL_(\w+) \(?(-?\d+|INT64_C\(1\) << (\d+))\)?$", HEADER, re.MULTILINE)
    defined = {name: 1 << int(bit) if bit else int(value) for name, value, bit in found}
    del defined["VERSION"]  # of the runtime's records, which Python never sees
    assert {name: getattr(abi, name) for name in defined} == defined
    assert len(defined) == HEADER.count("#define RAL_") - 1
    numbers = {name for name, value in vars(abi).items() if name.isupper() and isinstance(value, int)}
    assert numbers == set(defined)


def test_libraries_have_the_ranks_of_their_header():
    header = (Path(abi.__file__).parent / "ral" / "c_api" / "hlo_disc.h").read_text()
    assert re.findall(r"#define HLO_DISC_MAX_RANK (\d+)$", header, re.MULTILINE) == [str(MOST_RANK)]


def test_functions_are_those_of_the_header():
    declared = set(re.findall(r"^[a-z]\w*[ *]+(ral_\w+)\(", HEADER, re.MULTILINE))
    names = {value for value in vars(abi).values() if isinstance(value, str) and value.startswith("ral_")}
    assert names == declared == set(ral.symbols())


def test_errors_of_the_runtime_are_those_of_python():
    declared = re.findall(r"\bk\w+", re.findall(r"enum Class {(.*)}", (CORE / "program/program.h").read_text())[0])
    named = re.findall(r'case Error::(k\w+): return "(\w+)"', (CORE / "program/program.cc").read_text())
    assert [kind for kind, _ in named] == declared
    assert all(issubclass(getattr(errors, name), errors.HloDiscError) for _, name in named)


def test_an_env_layout_has_no_overlaps():
    layout = abi.EnvLayout.of(symbols=2, sizes=3, message=1)
    assert layout == abi.EnvLayout(arena=0, scratch=1, symbols=2, outputs=4, wide=-1, asked=-1, words=7)
    assert abi.EnvLayout.of(symbols=2, sizes=3, message=20) == layout._replace(words=20)
    assert abi.EnvLayout.of(symbols=0, sizes=0, message=0) == abi.EnvLayout(0, 1, 2, 2, -1, -1, 2)
    assert abi.EnvLayout.of(symbols=2, sizes=3, message=1, asked=True) == layout._replace(asked=7, words=8)
    assert abi.EnvLayout.of(symbols=2, sizes=3, message=20, asked=True) == layout._replace(asked=20, words=21)
    both = abi.EnvLayout.of(symbols=2, sizes=3, message=1, asked=True, wide=True)
    assert both == layout._replace(wide=7, asked=8, words=9)


VALUES = 120
ASSERTED = f"""
func.func @main(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, tensor<?x?xf32>) {{
  %c2 = stablehlo.constant dense<2> : tensor<i32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %m = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %ok = stablehlo.compare NE, %n, %c2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%ok, {", ".join(["%n", *["%m"] * (VALUES - 1)])}) {{
    api_version = 2 : i32, has_side_effect = true,
    error_message = "rows {{0}}, columns {{1}} and {{{VALUES - 1}}}, {{not}} {{{VALUES}}}"
  }} : (tensor<i1>, {", ".join(["tensor<i32>"] * VALUES)}) -> ()
  %y = stablehlo.add %x, %x : tensor<?x?xf32>
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y, %t : tensor<?x?xf32>, tensor<?x?xf32>
}}"""


@pytest.fixture(scope="module")
def asserted():
    return hlo_disc.compile(ASSERTED, dims=["n, m"])


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 0), (5, 7), (300, 1000)])
def test_a_message_longer_than_the_sizes_moves_nothing(asserted, shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    y, t = asserted(x)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(t, x.T)
    assert asserted.memory(n=shape[0], m=shape[1]).outputs == 2 * x.nbytes


def test_a_long_message_inside_of_jit_and_from_a_file(asserted, tmp_path):
    x = jnp.arange(12.0).reshape(3, 4)
    y, t = jax.jit(lambda x: call_in_jit(asserted.native, asserted.content, x))(x)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(t, x.T)
    asserted.save(tmp_path / "a.disc")
    again = hlo_disc.load(tmp_path / "a.disc")
    assert again.program.env == asserted.program.env and type(again.program.env) is abi.EnvLayout
    np.testing.assert_array_equal(again(np.asarray(x))[1], x.T)


def test_a_long_message_is_told(asserted):
    with pytest.raises(ShapeError, match=r"rows 2, columns 9 and 9, \{not\} \{120\}$"):
        asserted(np.ones((2, 9), np.float32))
    assert asserted(np.ones((3, 9), np.float32))[0].shape == (3, 9)
