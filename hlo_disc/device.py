"""The facts about a machine that schedules may use: records that targets fill in. No schedule uses a target's name."""

from __future__ import annotations

from hlo_disc.frozen import frozen

# Bytes of fast memory that a kernel may have under a name, through which warps exchange values.
EXCHANGE_BYTES = 256
# (up to so many results, slices), from few to many.
Slices = tuple[tuple[int, int], ...]


@frozen
class Team:
    """Threads that work on a block together. Each holds some of the lanes of every vector.

    threads: their number, a power of two. chunks: the number of runs of neighbouring lanes of a vector; every thread
        holds equally many neighbours of each run. count: teams that are launched side by side, each with a block of
        its own; more than one only if a team is no larger than a warp.
    warp: threads that exchange values without memory. registers: the most that each may have; 0 if the machine decides.
    most: the longest rows, in elements, for which this team is chosen although a larger one could have them.
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

    parts: parts of the team that share the depth; with more than one the tile is for few rows. least: the fewest
        results for which it is used. registers: see Team.
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
    """The layout of a small matrix in the threads of a warp: each has `run` neighbours of one of its lines.

    below: neighbouring threads have lines below each other; otherwise neighbours of one line.
    """

    lines: int
    run: int
    below: bool = False


@frozen
class Mma:
    """An instruction by which a warp adds the products of two small matrices, of `depth` each, to a third one.

    name: its name in the target. operands, sums: numpy's names of their element types. warp: its threads.
    row_parts, col_parts: where the parts of operands begin, (row, k) and (column, k), in the order of a thread's
        registers; sum_parts: (row, column).
    held: how threads hold a part of an operand, whose lines are along K. sums_held: of the sums, whose lines are rows.
    exact: whether operands are multiplied unchanged; if not, operands of f32 are rounded to TF32 before.
    by_parts: whether the machine reads whole parts from fast memory, and transposes parts if necessary.
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
    row_steps: rows of the tiles for the rows that `tile_rows` leaves over, largest first, ending in 1.
    grain: elements of memory-bound work that are worth a block of their own, of a team for each of its runs.
    at_once: the number of runs of all teams from which a run has more than a register of work, up to the grain; 0 if
        blocks are always worth the grain.
    slices: parts of a long axis that blocks share, by the largest number of results: if results are combined at once,
        and if one by one. parts: the same for cumulative ops.
    grain_flops: FLOPs of compute-bound work that are worth a block of their own.
    teams: the teams of threads that share blocks, smallest first; none if a block is one thread's.
    tiles: the tiles of a team in a matrix multiply. The first that sizes allow is taken; the last is for all sizes.
        None if register tiles are one thread's.
    matrix: instructions that multiply small matrices. matrix_tiles: the tiles of their products for operands of 16
        bits; for other operands K has the same length in bytes.
    fast_limit: bytes of fast memory that a launch may ask for, besides EXCHANGE_BYTES; 0 for any number.
    atomics: whether threads may add to one integer in memory at once, or take its maximum and the like.
    pair_dot: whether an instruction adds products of pairs of bf16 to a register of f32.
    tile_dot: whether it has eight registers of 16 lines of 64 bytes, and an instruction that adds to one the product of
        two that hold bf16 (`bf16_tiles.py`).
    prefetch: how many bytes ahead register tiles prefetch their columns, and the first of several passes over a row its
        elements; 0 if the machine needs no prefetching.
    narrow: kernels may have indices of 32 bits if all indices of a call are below this number; 0 for never.
    library_products: the number of multiplications from which the vendor's library computes a product of matrices, if
        there is one that can; 0 for never.
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

    @property
    def rounds_to_tf32(self) -> bool:
        """Whether a product of f32 may round its operands to TF32, if the program allows it."""
        return bool(self.library_products) or not all(mma.exact for mma in self.matrix)
