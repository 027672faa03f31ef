"""The origin of a kernel, known before it is built: so code that is there already is found without building.

Beside the machine, three things decide the code: the key of the form (`Variant.key`), what choosing the form has asked
the facts, and what building it asks them. The first two are known before, and are the kernel's identity. The questions
of the third kind are kept with the code. Another program asks its own facts; only equal answers let it have the code.

Symbols have other names in other programs. Here they are numbered in the order in which kernels take them. So the same
size may be computed with its terms in another order, which makes no difference to integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from typing import NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.sizes.asked import Answers
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.size_arguments import Known


class _Unknown(Exception):
    """Something that another process may not have, or that nobody thought of here."""


class Origin(NamedTuple):
    """The origin of a kernel.

    name: of its form. key: of its form, see `Variant.key`. symbols: of its group, sorted. answers: to what choosing the
    form has asked. facts: what the form may ask. known: what is said of the symbols where they are arguments.
    """

    name: str
    key: tuple[Hashable, ...]
    symbols: tuple[str, ...]
    answers: Answers
    facts: ShapeFacts
    known: tuple[Known, ...] = ()

    def identity(self) -> str | None:
        """Equal, in all processes, for forms that have one kernel if building it gets equal answers.

        None for a form that is made of something that cannot be written.
        """
        try:
            return _texts(self.symbols)((self.name, self.key, tuple(self.answers.items()), self.known))
        except _Unknown:
            return None


class Kept(NamedTuple):
    """The record of a kernel in the store, beside its code.

    functions: the device functions that it needs, and the keys of their code. types: of the kernels, by their names.
    """

    functions: Mapping[str, str]
    types: Mapping[str, str]


def written(kept: Kept, answers: Answers, symbols: tuple[str, ...]) -> bytes:
    """Return what `read` reads. answers: to what building the kernel has asked. symbols: of its group."""
    text = _texts(symbols)
    asked = [(method, _plain(args, text), text(answer)) for (method, args), answer in answers.items()]
    return json.dumps((asked, dict(kept.functions), dict(kept.types))).encode()


def read(content: bytes, symbols: tuple[str, ...], facts: ShapeFacts) -> Kept | None:
    """Return what was kept, if the facts give the answers that it was made of. symbols: of the group that wants it."""
    asked, functions, types = json.loads(content)
    text, own = _texts(symbols), {number: name for name, number in _numbers(symbols).items()}
    for method, args, answer in asked:
        if text(getattr(facts, method)(*(_value(each, own) for each in args))) != answer:
            return None
    return Kept(functions, types)


def _numbers(symbols: tuple[str, ...]) -> dict[str, str]:
    """The names of symbols in all programs; no program's own begin so."""
    return {name: f"%{number}" for number, name in enumerate(symbols)}


def _texts(symbols: tuple[str, ...]) -> Callable[[object], str]:
    """A function from parts of keys, and answers, to texts that are equal for equal ones. It raises _Unknown."""
    numbers = _numbers(symbols)
    known: dict[Dim | np.dtype, str] = {}

    def text(x: object) -> str:
        if type(x) is tuple:  # keys are large: these kinds are most of them
            return f"({','.join(map(text, x))})"
        if type(x) is int or type(x) is str:
            return repr(x)
        if type(x) is Dim and x in known:
            return known[x]
        if isinstance(x, tuple):
            return f"{type(x).__qualname__}({','.join(map(text, x))})"
        if x is None or isinstance(x, (str, int)):
            return repr(x)
        if isinstance(x, (Dim, np.dtype)):
            found = known.get(x)
            if found is None:
                found = known[x] = f"<{x.substitute(numbers) if isinstance(x, Dim) else x.name}>"
            return found
        if isinstance(x, Truth):
            return x.name
        if is_dataclass(x):
            return f"{type(x).__qualname__}{text(tuple(getattr(x, each.name) for each in fields(x)))}"
        raise _Unknown

    return text


def _plain(x: object, text: Callable[[object], str]) -> object:
    """A question's arguments for JSON."""
    if isinstance(x, tuple):
        return [_plain(each, text) for each in x]
    return {"size": text(x)[1:-1]} if isinstance(x, Dim) else x


def _value(x: object, own: Mapping[str, str]) -> object:
    """The argument that `_plain` wrote, for a group whose symbols have other names."""
    if isinstance(x, list):
        return tuple(_value(each, own) for each in x)
    return Dim.parse(x["size"]).substitute(own) if isinstance(x, dict) else x
