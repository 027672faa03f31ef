"""Measures a profile: calls of a program that is linked once more, with runtime functions that record launches.

The program that serves calls does not change. Work outside of launches is in no launch's time.
"""

from __future__ import annotations

import functools
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hlo_disc import ral
from hlo_disc.compiled.account import Account, Launch, parse
from hlo_disc.compiled.program import Program
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, DeviceError
from hlo_disc.explain.text import main_ops
from hlo_disc.profile import limits
from hlo_disc.profile.result import LaunchTime, Profile, Work

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hlo_disc import ral


_LEAST = 3  # calls, however long they take
_MOST = 1000


class Noted(NamedTuple):
    """A launch as the runtime records it: the kernel, or the library call; its blocks; nanoseconds."""

    kernel: str
    blocks: int
    start: int
    end: int


def measure(
    program: Program, native: ral.Executable, names: Mapping[int, str], args: Sequence[ArrayLike], seconds: float
) -> Profile:
    """Call a program for so many seconds.

    native: linked with `ral.recorded_symbols`. names: of its functions, by address. Raises what a call raises, and
    ArgumentError for no time.
    """
    if not seconds > 0:
        raise ArgumentError(f"seconds={seconds}: give a number above 0")
    arguments = tuple(args)
    for _ in range(2):  # the second one packs what will not change
        native.record(arguments)
    account = parse(program.account) if program.account else Account(program.source, [], [], [], [], 0, [], 0)
    kernels = {kernel.partition("_")[0]: kernel for kernel in account.kernels}
    named = {address: _kernel(name, kernels) for address, name in names.items()}
    calls: list[tuple[int, int, list[Noted]]] = []
    end = time.perf_counter() + seconds
    while len(calls) < _LEAST or (time.perf_counter() < end and len(calls) < _MOST):
        recorded = native.record(arguments)
        launches = recorded.launches
        calls.append((recorded.start, recorded.end, [_noted(program, named, launch) for launch in launches]))
    # Data may decide what is launched: calls that launch as the last one did.
    sequence = [launch.kernel for launch in calls[-1][2]]
    alike = [call for call in calls if [launch.kernel for launch in call[2]] == sequence]
    sizes = _sizes(program, native, arguments)
    numbers = launch_numbers(sequence, account)
    functions = _functions_of_kernels(launches, named)
    found = []
    for i, (kernel, number) in enumerate(zip(sequence, numbers, strict=True)):
        taken = median(call[2][i].end - call[2][i].start for call in alike) / 1e9
        found.append(_launch_time(kernel, number, taken, calls[-1][2][i].blocks, account, sizes, functions[kernel]))
    host = median(stop - start - sum(x.end - x.start for x in noted) for start, stop, noted in alike) / 1e9
    timed = tuple((start, stop, tuple((x.start, x.end) for x in noted)) for start, stop, noted in alike)
    return Profile(account.name, sizes, host, tuple(found), timed, native.workers, _limits())


@functools.cache
def _limits() -> limits.Limits | None:
    """Measure the limits of this machine, which takes two seconds; None if that cannot be done."""
    try:
        return limits.measure()
    except DeviceError:
        return None


def _kernel(function: str, kernels: Mapping[str, str]) -> str:
    """Return the kernel of a function of the object code, as "kernels.k3_dot__blocks"."""
    found = re.search(r"\b(k\d+)_", function)
    return kernels.get(found[1], function) if found else function


def _noted(program: Program, named: Mapping[int, str], launch: ral.Launch) -> Noted:
    if not launch.function:
        return Noted(program.calls[launch.number].where, 1, launch.start, launch.end)
    return Noted(named.get(launch.function, "another kernel"), launch.number, launch.start, launch.end)


def _functions_of_kernels(launches: Sequence[ral.Launch], named: Mapping[int, str]) -> Mapping[str, int]:
    """Count a kernel's functions that were launched: a variant of a group may need several, one after the other."""
    return Counter(named.get(address, "another kernel") for address in {x.function for x in launches if x.function})


def _sizes(program: Program, native: ral.Executable, arguments: Sequence[ArrayLike]) -> dict[str, int]:
    """Return the size of each dim in a call."""
    env = native.plan([size for x in arguments for size in np.shape(x)])
    return dict(zip(program.symbols, env[program.env.symbols :], strict=False))


def launch_numbers(kernels: Sequence[str], account: Account) -> list[int | None]:
    """Return the number of each launch in the account, by the kernels that were launched, in order; None if unknown.

    Launches that share kernels do equal work in one call. Without loops and branches they come in the account's order.
    """
    inside = {number: {form.kernel for form in launch.forms} for number, launch in enumerate(account.launches)}
    if not any(isinstance(item, list) and item[1] for item in account.flow):
        found = _in_order(kernels, inside)
        if found is not None:
            return found
    owners: dict[str, list[int]] = {}
    for number, names in inside.items():
        for name in names:
            owners.setdefault(name, []).append(number)
    return [owners[name][0] if len(owners.get(name, ())) == 1 else None for name in kernels]


def _in_order(kernels: Sequence[str], inside: Mapping[int, set[str]]) -> list[int | None] | None:
    found: list[int | None] = []
    numbers = list(inside)
    at = 0
    while at < len(numbers):
        names = inside[numbers[at]]
        alike = 1
        while at + alike < len(numbers) and inside[numbers[at + alike]] == names:
            alike += 1
        count = len(found)
        while count < len(kernels) and kernels[count] in names:
            count += 1
        each = (count - len(found)) // alike
        for number in numbers[at : at + alike]:
            found += [number] * each
        at += alike
    return found if len(found) == len(kernels) else None


def _launch_time(
    kernel: str,
    number: int | None,
    seconds: float,
    blocks: int,
    account: Account,
    sizes: Mapping[str, int],
    functions: int,
) -> LaunchTime:
    candidates = [account.launches[number]] if number is not None else _of_kernel(kernel, account)
    ops = main_ops(candidates[0].ops) if candidates else kernel
    place = main_place(candidates[0], account) if candidates else ""
    works = {_work(launch, sizes, functions) for launch in candidates}
    work = works.pop() if len(works) == 1 else None
    return LaunchTime(kernel, number, ops, place, blocks, seconds, work)


def _of_kernel(kernel: str, account: Account) -> list[Launch]:
    return [launch for launch in account.launches if any(form.kernel == kernel for form in launch.forms)]


def main_place(launch: Launch, account: Account) -> str:
    """Return the user's line of most ops of a launch, products before all others."""
    counts: Counter[int] = Counter()
    for name, place, count in launch.ops:
        if account.places[place] and name != "constant":
            counts[place] += count + 100 * (name == "dot_general")
    return account.places[counts.most_common(1)[0][0]] if counts else ""


def _work(launch: Launch, sizes: Mapping[str, int], functions: int) -> Work | None:
    """Return the work of one of a launch's functions, assuming equal shares; None for sizes known only at run time."""
    try:
        operations, moved = (Dim.parse(x).evaluate(sizes) for x in (launch.operations, launch.bytes))
    except (KeyError, ZeroDivisionError):
        return None
    return Work(operations // max(functions, 1), moved // max(functions, 1), launch.factors)
