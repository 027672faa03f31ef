"""The tests that do not apply to an emulated target, and why: `pytest --target` expects these errors of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from subprocess import CalledProcessError

import pytest

from hlo_disc.errors import FallbackWarning, UnsupportedOpError


@dataclass(frozen=True)
class Inapplicable:
    """Tests that do not apply.

    reason: why. error: what comes of it; None for tests that are not run. tests: all of them fail, but of whole files
    only most. The first row that names a test counts.
    """

    reason: str
    error: type[Exception] | tuple[type[Exception], ...] | None
    tests: tuple[str, ...]


FOR_GPUS: Sequence[Inapplicable] = (
    Inapplicable(
        "it is refused for the library function first",
        AssertionError,
        ("test_linalg.py::test_hessenberg_needs_a_size_that_is_a_number",),
    ),
    Inapplicable(
        "library functions run on the CPU only",
        (UnsupportedOpError, FallbackWarning),
        (
            "test_linalg.py",
            "test_complex.py::test_programs[[]fourier[]]",
            "test_complex.py::test_programs[[]solve[]]",
            *(
                f"test_jax_programs.py::test_right_at_every_size[[]{name}[]]"
                for name in ("fft", "cholesky", "solve", "qr", "svd", "eigh")
            ),
            "test_bad_programs.py::test_call[[]custom_call @lapack_spotrf_ffi*",
            "test_executable.py::test_no_field_of_the_header_can_be_missing_or_of_another_type",
        ),
    ),
    Inapplicable(
        "the same, of a function that then runs through jax.jit",
        AssertionError,
        (
            "test_bad_programs.py::test_refused[[]library-*no_such_handler*",
            *(
                f"test_size_questions.py::test_right_at_every_size[[]{name}[]]"
                for name in (
                    "linear system",
                    "rows or columns in QR",
                    "pivots in QR",
                    "real numbers of a spectrum",
                    "solve",
                    "a tolerance",
                    "numpy's maximum, in JAX",
                    "length of a transform",
                )
            ),
        ),
    ),
    Inapplicable("callbacks run on the CPU only", None, ("test_callbacks.py",)),
    Inapplicable("XLA does not run programs for GPUs yet", None, ("test_repeated_calls.py",)),
    Inapplicable(
        "the XLA of the tests is that of the CPU, where it does not run programs for GPUs: see test_device_ffi.py",
        (AssertionError, RuntimeError, UnsupportedOpError, FallbackWarning),
        (
            "test_jit_face.py::test_other_shardings_run_through_jax",
            "test_complex.py::test_arguments_and_results",
            "test_static_data.py::test_transformations[[]jit[]]",
            "test_in_jit.py::test_calls_in_jit_are_counted_apart",
            "test_in_jit.py::test_equal_functions_are_counted_each_for_itself",
            "test_size_questions.py::test_inside_jax_jit",
            "test_jit_settings.py::test_64_bit_types_inside_jax_jit",
        ),
    ),
    Inapplicable(
        "another process does not know the emulated GPUs",
        (AssertionError, CalledProcessError),
        (
            "test_in_jit.py::test_the_persistent_cache_of_jax_serves_other_processes",
            "test_cli.py::test_memory_that_cannot_be_had",
            "test_cli.py::test_a_reader_that_has_enough",
            "test_jit_face.py::test_another_process_reads_the_pickle",
            "test_jit_settings.py::test_a_device_and_a_mesh",
        ),
    ),
    Inapplicable("it names its target", AssertionError, ("test_jit_face.py::test_an_executable_on_one_line",)),
    Inapplicable(
        "no weights are packed",
        (AssertionError, TypeError),
        (
            "test_jit_face.py::test_a_deleted_array_is_refused_as_by_jax",
            "test_jit_face.py::test_a_packed_weight_may_be_donated",
            "test_control.py::test_weights_in_a_loop_are_packed",
            "test_control.py::test_an_array_has_a_packed_form_for_each_product_that_reads_it",
            "test_control.py::test_a_closed_over_weight_is_one_packed_constant",
        ),
    ),
)

FOR_AARCH64: Sequence[Inapplicable] = (
    Inapplicable(
        "scipy's LAPACK for AArch64 finds other signs and another order, which are as right",
        AssertionError,
        (
            "test_linalg.py::test_every_routine_is_jaxlibs_bit_for_bit",
            *(
                f"test_linalg.py::test_jax[[]{case}[]]"
                for case in ("eig-float32", "eig-float64", "schur-float32", "schur-complex128")
            ),
        ),
    ),
    Inapplicable(
        "memory is the emulated process's",
        AssertionError,
        (
            "test_data_sizes.py::test_no_memory",
            "test_data_sizes.py::test_values_that_share_memory_allocate_it_once",
            "test_threads.py::test_failed_allocations_are_errors_and_leak_nothing",
            "test_threads.py::test_a_failed_allocation_stays_with_its_thread",
        ),
    ),
    Inapplicable(
        "XLA runs programs that are in its own process",
        AttributeError,
        ("test_complex.py::test_arguments_and_results",),
    ),
    Inapplicable(
        "it calls code at an address in this process",
        AttributeError,
        ("test_translate.py::test_exported_host_functions_have_the_c_abi",),
    ),
    Inapplicable(
        "arrays are others there at each call, so that no packed form of one is kept",
        AssertionError,
        (
            "test_control.py::test_weights_in_a_loop_are_packed",
            "test_control.py::test_an_array_has_a_packed_form_for_each_product_that_reads_it",
        ),
    ),
)


def mark(item: pytest.Item, rows: Sequence[Inapplicable]) -> None:
    """Mark a test that one of the rows names."""
    for row in rows:
        whole_file = item.path.name in row.tests
        if whole_file or any(fnmatchcase(item.nodeid, f"*/{test}") for test in row.tests):
            if row.error is None:
                item.add_marker(pytest.mark.skip(reason=row.reason))
            else:
                item.add_marker(pytest.mark.xfail(reason=row.reason, raises=row.error, strict=not whole_file))
            return
