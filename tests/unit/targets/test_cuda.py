"""Kernels as PTX: for every op of the table, assembled by NVIDIA's assembler where it is installed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence

import depth
import jax
import jax.numpy as jnp
import numpy as np
import ptxas
import pytest
from cases.gpu_programs import ROW_PROGRAMS, function_kernel
from graphs.random_graphs import single_ops
from hand_written import kernel_runner as kernels
from hypothesis import HealthCheck, given, settings
from op_rows import ON_THE_CPU_ONLY, ROWS
from ptxas import assembled, needs_ptxas

import hlo_disc
from hlo_disc import Options, pipeline
from hlo_disc.errors import ArgumentError, CompileError, DeviceError, UnsupportedOpError
from hlo_disc.targets import registry
from hlo_disc.targets.gpu import assembler, nvptx
from hlo_disc.targets.gpu import vendor as gpu
from hlo_disc.targets.gpu.cuda import NVIDIA
from hlo_disc.targets.math import vecmath
from hlo_disc.targets.translate import memory
from hlo_disc.targets.translate.module import translate


@pytest.fixture
def images() -> Iterator[list[str]]:
    """The PTX of the programs that a test compiles."""
    with ptxas.images() as made:
        yield made


@pytest.fixture
def modules(monkeypatch) -> list[Sequence[gpu.Module]]:
    """Return the modules that drivers would load of the programs that a test compiles."""
    made: list[Sequence[gpu.Module]] = []
    loadable = gpu.loadable
    monkeypatch.setattr(gpu, "loadable", lambda modules: (made.append(modules), loadable(modules))[1])
    return made


@depth.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("level", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_row_kernels_stay_in_registers(name, level, images, tmp_path):
    function, specs = ROW_PROGRAMS[name]
    hlo_disc.compile(function, *specs, target=f"cuda:{level}")
    (image,) = images
    for kernel, found in assembled(image, tmp_path, level).items():
        assert found.registers <= (72 if name == "argmax" else 64) and found.stack == 0, kernel  # numbers and places


@pytest.mark.parametrize("name", ["softmax", "layer norm", "cumulative sum", "map"])
def test_aligned_forms_read_and_write_whole_registers(name, images):
    """Aligned forms access rows of a multiple of four elements in 128 bits at a time, those of bf16 in 64."""
    function, specs = {**ROW_PROGRAMS, "map": (lambda x: jnp.tanh(x) * 2, ("f32[m, n]",))}[name]
    hlo_disc.compile(function, *specs, target="cuda")
    (image,) = images
    made = ptxas.kernels(image)
    aligned = {kernel: text for kernel, text in made.items() if kernel.endswith("_aligned")}
    assert len(aligned) == 3 + any("unstaged" in kernel for kernel in made) and len(made) >= 6
    for kernel, text in made.items():
        accesses = ptxas.global_accesses(text)
        assert len(accesses) > 1
        assert all(".v4.b32" in access for access in accesses) == (kernel in aligned), kernel


DOT_PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "rows and columns": (lambda x, y, z: jax.nn.gelu(x @ y + z), ("f32[m, k]", "f32[k, n]", "f32[n]")),
    "columns transposed": (lambda x, y: x @ y.T, ("f32[m, k]", "f32[n, k]")),
    "rows transposed": (lambda x, y: x.T @ y, ("f32[k, m]", "f32[k, n]")),
    "batch": (lambda x, y: jnp.einsum("bhqd,bhkd->bhqk", x, y), ("f32[b, h, m, k]", "f32[b, h, n, k]")),
}
# Products of small matrices: of 16 bits, which are read as such, whatever the layout.
MATRIX_PROGRAMS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "bf16": (lambda x, y: x @ y, ("bf16[m, k]", "bf16[k, n]")),
    "f16": (lambda x, y, z: jax.nn.gelu(x @ y + z), ("f16[m, k]", "f16[k, n]", "f16[n]")),
    "bf16, columns transposed": (lambda x, y: x @ y.T, ("bf16[m, k]", "bf16[n, k]")),
    "bf16, rows transposed": (lambda x, y: x.T @ y, ("bf16[k, m]", "bf16[k, n]")),
    "bf16, both transposed": (lambda x, y: x.T @ y.T, ("bf16[k, m]", "bf16[n, k]")),
    "bf16, batch": (lambda x, y: jnp.einsum("bhqd,bhkd->bhqk", x, y), ("bf16[b, h, m, k]", "bf16[b, h, n, k]")),
}
# And others, with the tile of a large dot, and the share of its loop that they are at least. Bytes across K are joined
# to words on their way.
WIDE_PROGRAMS: dict[str, tuple[Callable, tuple[str, ...], str, float]] = {
    "tf32": (lambda x, y, z: jax.nn.gelu(x @ y + z), ("f32[m, k]", "f32[k, n]", "f32[n]"), "128x128", 0.28),
    "tf32, columns transposed": (lambda x, y: x @ y.T, ("f32[m, k]", "f32[n, k]"), "128x128", 0.3),
    "tf32, rows transposed": (lambda x, y: x.T @ y, ("f32[k, m]", "f32[k, n]"), "128x128", 0.29),
    "f64": (lambda x, y: x @ y, ("f64[m, k]", "f64[k, n]"), "64x64", 0.38),
    "i8": (lambda x, y: x @ y, ("i8[m, k]", "i8[k, n]"), "128x128", 0.22),
    "i8, columns transposed": (lambda x, y: x @ y.T, ("i8[m, k]", "i8[n, k]"), "128x128", 0.36),
    "u8, rows transposed": (lambda x, y: x.T @ y, ("u8[k, m]", "u8[k, n]"), "128x128", 0.18),
}
# Registers of a thread, by the name of the kernel.
MOST_REGISTERS = (("mma_128x128", 255), ("mma", 168), ("128x128", 168), ("", 112))
LEVELS = ("sm_80", "sm_90")


@depth.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("name, level", depth.crossed([*DOT_PROGRAMS, *MATRIX_PROGRAMS, *WIDE_PROGRAMS], LEVELS))
def test_dots_stay_in_registers(name, level, images, tmp_path):
    function, specs, *_ = {**DOT_PROGRAMS, **MATRIX_PROGRAMS, **WIDE_PROGRAMS}[name]
    with jax.enable_x64(name == "f64"), jax.default_matmul_precision("highest" if name in DOT_PROGRAMS else "default"):
        hlo_disc.compile(function, *specs, target=f"cuda:{level}")
    (image,) = images
    for kernel, found in assembled(image, tmp_path, level).items():
        wide = "mma" in kernel and name in WIDE_PROGRAMS
        most = 255 if wide else next(most for part, most in MOST_REGISTERS if part in kernel)
        assert found.registers <= most and found.stack == 0, (kernel, found)


@pytest.mark.parametrize("name", DOT_PROGRAMS)
def test_the_loop_of_a_dot_multiplies(name, images):
    """Products are most of what a thread does for a block of K. Sizes that are multiples of four have whole vectors."""
    function, specs = DOT_PROGRAMS[name]
    with jax.default_matmul_precision("highest"):
        hlo_disc.compile(function, *specs, target="cuda")
    (image,) = images
    aligned = {kernel: text for kernel, text in ptxas.kernels(image).items() if kernel.endswith("_aligned")}
    assert len(aligned) == 3
    for text in aligned.values():
        accesses = ptxas.global_accesses(text)
        assert accesses and all(re.search(r"\.v[24]\.b32", access) for access in accesses)
        blocks = re.split(r"^\$L__\w+:", text, flags=re.M)
        loop = max(blocks, key=lambda block: block.count("fma.rn.f32"))
        counts = [loop.count(word) for word in ("fma.rn.f32", "ld.shared.v4", "ld.shared")]
        assert counts[0] >= 8 * counts[1] and counts[1] == counts[2] > 0


def innermost(text: str, word: str) -> list[str]:
    """The instructions of the shortest loop with this word."""
    lines = [line.strip() for line in text.splitlines()]
    labels = {line.removesuffix(":"): at for at, line in enumerate(lines) if line.startswith("$L") and line[-1] == ":"}
    jumps = [(at, re.search(r"\bbra\S*\s+(\$\w+);", line)) for at, line in enumerate(lines)]
    loops = [lines[labels[jump[1]] : at + 1] for at, jump in jumps if jump and labels[jump[1]] <= at]
    found = min((loop for loop in loops if any(word in line for line in loop)), key=len)
    return [line.strip() for line in "".join(found).split(";") if line]


@pytest.mark.parametrize("name, level", depth.crossed([*MATRIX_PROGRAMS], LEVELS))
def test_the_loop_of_a_dot_multiplies_matrices(name, level, images):
    """Products of large matrices are a quarter of all instructions. What they read are matrices, too."""
    function, specs = MATRIX_PROGRAMS[name]
    specs = tuple(re.sub(r"[mkn](?=[],])", "4096", spec) for spec in specs)
    hlo_disc.compile(function, *specs, target=f"cuda:{level}")
    (image,) = images
    (text,) = re.findall(r"^\.visible \.entry \w+mma_128x128_aligned\((.*?)^\}", image, re.S | re.M)
    loop = innermost(text, "mma.sync")
    counts = {word: sum(word in line for line in loop) for word in ("mma.sync", "ldmatrix", "ld.shared", "st.shared")}
    assert counts["mma.sync"] >= len(loop) / 4, (counts, len(loop))
    assert counts == {"mma.sync": 64, "ldmatrix": 24, "ld.shared": 0, "st.shared": 8}
    assert all(".v4.b32" in line for line in loop if "st.shared" in line or "ld.global" in line)


@pytest.mark.parametrize("name", WIDE_PROGRAMS)
def test_the_loop_of_a_dot_multiplies_other_matrices(name, images):
    function, specs, tile, share = WIDE_PROGRAMS[name]
    specs = tuple(re.sub(r"[mkn](?=[],])", "4096", spec) for spec in specs)
    with jax.enable_x64(name == "f64"):
        hlo_disc.compile(function, *specs, target="cuda")
    (image,) = images
    (text,) = re.findall(rf"^\.visible \.entry \w+mma_{tile}_aligned\((.*?)^\}}", image, re.S | re.M)
    loop = innermost(text, "mma.sync")
    products = sum("mma.sync" in line for line in loop)
    assert products == 64 and products >= share * len(loop), len(loop)
    assert sum("cvt.rna.tf32" in line for line in loop) == (32 if "tf32" in name else 0)


def test_ptx_of_a_team(images):
    hlo_disc.compile(jax.nn.softmax, "f32[m, n]", target="cuda")
    for words in (".reqntid 256", "shfl.sync.bfly.b32", "bar.sync", "ld.global", "ld.shared", "st.shared"):
        assert words in images[0], words


@depth.sampled(2)
@needs_ptxas
@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_op_is_assembled(name, images, tmp_path):
    @settings(max_examples=depth.examples(1, 3), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(single_ops(name))
    def sweep(graph) -> None:
        images.clear()
        pipeline.compile(graph, Options(target="cuda"))
        for image in images:
            assembled(image, tmp_path)
            assert "__local_depot" not in image  # LLVM's stack

    if name in ON_THE_CPU_ONLY:
        with pytest.raises(UnsupportedOpError, match="run on the CPU only"):
            sweep()
    else:
        sweep()


@needs_ptxas
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_every_function_is_assembled(dtype, images, tmp_path):
    """Each function is assembled in the order of its own operations: a product that is not rounded has other errors."""
    for function in vecmath.FUNCTIONS:
        text = function_kernel(function, dtype, 32)
        image = gpu.machine_code(NVIDIA, translate([kernels.parse(text)], nvptx.MACHINE), "sm_80").decode()
        assembled(image, tmp_path)
        assert not re.findall(r"\b(?:add|sub|mul)\.f(?:32|64)", image), function


@needs_ptxas
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_updates_of_memory_are_one_instruction(dtype, images, tmp_path):
    for kind in memory.ATOMICS:
        text = f"""
          gpu.module @kernels {{
            gpu.func @k(%a: memref<?x{dtype}>, %x: {dtype}) kernel attributes {{
                known_block_size = array<i32: 32, 1, 1>}} {{
              %i = gpu.thread_id x
              %old = memref.atomic_rmw {kind} %x, %a[%i] : ({dtype}, memref<?x{dtype}>) -> {dtype}
              gpu.return
            }}
          }}"""
        image = gpu.machine_code(NVIDIA, translate([kernels.parse(text)], nvptx.MACHINE), "sm_80").decode()
        assembled(image, tmp_path)
        assert len(re.findall(r"\b(?:atom|red)\.", image)) == 1 and "cas" not in image, kind


@needs_ptxas
def test_each_kernel_is_a_module(modules, tmp_path, monkeypatch):
    """A function that is not inlined is in each kernel that calls it, however many kernels LLVM has at once."""

    def function(x, y):
        return x**y, jax.nn.softmax(x) ** 2.5

    made = {}
    for batch in (0, 1, 2) if depth.full else (0, 2):
        monkeypatch.setattr(gpu.GpuGenerator, "batch", batch)
        with jax.enable_x64(True):
            hlo_disc.compile(function, "f64[m, n]", "f64[m, n]", target="cuda")
        texts = {m.kernels: m.forms[0].rstrip(b"\0").decode() for m in modules.pop()}
        assert sum(".func" in ptx for ptx in texts.values()) >= 2
        made[batch] = {name: assembled(ptx, tmp_path)[name] for (name,), ptx in texts.items()}
    assert all(kernels == made[0] for kernels in made.values()) and len(made[0]) > 6


def test_levels():
    with pytest.raises(
        ArgumentError, match="unknown target 'cuda:sm_10'; the targets are .*, cuda, cuda:sm_80, cuda:sm_90, "
    ):
        hlo_disc.compile(lambda x: x, "f32[n]", target="cuda:sm_10")
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="cuda:sm_90")
    assert executable.program.features[0] == "sm_90"


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="needs a machine without a GPU")
def test_without_a_driver_a_program_can_be_compiled_and_saved(tmp_path):
    executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target="cuda")
    executable.save(tmp_path / "x.disc")
    with pytest.raises(DeviceError, match="there is no driver of a GPU: libcuda.so.1"):
        hlo_disc.load(tmp_path / "x.disc")(np.ones(3, np.float32))


def test_ptx_is_kept_as_it_is(images):
    executable = hlo_disc.compile(lambda x: jnp.tanh(x) + 1, "f32[n]", target="cuda")
    (image,) = images
    for entry in re.findall(r"^\.visible \.entry .*?^\}\n", image, re.M | re.S):
        assert entry.encode() + b"\0" in executable.program.object


@needs_ptxas
def test_a_level_has_machine_code(modules, monkeypatch):
    """Machine code is before the PTX. Without an assembler there is PTX alone: to the cache that is another program."""

    def forms(target: str) -> tuple[list[tuple[bool, ...]], str]:
        """Return which forms of each module are ELF objects, and the whole explanation."""
        executable = hlo_disc.compile(lambda x: jax.nn.softmax(x), "f32[m, n]", target=target)
        made = [tuple(form.startswith(b"\x7fELF") for form in module.forms) for module in modules.pop()]
        return made, executable.explain(full=True)

    both, said = forms("cuda:sm_90")
    assert len(both) > 3 and set(both) == {(True, False)}
    assert "machine code beside what the driver assembles" in said
    assert set(forms("cuda")[0]) == {(False,)}
    made_for = registry.find("cuda").made_for("sm_90")
    monkeypatch.setattr(assembler, "found", tuple)
    assembler.version.cache_clear()
    alone, said = forms("cuda:sm_90")
    assert set(alone) == {(False,)} and "machine code" not in said
    assert made_for != registry.find("cuda").made_for("sm_90")
    assembler.version.cache_clear()


@needs_ptxas
def test_what_the_assembler_refuses():
    with pytest.raises(CompileError, match=r"cannot assemble kernels for sm_90; update it, .*kernels\.ptx, line 4"):
        assembler.assemble(b".version 7.8\n.target sm_90\n.address_size 64\nnothing\n", "sm_90")


@pytest.mark.parametrize("shift", [jax.lax.shift_left, jax.lax.shift_right_logical])
def test_shifts_of_i64_look_at_the_whole_amount(shift, images):
    """LLVM makes one instruction of a shift and its select, and that instruction takes the low word alone."""
    with jax.enable_x64(True):
        hlo_disc.compile(shift, "i64[n]", "i64[n]", target="cuda")
    (image,) = images
    for kernel, text in ptxas.kernels(image).items():
        shifts = len(re.findall(r"\bsh[lr]\.[bu]64\s+%rd\d+, %rd\d+, %r\d+;", text))
        assert shifts and len(re.findall(r"\bselp\.b64\b", text)) >= shifts, kernel


def test_bf16_is_rounded_by_the_gpu(images):
    hlo_disc.compile(lambda x: jnp.exp(x) * 2 + 1, "bf16[n]", target="cuda")
    (image,) = images
    for kernel, text in ptxas.kernels(image).items():
        assert "cvt.rn.bf16x2.f32" in text and "32767" not in text, kernel
