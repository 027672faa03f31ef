"""A thin layer over MLIR's builders: values with operators, loops as context managers, one constant per function.

The builder turns calls of a schedule into ops of the upstream dialects func, scf, arith, math, memref, vector and gpu,
one function after another (`module.ModuleBuilder` opens them). `lanes.py` has the operations across lanes of vectors.
Scalars of type index fold with Python ints, so that a static size never becomes an instruction. A pure op is placed in
the outermost scope that has its operands, so that loop-invariant values are never computed in the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc import mlir
from hlo_disc.dynamic_hlo.ir.dtypes import FLOATS, element_type, part_dtype
from hlo_disc.kernel_ops import CHECKED, KERNELS, UNPREDICTABLE, KernelName
from hlo_disc.mlir import MlirValue, arith, func, gpu, ir, memref, scf, vector
from hlo_disc.stitch.codegen.lanes import Lanes, SimdLanes
from hlo_disc.stitch.codegen.values.val import ForLoop, OpenScope, Scalar, Val, signed

if TYPE_CHECKING:
    from hlo_disc.device import Team
    from hlo_disc.stitch.codegen.module import ModuleBuilder

Operand = Val | float | np.generic

# By name: what is built most takes half the time without the classes of ops.
_INT_OPS = {"+": "arith.addi", "-": "arith.subi", "*": "arith.muli", "//": "arith.divsi", "%": "arith.remsi"}
_FLOAT_OPS = {"+": "arith.addf", "-": "arith.subf", "*": "arith.mulf", "/": "arith.divf"}
_PREDICATES = {"==": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
_FLOAT_PREDICATES = {"==": 1, ">": 2, ">=": 3, "<": 4, "<=": 5, "!=": 13, "uno": 14}


@functools.cache
def _float_types() -> dict[np.dtype, ir.Type]:
    return {dtype: mlir.type_(element_type(dtype)) for dtype in FLOATS}


class Builder:
    """Builds the function of `module` that is open: values, arithmetic, memory, control flow.

    lanes: the lane model. simd: that of kernels written for vector registers. runtime: the ral_call of a host function,
    its first argument.
    """

    def __init__(self, module: ModuleBuilder) -> None:
        self.module = module
        self.simd = SimdLanes(self)
        self.lanes: Lanes = self.simd
        self.index_type = ir.IndexType.get()
        self.pointer = mlir.type_("!llvm.ptr")
        self._int_types = {n: ir.IntegerType.get_signless(n) for n in (1, 4, 6, 8, 16, 32, 64)}
        self._float_types = _float_types()
        self._floats = {*self._float_types.values()}
        self._f32, self.f64 = ir.F32Type.get(), ir.F64Type.get()
        self.i1, self.i8, self.i32, self.i64 = (self._int_types[n] for n in (1, 8, 32, 64))
        self.no_signed_zeros = mlir.attribute("#arith.fastmath<nsz>")
        self._unknown = ir.Location.unknown()
        self._locations: dict[str, ir.Location] = {}
        self._constants: dict[tuple[Hashable, ...], Val] = {}
        self._entry: ir.Block | None = None
        self.scopes: list[OpenScope] = []
        self.runtime: Any = None

    def at(self, loc: str) -> AbstractContextManager[object]:
        """Attach the user's source line to ops built inside."""
        if not loc:
            return nullcontext()
        found = self._locations.get(loc)
        if found is None:
            found = self._locations[loc] = ir.Location.name(loc)
        return found

    @contextmanager
    def over(self, lanes: Lanes) -> Iterator[None]:
        """Build with another lane model."""
        saved, self.lanes = self.lanes, lanes
        yield
        self.lanes = saved

    # Scopes.

    @property
    def scope(self) -> OpenScope:
        return self.scopes[-1]

    @contextmanager
    def enter(self, op: ir.OpView | None, block: ir.Block, conditional: bool = False) -> Iterator[OpenScope]:
        """Build inside `block`, a region of `op`."""
        scope = OpenScope(op, len(self.scopes), conditional)
        self.scopes.append(scope)
        try:
            with ir.InsertionPoint(block):
                yield scope
        finally:
            self.scopes.pop().open = False

    def pure(
        self,
        build: Callable[[], MlirValue],
        lanes: int,
        operands: Sequence[Val],
        speculate: bool = True,
        key: Hashable = None,
    ) -> Val:
        """Build an op in the outermost scope that has its operands; without `speculate` not above a conditional.

        key: tells the op from others of these operands, so that it is built once.
        """
        first = 0
        for x in operands:
            if x.scope.depth > first:
                first = x.scope.depth
        depth = first
        if not speculate:
            depth = max(depth, max(s.depth for s in self.scopes if s.conditional or s.depth == 0))
        scope = self.scopes[depth]
        if key is not None:
            known = (key, *operands)
            # What another scope around this one has loaded is worth a register; what it has computed is not.
            for outer in self.scopes[first if key == "load" else depth : depth + 1]:
                if known in outer.known:
                    return outer.known[known]
        if scope is self.scopes[-1]:
            made = Val(self, build(), lanes)
        else:
            inside = self.scopes[depth + 1].op
            assert inside is not None
            with ir.InsertionPoint(inside):
                made = Val(self, build(), lanes, scope)
        if key is not None:
            scope.known[known] = made
        return made

    # Types and constants.

    def register_type(self, dtype: np.dtype) -> ir.Type:
        """Return the type that computes on elements of `dtype`: small floats are widened to f32, bool is i1."""
        if dtype.itemsize < 4 and dtype in self._float_types:
            return self._f32
        return self.i1 if dtype == np.bool_ else self.memory_type(dtype)

    def memory_type(self, dtype: np.dtype) -> ir.Type:
        """Return the type of elements of `dtype` in memory: bool takes a byte, complex two floats."""
        dtype = part_dtype(dtype)
        return self._float_types.get(dtype) or self._int_types[8 * dtype.itemsize]

    def int_type(self, bits: int) -> ir.Type:
        return self._int_types[bits]

    def is_float(self, x: Val) -> bool:
        return x.element in self._floats

    def vec(self, lanes: int, element: ir.Type) -> ir.Type:
        """Return the type of a thread's part of a vector of so many lanes; for a scalar, the element type."""
        return self.lanes.type(lanes, element) if lanes else element

    def buffer_type(self, element: ir.Type, fast: bool = False) -> ir.Type:
        return ir.MemRefType.get(
            [ir.ShapedType.get_dynamic_size()], element, memory_space=self.fast_space if fast else None
        )

    @property
    def fast_space(self) -> ir.Attribute:
        """The address space of fast memory."""
        return mlir.attribute("#gpu.address_space<workgroup>")

    def const(self, x: Any, element: ir.Type, lanes: int = 0) -> Val:
        """Return a scalar or splat constant, built once, at the top of the function."""
        key = (x if type(x) is int else repr(x), element, lanes)
        found = self._constants.get(key)
        if found is not None:
            return found
        if element is self.index_type:
            self.module.largest_index = max(self.module.largest_index, abs(x))

        def build() -> MlirValue:
            floating = element in self._floats
            attr = ir.FloatAttr.get(element, float(x)) if floating else ir.IntegerAttr.get(element, signed(int(x)))
            type_ = self.vec(lanes, element)
            value = ir.DenseElementsAttr.get_splat(type_, attr) if lanes else attr
            return ir.Operation.create("arith.constant", [type_], attributes={"value": value}).result

        return self.at_entry(key, build, lanes)

    def at_entry(self, key: tuple[Hashable, ...], build: Callable[[], MlirValue], lanes: int = 0) -> Val:
        """Build an op without operands at the top of the function, once for equal keys."""
        found = self._constants.get(key)
        if found is None:
            assert self._entry is not None
            with ir.InsertionPoint.at_block_begin(self._entry), self._unknown:
                found = self._constants[key] = Val(self, build(), lanes, self.scopes[0])
        return found

    def index(self, x: Scalar) -> Val:
        return x if isinstance(x, Val) else self.const(x, self.index_type)

    def like(self, x: Operand, other: Val) -> Val:
        """Return `x` as a value of `other`'s lanes: a Python number becomes a constant of its element type."""
        if isinstance(x, Val):
            return self.splat(x, other.lanes)
        return self.const(x, other.element, other.lanes)

    def splat(self, x: Val, lanes: int) -> Val:
        if not lanes or x.lanes == lanes:
            return x
        type_ = self.vec(lanes, x.v.type)
        return self.pure(lambda: vector.BroadcastOp(type_, x.v).result, lanes, [x], key=type_)

    # Scalar and vector arithmetic.

    def _alike(self, x: Operand, y: Operand) -> tuple[Val, Val]:
        """Return two operands, one of which is a value, with equal numbers of lanes."""
        if isinstance(x, Val) and (x.lanes or not isinstance(y, Val)):
            return x, self.like(y, x)
        assert isinstance(y, Val), y
        return self.like(x, y), y

    def binary(self, sign: str, left: Operand, right: Operand) -> Val:
        x, y = self._alike(left, right)
        floating = self.is_float(x)
        name = (_FLOAT_OPS if floating else _INT_OPS)[sign]

        def build() -> MlirValue:
            return ir.Operation.create(name, [x.v.type], [x.v, y.v]).result

        # A division by zero traps: it stays where the schedule put it.
        return self.pure(build, x.lanes, [x, y], floating or sign not in "//%", sign)

    def apply(self, op: Callable[..., ir.OpView], *xs: Val, speculate: bool = True, **attributes: object) -> Val:
        """Build an op whose result has the type of its operands; scalars among vectors are broadcast."""
        lanes = max(x.lanes for x in xs)
        ys = [self.splat(x, lanes) for x in xs]
        key = None if attributes else op
        return self.pure(lambda: op(*[y.v for y in ys], **attributes).result, lanes, ys, speculate, key)

    def cast(self, op: Callable[..., ir.OpView], element: ir.Type, x: Val) -> Val:
        type_ = self.vec(x.lanes, element)
        return self.pure(lambda: op(type_, x.v).result, x.lanes, [x], key=(op, type_))

    def compare(self, sign: str, left: Operand, right: Operand, unsigned: bool = False) -> Val:
        x, y = self._alike(left, right)
        if self.is_float(x):
            predicate = _FLOAT_PREDICATES[sign]
            return self.pure(lambda: arith.CmpFOp(predicate, x.v, y.v).result, x.lanes, [x, y], key=("cmp", predicate))
        predicate = _PREDICATES[sign] + (4 if unsigned and sign not in ("==", "!=") else 0)
        return self.pure(lambda: arith.CmpIOp(predicate, x.v, y.v).result, x.lanes, [x, y], key=("cmp", predicate))

    def select(self, condition: Val, x: Val, y: Val, unpredictable: bool = False) -> Val:
        """Select. unpredictable: must not become a branch."""
        lanes = max(condition.lanes, x.lanes, y.lanes)
        c, x, y = self.splat(condition, lanes), self.splat(x, lanes), self.splat(y, lanes)

        def build() -> MlirValue:
            op = arith.SelectOp(c.v, x.v, y.v)
            UNPREDICTABLE.set(op, unpredictable)
            made: MlirValue = op.result
            return made

        return self.pure(build, lanes, [c, x, y], key=("select", unpredictable))

    def both(self, x: Val, y: Val) -> Val:
        """Whether both conditions hold."""
        return self.apply(arith.AndIOp, x, y)

    def minimum(self, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        return self.apply(arith.MinSIOp, self.index(x), self.index(y))

    def maximum(self, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        return self.apply(arith.MaxSIOp, self.index(x), self.index(y))

    def turns(self, size: Scalar, inside: Iterable[Scalar]) -> Scalar:
        """Return the iterations of a nest's outermost loop: none if an inner loop has none, so that empty work takes no
        time.

        So the time for what is empty does not grow with the sizes beside the 0.
        """
        for other in inside:
            if isinstance(other, Val):
                size = self.select(self.compare("<=", other, 0), self.index(0), self.index(size))
            elif other <= 0:
                return 0
        return size

    def ceil_div(self, x: Scalar, y: Scalar) -> Scalar:
        return (x + (y - 1)) // y

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        """Compute x*y + z, with one rounding for floats."""
        if self.is_float(z):
            return self.apply(vector.FMAOp if x.lanes or y.lanes or z.lanes else mlir.math.FmaOp, x, y, z)
        return self.binary("+", self.binary("*", x, y), z)

    def pair(self, x: Val, y: Val) -> Val:
        """Make a vector of two scalars."""
        type_ = self.vec(2, x.element)
        return self.pure(lambda: vector.FromElementsOp(type_, [x.v, y.v]).result, 2, [x, y])

    def reinterpret(self, x: Val, element: ir.Type, lanes: int) -> Val:
        """Return the bits of a vector as another one of as many bits."""
        type_ = self.vec(lanes, element)
        return self.pure(lambda: vector.BitCastOp(type_, x.v).result, lanes, [x])

    def wide(self, i: Scalar) -> Val:
        """Return an index as an i64."""
        return self.cast(arith.IndexCastOp, self.i64, self.index(i))

    # Memory: buffers are rank-1 memrefs, addressed by a linear element index.

    def load(self, buffer: Val, i: Scalar, lanes: int = 0, mask: Val | None = None, fixed: bool = False) -> Val:
        """Load a scalar, or `lanes` elements from `i` on; masked-off lanes are zero and are not read.

        fixed: the buffer does not change while the kernel runs, so that the load may move out of loops.
        """
        at = self.index(i)
        return self.lanes.load(buffer, at, lanes, mask, fixed) if lanes else self.lanes.load_one(buffer, at, fixed)

    def store(self, x: Val, buffer: Val, i: Scalar, mask: Val | None = None) -> None:
        at = self.index(i)
        if x.lanes:
            self.lanes.store(x, buffer, at, mask)
        else:
            self.lanes.store_one(x, buffer, at)

    def prefetch(self, buffer: Val, i: Scalar) -> None:
        """Prefetch the cache line of an element, which may be beyond the buffer's end."""
        memref.PrefetchOp(buffer.v, [self.index(i).v], isWrite=False, localityHint=3, isDataCache=True)

    def gather(self, buffer: Val, i: Scalar, offsets: Val, mask: Val | None = None, fixed: bool = True) -> Val:
        """Load elements i + offsets[lane] of a buffer; fixed: the buffer does not change while the kernel runs."""
        lanes = offsets.lanes
        element = ir.MemRefType(buffer.v.type).element_type
        at, mask = self.index(i), mask or self.const(1, self.i1, lanes)
        zero, type_ = self.const(0, element, lanes), self.vec(lanes, element)

        def build() -> MlirValue:
            made: MlirValue = vector.GatherOp(type_, buffer.v, [at.v], offsets.v, mask.v, zero.v).result
            return made

        operands = [buffer, at, offsets, mask]
        return self.pure(build, lanes, operands, speculate=False) if fixed else Val(self, build(), lanes)

    def scatter(self, x: Val, buffer: Val, i: Scalar, offsets: Val, mask: Val | None = None) -> None:
        """Store x[lane] to element i + offsets[lane]; of equal offsets the last lane wins."""
        mask = mask or self.const(1, self.i1, offsets.lanes)
        vector.ScatterOp(None, buffer.v, [self.index(i).v], offsets.v, mask.v, self.splat(x, offsets.lanes).v)

    def atomic(self, kind: str, x: Val, buffer: Val, i: Scalar, offsets: Val, mask: Val) -> None:
        """Combine x[lane] atomically with element i + offsets[lane] of a buffer.

        kind: an arith.AtomicRMWKind.
        """
        place = self.binary("+", offsets, self.index(i))
        for k in range(ir.VectorType(x.v.type).shape[0]):
            at, value, there = (vector.ExtractOp(v.v, [], [k]).result for v in (place, x, mask))
            op = functools.partial(memref.AtomicRMWOp, arith.AtomicRMWKind[kind], value, buffer.v, [at])
            self.if_(Val(self, there), op)

    def fast(self) -> Val:
        """Return the block's fast memory, as bytes."""
        return Val(self, gpu.DynamicSharedMemoryOp(self.buffer_type(self.i8, fast=True)).result)

    def view(self, buffer: Val, byte: Scalar, element: ir.Type, count: Scalar) -> Val:
        """Return `count` elements of a byte buffer from `byte` on."""
        fast = ir.MemRefType(buffer.v.type).memory_space is not None
        type_ = self.buffer_type(element, fast)
        return Val(self, memref.ViewOp(type_, buffer.v, self.index(byte).v, [self.index(count).v]).result)

    def retyped(self, buffer: Val, element: ir.Type) -> Val:
        """View the memory of a buffer as elements of another type."""
        type_ = self.buffer_type(element)
        if buffer.v.type == type_:
            return buffer
        cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[buffer.v])
        return Val(self, cast.results[0])

    def generic(self, buffer: Val) -> Val:
        """Return a buffer of fast memory as one of ordinary memory, so that one function can take both."""
        element = ir.MemRefType(buffer.v.type).element_type
        return Val(self, memref.MemorySpaceCastOp(self.buffer_type(element), buffer.v).result)

    def is_null(self, buffer: Val) -> Val:
        address = memref.ExtractAlignedPointerAsIndexOp(buffer.v)
        return self.compare("==", Val(self, address.result), 0)

    # Control flow.

    def loop(self, lo: Scalar, hi: Scalar, step: Scalar = 1, inits: Sequence[Val] = ()) -> ForLoop:
        return ForLoop(self, lo, hi, step, inits)

    def if_(
        self,
        condition: Val,
        then: Callable[[], Any],
        otherwise: Callable[[], Any] | None = None,
        like: Sequence[Val] = (),
    ) -> list[Val]:
        """Build both branches; with `like`, each returns a list of values of those types, which become the results."""
        op = scf.IfOp(condition.v, [x.v.type for x in like], has_else=otherwise is not None)
        for region, branch in zip(op.regions, (then, otherwise), strict=True):
            if branch is not None:
                with self.enter(op, region.blocks[0], conditional=True):
                    results = branch()
                    scf.YieldOp([x.v for x in results] if like else [])
        return [Val(self, r, x.lanes) for r, x in zip(op.results, like, strict=True)]

    def while_(
        self, inits: Sequence[Val], condition: Callable[[list[Val]], Val], step: Callable[[list[Val]], Sequence[Val]]
    ) -> list[Val]:
        """`step` the values as long as `condition` holds for them; returns the last ones."""
        types = [x.v.type for x in inits]
        op = scf.WhileOp(types, [x.v for x in inits])
        places = [ir.Location.unknown()] * len(types)
        before, after = (region.blocks.append(*types, arg_locs=places) for region in op.regions)
        with self.enter(op, before, conditional=True):
            held = [Val(self, a, x.lanes) for a, x in zip(before.arguments, inits, strict=True)]
            scf.ConditionOp(condition(held).v, [x.v for x in held])
        with self.enter(op, after, conditional=True):
            held = [Val(self, a, x.lanes) for a, x in zip(after.arguments, inits, strict=True)]
            scf.YieldOp([x.v for x in step(held)])
        return [Val(self, r, x.lanes) for r, x in zip(op.results, inits, strict=True)]

    # Functions: `module` opens one after another.

    @contextmanager
    def function(self, block: ir.Block) -> Iterator[list[Val]]:
        """Build the body of a function, perhaps while another one is under construction; yields its arguments."""
        saved = self._constants, self._entry, self.scopes, self.runtime
        self._constants, self._entry, self.scopes = {}, block, []
        with self.enter(None, block):
            values = [Val(self, a) for a in block.arguments]
            self.runtime = values[0] if values else None
            yield values
        self._constants, self._entry, self.scopes, self.runtime = saved

    def return_(self, *values: Val) -> None:
        func.ReturnOp([x.v for x in values])

    def call(self, name: str, *xs: Scalar) -> None:
        """Call a function of the module that has no result."""
        func.CallOp([], name, [self.index(x).v for x in xs])

    def checked_call(self, name: str, *xs: Val) -> None:
        """Call a function that returns a status; the calling function returns it too if it is not 0."""
        call = func.CallOp([self.i32], name, [x.v for x in xs])
        CHECKED.set(call.operation, True)

    def name_of_kernel(self, name: str) -> Val:
        """Return a pointer to its characters, in host code."""
        return Val(self, KernelName(name).build().results[0])

    # Blocks.

    def thread_id(self) -> Val:
        """Return the number of the thread among those launched side by side."""
        return self.at_entry(("thread_id",), lambda: gpu.ThreadIdOp(gpu.Dimension.x).result)

    def block_id(self) -> Val:
        return self.lanes.block(Val(self, gpu.BlockIdOp(gpu.Dimension.x).result))

    def barrier(self) -> None:
        """Wait until all threads are here, and see what they have stored."""
        gpu.BarrierOp()

    def launch(
        self, kernel: str, blocks: Scalar, args: Sequence[Scalar], fast_bytes: Scalar = 0, team: Team | None = None
    ) -> None:
        """Launch a kernel. team: the threads that share a block; None for one thread."""
        grid = self.ceil_div(blocks, team.count) if team else blocks
        threads = self.index(team.threads * team.count if team else 1).v
        values = [self.index(x).v for x in args]
        self.module.declare_kernel(kernel, [x.type for x in values])
        one = self.index(1).v
        fast = arith.IndexCastOp(self.i32, self.index(fast_bytes).v).result
        # By its name: host functions are made without the dialect's classes.
        attributes = {
            "kernel": ir.SymbolRefAttr.get([KERNELS, kernel]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, *(1,) * 6, *(0,) * 3, 1, len(values), 0]),
        }
        operands = [self.index(grid).v, one, one, threads, one, one, fast, *values]
        ir.Operation.create("gpu.launch_func", [], operands, attributes)
