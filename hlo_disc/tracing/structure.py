"""Sizes in the static data of pytrees, as `shape` of a sparse matrix is.

To JAX, the data that a pytree class keeps beside its arrays is a part of the function; JAX compiles for each value.
Here a number in it that changes from call to call, or follows from sizes, travels as the shape (n, 0) of one more
array, after all others. To a program it is a size of an argument or a result.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from jax._src.export.shape_poly import _DimExpr as SymbolicSize
    from jax.tree_util import PyTreeDef
    from jax.typing import ArrayLike

    Structure: TypeAlias = "PyTreeDef | Sized"


# Classes that JAX knows itself: what it keeps of them are keys.
_CONTAINERS = (tuple, list, dict, type(None), collections.OrderedDict, collections.defaultdict)
_LARGEST = 2**31 - 1
_SHOWN = 60


class Sized:
    """A structure, a `PyTreeDef`, whose last arrays have the numbers at these places of its static data."""

    def __init__(self, tree: PyTreeDef, places: tuple[int, ...]):
        self._tree, self.places = _with(tree, dict.fromkeys(places, 0)), places
        self.num_nodes, self.num_leaves = tree.num_nodes, tree.num_leaves + len(places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sized) and (self._tree, self.places) == (other._tree, other.places)

    def __hash__(self) -> int:
        return hash((self._tree, self.places))

    def unflatten(self, arrays: Iterable[ArrayLike]) -> Any:
        arrays = list(arrays)
        count = len(self.places)
        sizes = [array.shape[0] for array in arrays[-count:]]
        return _with(self._tree, dict(zip(self.places, sizes, strict=True))).unflatten(arrays[:-count])


class Structures:
    """The numbers in the static data of arguments that have changed between calls; entries are only added."""

    def __init__(self) -> None:
        # By structure without numbers: those of the first call, and the places where later ones had others.
        self._known: dict[PyTreeDef, tuple[dict[int, int], tuple[int, ...]]] = {}

    def of(self, tree: PyTreeDef) -> tuple[Structure, list[int], tuple[Structure, list[int]] | None]:
        """Return the structure with the sizes that have changed taken from arrays, and these sizes. When a size
        changes for the first time, also return the structure's form until now, and the sizes that were fixed in it.
        """
        numbers: dict[int, int] = {}

        def noted(place: int, item: object) -> object:
            if type(item) is not int or not 0 <= item <= _LARGEST:
                return item
            numbers[place] = item
            return 0

        form = _mapped(tree, noted)
        if not numbers:
            return tree, [], None
        first, places = self._known.setdefault(form, (numbers, ()))
        new = tuple(k for k, n in numbers.items() if n != first[k] and k not in places)
        before = None
        if new:
            old = _with(tree, {k: first[k] for k in new})
            before = (Sized(old, places) if places else old), [first[k] for k in new]
            places += new
            self._known[form] = first, places
        return (Sized(tree, places) if places else tree), [numbers[k] for k in places], before


def arrays(sizes: Iterable[int]) -> list[np.ndarray]:
    """Return the arrays that a call passes for the sizes in its structure."""
    return [np.empty((n, 0), bool) for n in sizes]


def of_results(tree: PyTreeDef) -> tuple[Structure, list[SymbolicSize]]:
    """Return the structure with its symbolic sizes taken from arrays, and these sizes.

    Raises TypeError where a size lies too deep inside an object to be replaced.
    """
    sizes: dict[int, SymbolicSize] = {}

    def noted(place: int, item: object) -> object:
        if _is_symbolic(item):
            sizes[place] = item
        elif any(map(_is_symbolic, _inside(item))):
            raise TypeError(f"a result keeps a size in a {type(item).__name__}")
        return item

    _mapped(tree, noted)
    return (Sized(tree, tuple(sizes)) if sizes else tree), list(sizes.values())


def changes(old: PyTreeDef, new: PyTreeDef, names: Sequence[str]) -> list[str]:
    """Describe how static data differs, by the names of its items; nothing if something else differs."""
    (form, before), (other, after) = _apart(old), _apart(new)
    if form != other:
        return []
    pairs = zip(names, before, after, strict=True)
    return [f"{name} was {_shown(x)} and is now {_shown(y)}" for name, x, y in pairs if x is not y and x != y]


def _apart(tree: PyTreeDef) -> tuple[PyTreeDef, list[object]]:
    """Split the structure into itself without static data, and the items of that."""
    items: list[object] = []
    return _mapped(tree, lambda _, item: items.append(item)), items


def names(arguments: Iterable[tuple[str, object]]) -> list[str]:
    """Return the names of the items of static data in these named pytrees, as "x.shape[0]"."""
    return [name for argument, value in arguments for name in _names(value, argument)]


def _names(value: object, path: str) -> Iterator[str]:
    from jax import tree_util

    below = tree_util.default_registry.flatten_one_level_with_keys(value)
    if below is None:
        return
    leaves, tree = tree_util.tree_flatten(value)
    for place, _ in enumerate(_items(_own(tree))):
        yield path + _attribute(tree, leaves, place)
    for key, child in below[0]:
        yield from _names(child, path + tree_util.keystr((key,)))


def _attribute(tree: PyTreeDef, leaves: Sequence[object], place: int) -> str:
    """Test whether an instance of a class has an item of its own static data."""
    mark = object()
    try:
        found = vars(_with(tree, {place: mark}).unflatten(leaves))
        return next(f".{name}{at}" for name, data in found.items() for at, item in _items(data) if item is mark)
    except Exception:  # the class makes something else of it
        return f" (static {place})"


def _own(tree: PyTreeDef) -> object:
    """Return the data that the outermost node's class keeps beside its children; () for JAX's own classes."""
    kind, data = tree.node_data()
    return () if kind in _CONTAINERS or data is None else data


def _items(data: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the items of nested containers, with their paths."""
    if type(data) is dict:
        for key, below in data.items():
            yield from _items(below, f"{path}[{key!r}]")
    elif isinstance(data, tuple | list):
        for k, below in enumerate(data):
            yield from _items(below, f"{path}[{k}]")
    else:
        yield path, data


def _with(tree: PyTreeDef, items: Mapping[int, object]) -> PyTreeDef:
    """Return the structure with these items at these places of its static data."""
    return _mapped(tree, lambda place, item: items.get(place, item))


def _mapped(tree: PyTreeDef, change: Callable[[int, object], object]) -> PyTreeDef:
    """Return the structure with change(place, item) for each item of static data, numbered parents first."""
    from jax import tree_util

    places = itertools.count()

    def node(tree: PyTreeDef) -> PyTreeDef:
        found = tree.node_data()
        if found is None:
            return tree
        kind, data = found
        data = data_of(data) if kind not in _CONTAINERS and data is not None else data
        children = list(map(node, tree.children()))
        return tree_util.PyTreeDef.from_node_data_and_children(tree_util.default_registry, (kind, data), children)

    def data_of(data: Any) -> Any:
        if type(data) is dict:
            return {key: data_of(below) for key, below in data.items()}
        if isinstance(data, tuple | list):
            below = list(map(data_of, data))
            return type(data)(*below) if hasattr(data, "_fields") else type(data)(below)
        return change(next(places), data)

    return node(tree)


def _is_symbolic(item: object) -> bool:
    from jax import export

    return bool(export.is_symbolic_dim(item))


def _inside(item: object) -> Iterator[object]:
    """Yield the items in an object's attributes, and in the attributes of these; nothing for classes and the like."""
    if not isinstance(item, type | types.ModuleType | types.FunctionType):
        for _, below in _items(getattr(item, "__dict__", {})):
            yield from (below, *(inner for _, inner in _items(getattr(below, "__dict__", {}))))


def _shown(item: object) -> str:
    text = getattr(item, "__qualname__", None) or repr(item)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
