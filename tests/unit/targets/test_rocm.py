"""Kernels as code objects for AMD's GPUs: for every op of the table, with what the driver's loader does with them."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import depth
import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import numpy as np
import pytest
from cases.gpu_programs import ROW_PROGRAMS, function_kernel
from graphs.random_graphs import single_ops
from hand_written import kernel_runner as kernels
from hypothesis import HealthCheck, given, settings
from op_rows import ON_THE_CPU_ONLY, ROWS

import hlo_disc
from hlo_disc import Options, pipeline
from hlo_disc.errors import ArgumentError, CompileError, DeviceError, UnsupportedOpError
from hlo_disc.targets.gpu import amdgpu, code_object, rocm
from hlo_disc.targets.gpu import vendor as gpu
from hlo_disc.targets.math import vecmath
from hlo_disc.targets.translate.module import translate

LEVELS = ("gfx90a", "gfx942")
# The processor, in the flags of the ELF header.
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C}
OBJDUMP = shutil.which("llvm-objdump")


@dataclass(frozen=True)
class Code:
    level: str
    relocatable: bytes
    object: bytes
    assembly: str

    def numbers(self, field: str) -> dict[str, int]:
        """Return a number that the metadata has for each kernel."""
        kernels = re.split("amdhsa.kernels:|amdhsa.target:", self.assembly)[1].split("\n  - ")[1:]
        fields = [dict(re.findall(r"\.(\w+): +(\S+)$", kernel, re.M)) for kernel in kernels]
        names = re.findall(r"^    \.symbol: +(\S+)\.kd$", self.assembly, re.M)
        return {name: int(f[field]) for name, f in zip(names, fields, strict=True)}

    def kernels(self) -> dict[str, str]:
        """The assembly of each kernel."""
        return dict(re.findall(r"^(\w+):.*?\n(.*?)^\s+s_endpgm", self.assembly, re.S | re.M))


@pytest.fixture
def codes(monkeypatch) -> list[Code]:
    """The code of the programs that a test compiles."""
    made: list[Code] = []
    compiled, linked = gpu.machine_code, rocm.code_object
    relocatables: list[bytes] = []

    def link(relocatable: bytes) -> bytes:
        relocatables.append(relocatable)
        return linked(relocatable)

    def kept(vendor: gpu.Vendor, text: str, level: str, dump=None) -> bytes:
        assembly: list[str] = []
        code = compiled(vendor, text, level, lambda name, listing: assembly.append(listing))
        made.append(Code(level, relocatables[-1], code, assembly[0]))
        return code

    monkeypatch.setenv("HLO_DISC_THREADS", "1")  # one code after the other
    monkeypatch.setattr(rocm, "code_object", link)
    monkeypatch.setattr(gpu, "machine_code", kept)
    return made


PROGRAMS = {**ROW_PROGRAMS, "sine": (jnp.sin, ("f32[m, n]",))}


@depth.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_row_kernels_stay_in_registers(name, codes):
    function, specs = PROGRAMS[name]
    hlo_disc.compile(function, *specs, target="rocm")
    assert [code.level for code in codes] == list(LEVELS)
    for code in codes:
        for spills in ("private_segment_fixed_size", "vgpr_spill_count", "sgpr_spill_count"):
            assert set(code.numbers(spills).values()) == {0}, spills
        # With 128 of them, four waves share a SIMD unit.
        assert max(code.numbers("vgpr_count").values()) <= (128 if name == "sine" else 64)
        assert "s_swappc" not in code.assembly


@pytest.mark.parametrize("name", ["softmax", "layer norm", "cumulative sum", "map"])
def test_aligned_forms_read_and_write_whole_registers(name, codes):
    """Aligned forms access rows of a multiple of four elements in 128 bits at a time.

    Memory is known to be global or shared, not just any.
    """
    function, specs = {**PROGRAMS, "map": (lambda x: jnp.tanh(x) * 2, ("f32[m, n]",))}[name]
    hlo_disc.compile(function, *specs, target="rocm")
    for code in codes:
        kernels = code.kernels()
        aligned = [kernel for kernel in kernels if kernel.endswith("_aligned")]
        assert len(aligned) == 3 + any("unstaged" in kernel for kernel in kernels) and len(kernels) >= 6
        for kernel, text in kernels.items():
            accesses = re.findall(r"^\s+(?:global|flat|scratch|buffer)_(?:load|store)_\w+", text, re.M)
            assert len(accesses) > 1
            wide = all(re.fullmatch(r"\s+global_(load|store)_dwordx4", access) for access in accesses)
            assert wide == kernel.endswith("_aligned"), kernel
            assert "flat_" not in text and "scratch_" not in text


# Products of small matrices, and how many hundredths of the instructions they are where a large dot multiplies. Of
# operands that lie across K each element of 16 bits is read alone.
MATRIX_PROGRAMS = {
    "bf16": (lambda x, y: x @ y, ("bf16[m, k]", "bf16[k, n]"), 27),
    "f16": (lambda x, y, z: jax.nn.gelu(x @ y + z), ("f16[m, k]", "f16[k, n]", "f16[n]"), 27),
    "bf16, columns transposed": (lambda x, y: x @ y.T, ("bf16[m, k]", "bf16[n, k]"), 50),
    "bf16, rows transposed": (lambda x, y: x.T @ y, ("bf16[k, m]", "bf16[k, n]"), 13),
    "f64": (lambda x, y: x @ y, ("f64[m, k]", "f64[k, n]"), 37),
}


@depth.sampled(2)
@pytest.mark.parametrize("name", MATRIX_PROGRAMS)
def test_dots_of_small_matrices_stay_in_registers(name, codes):
    function, specs, share = MATRIX_PROGRAMS[name]
    for large in (False, True):
        codes.clear()
        sized = tuple(re.sub(r"[mkn](?=[],])", "4096", spec) if large else spec for spec in specs)
        with jax.enable_x64(name == "f64"):
            hlo_disc.compile(function, *sized, target="rocm")
        for code in codes:
            for spills in ("private_segment_fixed_size", "vgpr_spill_count", "sgpr_spill_count"):
                assert set(code.numbers(spills).values()) == {0}, spills
            # Fast memory lets no more than two blocks share a SIMD unit, a wave of each.
            assert max(code.numbers("vgpr_count").values()) <= 168
            if large:
                (kernel,) = (text for kernel, text in code.kernels().items() if "mma" in kernel)
                blocks = [re.findall(r"^\s+([a-z]\w+)", x, re.M) for x in re.split(r"^\.LBB\w+:", kernel, flags=re.M)]
                products = [sum("mfma" in word for word in block) for block in blocks]
                assert max(products) >= share / 100 * len(blocks[products.index(max(products))])


def test_words_of_a_wave(codes):
    """Neighbours, 16 of them, meet without memory. The others meet through the memory of an exchange."""
    hlo_disc.compile(jax.nn.softmax, "f32[m, n]", target="rocm:gfx942")
    (code,) = codes
    for words in ("quad_perm:[1,0,3,2]", "quad_perm:[2,3,0,1]", "row_shl:4", "row_shr:4", "row_ror:8"):
        assert words in code.assembly, words
    assert re.search(r"v_(add|max)\w*_dpp", code.assembly), "the move is one with the op"
    assert re.search(r"ds_swizzle_b32 .*offset:swizzle\(SWAP,16\)", code.assembly)
    for words in ("ds_bpermute_b32", "s_barrier", "ds_read", "ds_write"):
        assert words in code.assembly, words
    assert code.numbers("wavefront_size") == dict.fromkeys(code.numbers("wavefront_size"), 64)
    assert set(code.numbers("max_flat_workgroup_size").values()) == {8 * 16, 256}


# What the driver does with a code object.


class Elf:
    """An ELF file of 64 bits, read by its headers."""

    def __init__(self, data: bytes):
        self.data = data
        (segments, sections, self.flags) = struct.unpack_from("<QQI", data, 32)
        (segment_count, _, section_count, names) = struct.unpack_from("<4H", data, 56)
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, segments + 56 * k) for k in range(segment_count)]
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, sections + 64 * k) for k in range(section_count)]
        self.sections = {self.text(raw[names][4] + section[0]): section for section in raw}
        self.by_number = raw

    def text(self, at: int) -> str:
        return self.data[at : self.data.index(0, at)].decode()

    def contents(self, name: str) -> bytes:
        offset, size = self.sections[name][4:6]
        return self.data[offset : offset + size]

    def symbols(self, name: str) -> list[tuple[str, int, int, int, int, int]]:
        """Name, info, other, section, value and size of each."""
        strings = self.by_number[self.sections[name][6]][4]
        return [
            (self.text(strings + first), *rest) for first, *rest in struct.iter_unpack("<IBBHQQ", self.contents(name))
        ]


def loaded(data: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Load an object as the loader does (ROCR-Runtime, executable.cpp).

    Return the descriptor of each kernel, and the memory from its code on.
    """
    elf = Elf(data)
    loads = [s for s in elf.segments if s[0] == 1]
    memory = bytearray(max(s[3] + s[6] for s in loads))
    for _, _, offset, address, _, size, *_ in loads:
        assert offset % 0x1000 == address % 0x1000
        memory[address : address + size] = data[offset : offset + size]
    pages = [(s[3] // 0x1000, (s[3] + s[6] - 1) // 0x1000, s[1]) for s in loads]
    assert all(last < first for (_, last, _), (first, _, _) in zip(pages, pages[1:], strict=False)), pages
    found = {}
    for name, info, _, _, value, size in elf.symbols(".symtab"):
        if info & 15 == 1 and name.endswith(".kd"):
            assert size == 64 and value % 64 == 0
            descriptor = bytes(memory[value : value + 64])
            code = value + struct.unpack_from("<q", descriptor, 16)[0]
            assert code % 256 == 0
            found[name[:-3]] = descriptor, bytes(memory[code:])
    return found


@pytest.mark.parametrize("name", ["softmax", "cumulative sum"])
def test_the_loader_finds_each_kernel(name, codes):
    function, specs = PROGRAMS[name]
    hlo_disc.compile(function, *specs, target="rocm")
    for code in codes:
        source, kernels = Elf(code.relocatable), loaded(code.object)
        functions = {s[0]: s for s in source.symbols(".symtab") if s[1] & 15 == 2}
        assert kernels and set(kernels) == set(functions) == set(code.kernels())
        text = source.contents(".text")
        for kernel, (descriptor, memory) in kernels.items():
            *_, value, size = functions[kernel]
            assert size > 100 and memory[:size] == text[value : value + size], kernel
            shared, private, arguments = struct.unpack_from("<3I", descriptor)
            assert (private, shared) == (0, code.numbers("group_segment_fixed_size")[kernel])
            assert arguments == code.numbers("kernarg_segment_size")[kernel]


def test_headers_and_tables(codes):
    hlo_disc.compile(jax.nn.softmax, "f32[m, n]", target="rocm")
    for code in codes:
        elf, source = Elf(code.object), Elf(code.relocatable)
        # ELF of 64 bits, little endian, for HSA, code object version 5; a shared object for AMDGPU.
        assert code.object[:9] == b"\x7fELF\x02\x01\x01\x40\x03"
        assert struct.unpack_from("<HH", code.object, 16) == (3, 224)
        assert elf.flags == source.flags and elf.flags & 0xFF == MACHINES[code.level]
        assert [segment[:2] for segment in elf.segments] == [(1, 4), (1, 5), (1, 6), (2, 6), (4, 4)]
        assert elf.contents(".note") == source.contents(".note")
        (note,) = (s for s in elf.segments if s[0] == 4)
        assert code.object[note[2] :][:24][12:] == b"AMDGPU\0\0" + code.object[note[2] + 20 :][:4]
        assert code.object[note[2] : note[2] + note[5]] == elf.contents(".note")
        assert elf.contents(".dynsym") == elf.contents(".symtab") and elf.contents(".dynstr") == elf.contents(".strtab")
        dynamic = dict(struct.iter_unpack("<QQ", elf.contents(".dynamic")))
        for tag, section in {6: ".dynsym", 5: ".dynstr", 4: ".hash"}.items():
            assert dynamic[tag] == elf.sections[section][3]
        assert dynamic[10] == len(elf.contents(".dynstr")) and dynamic[11] == 24
        # The one chain of the hash table goes through all symbols.
        buckets, count, at, *following = struct.unpack(f"<{len(elf.contents('.hash')) // 4}I", elf.contents(".hash"))
        chain = []
        while at:
            chain.append(at)
            at = following[at]
        assert buckets == 1 and count == len(following) and chain == list(range(1, len(elf.symbols(".dynsym"))))


@pytest.mark.skipif(OBJDUMP is None, reason="needs llvm-objdump")
def test_code_is_disassembled_to_what_was_assembled(codes, tmp_path):
    hlo_disc.compile(jax.nn.softmax, "f32[m, n]", target="rocm:gfx90a")
    (code,) = codes
    (tmp_path / "code").write_bytes(code.object)
    run = subprocess.run([OBJDUMP, "-d", tmp_path / "code"], capture_output=True, text=True)
    if "gfx90a" not in run.stdout and "s_load" not in run.stdout:
        pytest.skip("llvm-objdump does not know the GPU")
    functions = dict(re.findall(r"^[0-9a-f]+ <(\w+)>:\n(.*?)(?=^$|\Z)", run.stdout, re.S | re.M))
    for kernel, text in code.kernels().items():
        written, read = (
            [word for word in re.findall(r"^\s+([vsdg]\w+_\w+)", x, re.M) if word not in ("s_nop", "s_endpgm")]
            for x in (text, functions[kernel])
        )
        assert len(read) > 50 and read == written


def test_a_bundle_has_the_code_of_each_gpu(codes):
    executable = hlo_disc.compile(lambda x: jnp.tanh(x) + 1, "f32[n]", target="rocm")
    image = executable.program.object
    image = image[image.index(b"__CLANG_OFFLOAD_BUNDLE__") :]
    (count,) = struct.unpack_from("<Q", image, 24)
    entries, at = {}, 32
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", image, at)
        entries[image[at + 24 : at + 24 + length].decode()] = offset, image[offset : offset + size]
        at += 24 + length
    assert all(offset % 4096 == 0 for offset, _ in entries.values())
    objects = {f"hipv4-amdgcn-amd-amdhsa--{code.level}": code.object for code in codes}
    assert {name: data for name, (_, data) in entries.items()} == objects


def relocatable(text: str) -> bytes:
    head = f'target triple = "{amdgpu.TRIPLE}"\ntarget datalayout = "{amdgpu.LAYOUT}"\n'
    machine = llvm.Target.from_triple(amdgpu.TRIPLE).create_target_machine(cpu="gfx942", reloc="pic")
    with (
        llvm.create_context() as context,
        llvm.parse_assembly(f"{head}{text}\n{amdgpu.MACHINE.metadata}", context) as module,
    ):
        return machine.emit_object(module)


def test_constants_are_found_by_their_distance():
    """A table lies in the object's own memory. Code reads it by an address of two halves."""
    object_ = relocatable(
        """
      @table = internal addrspace(4) constant [64 x i32] [i32 1234567, SIXTY, i32 7654321]
      define amdgpu_kernel void @kernel(ptr addrspace(1) %p, i64 %k) {
        %q = getelementptr i32, ptr addrspace(4) @table, i64 %k
        %x = load i32, ptr addrspace(4) %q
        store i32 %x, ptr addrspace(1) %p
        ret void
      }""".replace("SIXTY", ", ".join(["i32 5"] * 62))
    )
    source, code = Elf(object_), code_object.code_object(object_)
    ((_, memory),) = loaded(code).values()
    pieces = struct.iter_unpack("<QQq", source.contents(".rela.text"))
    halves = {kind & 0xFFFFFFFF: at for at, kind, _ in pieces}
    assert set(halves) == {10, 11}
    elf = Elf(code)
    table = next(k for k in range(len(code)) if code[k : k + 4] == struct.pack("<i", 1234567))
    (where,) = (s for s in elf.sections.values() if s[4] <= table < s[4] + s[5])
    (start,) = (s[3] for s in elf.by_number if s is elf.sections[".text"])
    (low,) = struct.unpack_from("<I", memory, halves[10])
    (high,) = struct.unpack_from("<I", memory, halves[11])
    # The code adds them to the address of the instruction that has the low one, which is 4 bytes before it.
    (distance,) = struct.unpack("<q", struct.pack("<II", low, high))
    assert distance < 0 and start + halves[10] - 4 + distance == table - where[4] + where[3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@v = addrspace(1) global i32 7\ndefine amdgpu_kernel void @k() {\n  ret void\n}", "variables.*.data"),
        (
            "declare void @f()\ndefine amdgpu_kernel void @k() {\n  call void @f()\n  ret void\n}",
            "need f, which nobody defines",
        ),
    ],
    ids=["a variable", "a function"],
)
def test_what_kernels_cannot_have_is_refused(text, message):
    with pytest.raises(CompileError, match=message):
        code_object.code_object(relocatable(text))


@depth.sampled(2)
@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_op_has_code_without_a_stack(name, codes):
    @settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(single_ops(name))
    def sweep(graph) -> None:
        codes.clear()
        pipeline.compile(graph, Options(target="rocm"))
        for code in codes:
            assert set(code.numbers("private_segment_fixed_size").values()) <= {0}
            assert set(loaded(code.object)) == set(code.kernels())

    if name in ON_THE_CPU_ONLY:
        with pytest.raises(UnsupportedOpError, match="run on the CPU only"):
            sweep()
    else:
        sweep()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_every_function_has_code_without_a_stack(dtype, codes):
    """A function has code and is not called: a call would need a stack."""
    for function in vecmath.FUNCTIONS:
        text = function_kernel(function, dtype, 64)
        ir = translate([kernels.parse(text)], amdgpu.MACHINE)
        gpu.check_functions(ir, rocm.AMD)
        gpu.machine_code(rocm.AMD, ir, "gfx942")
        assert codes[-1].numbers("private_segment_fixed_size") == {"k": 0}, function
        assert "s_swappc" not in codes[-1].assembly


def test_arithmetic_is_that_of_the_program(codes):
    """A sum of a product that may not be fused stays two operations; denormal numbers are kept."""
    text = """
      gpu.module @kernels {
        gpu.func @k(%a: memref<?xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
          %i = gpu.thread_id x
          %x = memref.load %a[%i] : memref<?xf32>
          %y = arith.mulf %x, %x : f32
          %z = arith.addf %y, %x : f32
          memref.store %z, %a[%i] : memref<?xf32>
          gpu.return
        }
      }"""
    gpu.machine_code(rocm.AMD, translate([kernels.parse(text)], amdgpu.MACHINE), "gfx942")
    (code,) = codes
    assert re.findall(r"v_\w+_f32", code.assembly) == ["v_mul_f32", "v_add_f32"]
    assert ".amdhsa_float_denorm_mode_32 3" in code.assembly


def test_levels_of_rocm():
    with pytest.raises(ArgumentError, match="unknown target 'rocm:sm_80'; .*, rocm, rocm:gfx90a, rocm:gfx942"):
        hlo_disc.compile(lambda x: x, "f32[n]", target="rocm:sm_80")
    for target, levels in {"rocm": LEVELS, "rocm:gfx942": LEVELS[1:]}.items():
        executable = hlo_disc.compile(lambda x: x + 1, "f32[n]", target=target)
        assert executable.program.features[: len(levels) + 1][:-1] == levels
        assert executable.program.features[len(levels)] not in LEVELS


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="needs a machine without a GPU of AMD's")
def test_without_a_driver_of_rocm_a_program_can_be_compiled_and_saved(tmp_path):
    hlo_disc.compile(lambda x: x + 1, "f32[n]", target="rocm").save(tmp_path / "x.disc")
    with pytest.raises(DeviceError, match="there is no driver of a GPU: libamdhip64.so: cannot open"):
        hlo_disc.load(tmp_path / "x.disc")(np.ones(3, np.float32))
