"""From a StableHLO module to a DHLO graph: `main` with the sizes that calls and callers name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Value
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.errors import ParseError, ShapeError
from hlo_disc.import_.sizes import symbols
from hlo_disc.import_.sizes.shapes import TOKEN, Bundle, Operand, Symbolic, Token
from hlo_disc.import_.stablehlo.decode import Decoder, UnsupportedTypeError, text
from hlo_disc.import_.stablehlo.legalise import legalised
from hlo_disc.import_.stablehlo.names import Inputs, input_shapes
from hlo_disc.import_.stablehlo.policy import STABLEHLO, Origin, StaticShapes
from hlo_disc.import_.stablehlo.reader import NeedsLegalising, Reader
from hlo_disc.import_.stablehlo.reopen import reopen
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.jax_edge.jax_callbacks import Callback
    from hlo_disc.import_.sizes.symbols import DimsOfInputs


def read_module(
    module: ir.Module,
    *,
    dims: DimsOfInputs | None = None,
    constraints: Sequence[str] = (),
    names: Sequence[str] | None = None,
    origin: Origin = STABLEHLO,
    asked: Sequence[Guard] = (),
    callbacks: Sequence[Callback] = (),
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """Read a module's `main`. Returns its graph.

    dims: shape strings ("(b, s, _)") or sequences, by input name or "args[i]", or one for each input. Naming a size
    that the module writes as a number re-opens the module: all other sizes are inferred again from the named ones.
    constraints: conditions on the symbols that calls must meet, as "s <= 512" or "s % 8 == 0". asked: conditions that
    select the program's calls. names: the inputs' names in messages. origin: the producer's conventions.
    callbacks: Python functions that it calls, by number. sizes: arguments that are numbers of the module, by name.

    Raises ParseError (no `main`), UnsupportedOpError, ShapeError (sizes that can never agree, a symbol that no
    argument determines), ArgumentError (`dims` that fit no input).
    """
    try:
        return _read(module, dims, constraints, names, origin, asked, callbacks, sizes, legal=False)
    except NeedsLegalising:
        return _read(legalised(module), dims, constraints, names, origin, asked, callbacks, sizes, legal=True)


def _read(
    module: ir.Module,
    dims: DimsOfInputs | None,
    constraints: Sequence[str],
    names: Sequence[str] | None,
    origin: Origin,
    asked: Sequence[Guard],
    callbacks: Sequence[Callback],
    sizes: Mapping[str, int],
    legal: bool,
) -> Graph:
    decoder = Decoder()
    functions = functions_of(module)
    main = functions.get("main")
    if main is None or not main.regions[0].blocks:
        told = ((f"@{name}", op.regions[0].blocks) for name, op in functions.items())
        found = ", ".join(name if body else f"{name}, which has no body" for name, body in told) or "no functions"
        raise ParseError(f"the module has no function @main to compile; it has {found}")
    inputs = input_shapes(module, main, decoder, dims, names)
    attributes = module.operation.attributes
    name = text(attributes["sym_name"]) if "sym_name" in attributes else "main"

    def read(policy: StaticShapes) -> Graph:
        reader = Reader(functions, decoder, policy, origin, legal, callbacks)
        return read_block(reader, name, main.regions[0].blocks[0], inputs, constraints, asked, sizes)

    known = symbols.fixed_sizes(symbols.parse_constraints(constraints), inputs.reopened)
    reopened = {name: size for name, size in inputs.reopened.items() if known.get(name) != size}
    return reopen(reopened, read) if reopened else read(StaticShapes())


def read_block(
    reader: Reader,
    name: str,
    block: ir.Block,
    inputs: Inputs,
    constraints: Sequence[str],
    asked: Sequence[Guard] = (),
    known: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """Read a program whose first op is the first of a block. Returns its graph."""
    bindings = symbols.Bindings(inputs.inputs)
    reader.guards += bindings.guards()
    for guard in symbols.parse_constraints(constraints):
        reader.guards.append(guard)
        symbols.add_fact(reader.facts, guard.lhs, guard.relation, guard.rhs)
    values = tuple(Value(x.dtype, x.shape, None, i) for i, x in enumerate(inputs.inputs))
    rest = iter(values)
    sizes = dict(inputs.size_arguments)
    operands: list[Operand] = []
    for position, argument in enumerate(block.arguments):
        if reader.is_token(argument):
            operands.append(TOKEN)
            continue
        if position not in sizes:
            operands.append(next(rest))
            continue
        size = sizes[position]
        if size not in known and size not in bindings.symbols and any(True for _ in argument.uses):
            raise ShapeError(
                f"@main takes the size {size!r} as an argument, but no input is known to have it as a dimension: say "
                f"which, as in dims={{{inputs.inputs[0].name if inputs.inputs else 'x'!r}: '({size}, …)'}}"
            )
        d = Dim.const(known[size]) if size in known else Dim.symbol(size)
        operands.append(Symbolic(reader.decoder.tensor(argument.type)[0], (), (d,)))
    for d in {d for x in inputs.inputs for d in x.shape}:
        symbols.add_fact(reader.facts, d, ">=", ZERO)
    for guard in asked:
        if guard.relation == "==":  # calls that break others may turn out to have the same program
            reader.facts.add_equal(guard.lhs, guard.rhs)
    try:
        results = tuple(reader.data(x) for x in _flat(reader.run(block, operands)))
    except UnsupportedTypeError as error:
        reader.unsupported(str(error))
    for made, meaning in reader.evaluator.scalar.defined.items():
        bindings.symbols[str(made)] = meaning.substitute(bindings.symbols)
    definitions = reader.data_dims.definitions
    asked = (*asked, *reader.asked)
    symbols.check_bound([*reader.guards, *asked], bindings.symbols, definitions)
    return Graph(
        name=name,
        inputs=values,
        input_names=tuple(x.name for x in inputs.inputs),
        outputs=results,
        ops=tuple(reader.builder.ops),
        facts=reader.facts,
        bindings=bindings.symbols,
        guards=tuple(reader.guards),
        asked=asked,
        definitions=definitions,
    )


def _flat(results: Iterable[Operand]) -> Iterator[Operand]:
    """Flatten a program's results: tokens are dropped, tuples expanded."""
    for x in results:
        if isinstance(x, Bundle):
            yield from _flat(x)
        elif not isinstance(x, Token):
            yield x


def functions_of(module: ir.Module) -> dict[str, ir.OpView]:
    """Return the module's functions by name."""
    found = (op for op in module.body.operations if op.operation.name == "func.func")
    return {text(op.attributes["sym_name"]): op for op in found}
