"""The facts about a machine that schedules may use: records, which targets fill in. No schedule asks for a name."""

from __future__ import annotations

from hlo_disc.frozen import frozen

# Bytes of fast memory that a kernel may have under a name, through which warps exchange values.
EXCHANGE_BYTES = 256
# (up to so many results, slices), from few to many.
Slices = tuple[tuple[int, int], ...]


@frozen
class Team:
    """Threads that work on a block together: each holds some of the lanes of every vector.

    threads: how many, a power of two. chunks: into how many runs of neighbouring lanes a vector is cut; of each, every
        thread holds as many neighbours as there are. count: teams that are launched side by side, each with a block of
        its own; more than one only where a team is no larger than a warp.
    warp: threads that exchange values without memory. registers: that each may have; 0 where the machine decides.
    most: elements of the rows that are left to it where a larger team could have them.
    """

    threads: int
    chunks: int = 1
    count: int = 1
    warp: int = 32
    registers: int = 0
    most: int = 0

    @property
    def runs(self) -> int:
        """Runs of neighbours in a vector."""
        return self.threads * self.chunks

    @property
    def warps(self) -> int:
        """Warps of a team."""
        return max(self.threads // self.warp, 1)


@frozen
class Tile:
    """The part of a matrix product that a team of threads computes: rows x cols results, `depth` products at a time.

    parts: of the team, which share the depth; with more than one the tile is for few rows. least: it is used only
        for at least so many results. registers: see Team.
    """

    rows: int
    cols: int
    depth: int
    threads: int
    parts: int = 1
    least: int = 0
    registers: int = 0

    @property
    def team(self) -> Team:
        """The threads that share a tile."""
        return Team(self.threads, registers=self.registers)


@frozen
class Held:
    """How the threads of a warp hold a small matrix: each has `run` neighbours of one of its lines.

    below: neighbouring threads have lines below each other; otherwise neighbours of one line.
    """

    lines: int
    run: int
    below: bool = False


@frozen
class Mma:
    """An instruction by which a warp adds the products of two small matrices, of `depth` each, to a third one.

    name: what the target calls it. operands, sums: numpy's names of their element types. warp: its threads.
    row_parts, col_parts: where the parts begin that operands are made of, (row, k) and (column, k), in the order of a
        thread's registers; sum_parts: (row, column).
    held: how threads hold a part of an operand, whose lines are along K. sums_held: of the sums, whose lines are rows.
    exact: whether operands are multiplied as they are; if not, operands of f32 are rounded to TF32 before.
    by_parts: whether the machine reads parts as such from fast memory, those that lie the other way turned.
    """

    name: str
    operands: str
    sums: str
    rows: int
    cols: int
    depth: int
    row_parts: tuple[tuple[int, int], ...]
    col_parts: tuple[tuple[int, int], ...]
    sum_parts: tuple[tuple[int, int], ...]
    held: Held
    sums_held: Held
    warp: int = 32
    by_parts: bool = False
    exact: bool = True


@frozen
class Device:
    """A machine as schedules see it: blocks of threads, each with SIMD lanes, and fast memory private to a block.

    simd_bytes: bytes of one vector register of a thread.
    registers: vector registers of a thread.
    unroll: independent vectors in flight in a memory-bound loop.
    tile_rows, tile_vectors: the register tile of the matrix multiply (rows x vectors of accumulators).
    row_steps: rows of the tiles that finish what `tile_rows` leaves over, largest first, ending in 1.
    grain: elements of memory-bound work that are worth a block of their own, of a team for each of its runs.
    at_once: runs that all teams should have before a run has more than a register of work, up to the grain; 0 where
        blocks are always worth the grain.
    slices: parts of a long axis that blocks share, by how many results there are at most: where its results are
        combined at once, and where one by one. parts: the same of cumulative ops.
    grain_flops: FLOPs of compute-bound work that are worth a block of their own.
    teams: of which sizes, smallest first, teams of threads share blocks; none where a block is one thread's.
    tiles: those of a team in a matrix multiply, of which the first that sizes allow is taken and the last is for all;
        none where register tiles are one thread's.
    matrix: instructions that multiply small matrices. matrix_tiles: the tiles of products that they make
        of operands of 16 bits; of others K is as long in bytes.
    fast_limit: bytes of fast memory that a launch may ask for, besides EXCHANGE_BYTES; 0 for any number.
    atomics: whether threads may add to one integer in memory at once, or take its maximum and the like.
    pair_dot: whether an instruction adds products of pairs of bf16 to a register of f32.
    tile_dot: whether it has eight registers of 16 lines of 64 bytes, and an instruction that adds to one the product of
        two that hold bf16 (`bf16_tiles.py`).
    prefetch: how many bytes ahead register tiles ask for their columns, and the first of several passes over a row for
        what it reads; 0 where the machine needs no such help.
    narrow: kernels may have indices of 32 bits where all of a call are below this number; 0 for never.
    library_products: from so many products of numbers on a product of matrices is the vendor's library's, where there
        is one that has a way to compute it; 0 for never.
    host_memory: whether host code sees the memory of kernels; if not, it asks the runtime for single elements.
    """

    simd_bytes: int
    registers: int
    unroll: int = 2
    tile_rows: int = 6
    tile_vectors: int = 4
    row_steps: tuple[int, ...] = (4, 2, 1)
    grain: int = 1 << 14
    at_once: int = 0
    slices: tuple[Slices, Slices] = (((1 << 10, 32),), ((1 << 16, 32),))
    parts: int = 32
    grain_flops: int = 1 << 20
    teams: tuple[Team, ...] = ()
    tiles: tuple[Tile, ...] = ()
    matrix: tuple[Mma, ...] = ()
    matrix_tiles: tuple[Tile, ...] = ()
    fast_limit: int = 0
    atomics: bool = False
    pair_dot: bool = False
    tile_dot: bool = False
    prefetch: int = 0
    narrow: int = 0
    library_products: int = 0
    host_memory: bool = True

    @property
    def lanes(self) -> int:
        """f32 lanes of one vector; kernels use as many lanes for every element type."""
        return self.simd_bytes // 4
