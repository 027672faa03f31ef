"""Kernels of an executable that are made after it is linked: when a call first launches them, or before, by a thread.

A call compiles only the kernels that it may take. Host code has a slot for each other one, which is filled as soon as
the kernel is made: at the latest when it is first launched (`ral_launch_deferred`). The thread that launches a kernel
makes it, and waits for no other one. After the call a thread of the process makes the rest, one by one, at a low
priority. When all kernels of a program are there, it makes the program as a whole, as it is saved.
"""

from __future__ import annotations

import atexit
import collections
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

from hlo_disc import ral
from hlo_disc.abi import SLOT

logger = logging.getLogger("hlo_disc")

# How much less the thread is worth to the system than others: a tenth of the time where there is not enough for all.
_NICE = 10
# Seconds that a thread which needs a kernel at exit waits before it makes one.
_PATIENCE = 1.0


class Unmade(Protocol):
    """The kernels that a program lacks."""

    @property
    def names(self) -> Sequence[str]:
        """The kernels, by name. A function of a kernel has its name behind `prefix`, and more behind it."""
        ...

    @property
    def prefix(self) -> str: ...

    def make(self, name: str, known: Collection[str]) -> bytes:
        """Object code of a kernel, which may call functions that are known, by symbol.

        Raises CompileError, UnsupportedOpError.
        """
        ...

    def whole(self, made: Sequence[bytes]) -> bytes:
        """Object code of the program, of that of all these kernels, which is then kept for other processes."""
        ...


class Linked(Protocol):
    """Object code in this process; it lives as long as this does."""

    def address(self, name: str) -> int: ...

    def functions(self) -> Mapping[str, int]:
        """All functions, by name."""
        ...


class Tally:
    """The number of kernels of a program that are made later, of those that are not made yet, and the seconds that the
    others took.
    """

    def __init__(self, total: int):
        self.total, self.waiting, self.seconds = total, total, 0.0
        self.lock = threading.Lock()

    def count(self, seconds: float) -> None:
        """Count one more that was made."""
        with self.lock:
            self.waiting -= 1
            self.seconds += seconds


class Deferred:
    """The deferred kernels of an executable, which holds it. Any thread may ask for any of them, at once.

    first: the code that there is. link: puts object code into the process, with the addresses of what it may call.
    packs_inputs: opened when all kernels are there, so that packed inputs are waited for by nobody.
    """

    def __init__(self, unmade: Unmade, first: Linked, link: Callable[[bytes, Mapping[str, int]], Linked]):
        self._unmade: Unmade | None = unmade
        self._link = link
        self._first = first  # deferred kernels call its functions
        self._functions = dict(first.functions())
        self._names = {name.split("_")[0]: name for name in unmade.names}
        self._prefix = unmade.prefix
        self._objects: dict[str, bytes] = {}
        self._linked: dict[str, Linked] = {}
        self._whole: bytes | None = None
        self._left = collections.deque(unmade.names)
        self.tally = Tally(len(unmade.names))
        self.packs_inputs = ral.Gate()
        self.renew_locks()
        _alive.add(self)

    def renew_locks(self) -> None:
        """Forget who has a lock: in a child process those threads are not."""
        self._locks: Mapping[str, AbstractContextManager[object]] = {
            name: threading.RLock() for name in self._names.values()
        }
        self._whole_lock = threading.RLock()
        self.tally.lock = threading.Lock()

    def __call__(self, function: str) -> int:
        """The address of a function of a kernel, by its symbol. Raises what making the kernel raises."""
        name = self._names[function.removeprefix(self._prefix).split("_")[0]]
        return self._make(name).address(function)

    def _make(self, name: str) -> Linked:
        """Make a kernel, unless it is there. A thread that comes while another one makes it waits; after an error it
        tries itself.
        """
        if name not in self._linked:
            with _makers.one(), self._locks[name]:
                if name not in self._linked:
                    start = time.perf_counter()
                    assert self._unmade is not None
                    functions = dict(self._functions)
                    made = self._unmade.make(name, functions.keys())
                    linked = self._link(made, {**functions, **ral.symbols()})
                    if name not in self._linked:  # a signal's handler may have come between
                        self._objects[name], self._linked[name] = made, linked
                        self._functions |= linked.functions()
                        self._fill(linked)
                        self.tally.count(time.perf_counter() - start)
            if not self.tally.waiting:
                background.add(self)
        return self._linked[name]

    def _fill(self, linked: Linked) -> None:
        """Let launches find a kernel. Those of XLA's threads then never wait for Python, which may be going."""
        for function, address in linked.functions().items():
            with suppress(KeyError):  # the kernel's own functions have none
                ral.fill(self._first.address(f"{function}{SLOT}"), address)

    @property
    def is_whole(self) -> bool:
        """Whether all is done."""
        return self._whole is not None

    def whole(self) -> bytes:
        """Object code of the program with all its kernels. Raises what making them raises."""
        with _makers.one(), self._whole_lock:
            if self._whole is None:
                assert self._unmade is not None
                for name in self._names.values():
                    self._make(name)
                self._whole = self._unmade.whole([self._objects[name] for name in self._names.values()])
                self._unmade = None  # with the graph, and what it has of weights
                self._objects.clear()
                self.packs_inputs.open()
        return self._whole

    def advance(self) -> bool:
        """Make one more kernel, or after the last one the program; returns whether there is more to do.

        A kernel that cannot be made is left to the call that asks for it, which says why.
        """
        try:
            if self._left:
                self._make(self._left.popleft())
                return True
            if not self.tally.waiting:
                self.whole()
        except Exception:
            logger.info("a deferred kernel could not be made", exc_info=True)
            return bool(self._left)
        return False


class _Makers:
    """The threads that make kernels now. The process's exit and its forks wait for them.

    At exit LLVM's data goes, and Python ends threads wherever they are. A child would find locks that nobody releases.
    """

    def __init__(self) -> None:
        self.ended = False
        self.renew()

    def renew(self) -> None:
        """Forget all threads, which a child process does not have."""
        self._change = threading.Condition()
        self._depths: dict[int, int] = {}
        self._holder: int | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        """The calling thread is one, as soon as no other one holds them.

        At exit that is for a while. Mostly the process is gone then; if not, something waits for this thread.
        """
        me = threading.get_ident()
        with self._change:
            while not self._may_go_on(me):
                self._change.wait(_PATIENCE if self.ended else None)
            self._depths[me] = self._depths.get(me, 0) + 1
        try:
            yield
        finally:
            with self._change:
                left = self._depths.pop(me, 1) - 1
                if left:
                    self._depths[me] = left
                self._change.notify_all()

    def _may_go_on(self, thread: int) -> bool:
        over = self.ended and time.monotonic() > self._until
        return over or self._holder in (None, thread) or thread in self._depths

    def hold(self) -> None:
        """Let no other thread become one, and wait for those that are."""
        me = threading.get_ident()  # a finaliser that runs in a thread which makes a kernel may fork
        with self._change:
            self._change.wait_for(lambda: self._may_go_on(me))
            self._holder = me
            self._change.wait_for(lambda: not self._depths.keys() - {me})

    def release(self) -> None:
        """End what `hold` began."""
        with self._change:
            self._holder = None
            self._change.notify_all()

    def end(self) -> None:
        """Hold them for a while."""
        self._until = time.monotonic() + _PATIENCE
        self.ended = True
        self.hold()


class _Background:
    """The thread of this process that makes what is deferred. It ends when nothing is left, and comes again.

    A step makes one kernel, or one program of kernels that are there.
    """

    def __init__(self) -> None:
        self._waiting: collections.deque[weakref.ref[Deferred]] = collections.deque()
        self.renew()

    def renew(self) -> None:
        """Forget the thread, which a child process does not have."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, deferred: Deferred) -> None:
        """Kernels to make, if their executable lives until then."""
        with self._lock:
            if _makers.ended:
                return
            self._waiting.append(weakref.ref(deferred))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="hlo_disc-deferred", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError:  # the process may have no more: calls make what they need
                    deferred.packs_inputs.open()

    def _run(self) -> None:
        _lower_priority()
        while True:
            with self._lock:
                if _makers.ended or not self._waiting:
                    self._thread = None
                    return
                reference = self._waiting[0]
            if not self._advance(reference):
                with self._lock:
                    self._waiting.popleft()

    @staticmethod
    def _advance(reference: weakref.ref[Deferred]) -> bool:
        """Make a step; the executable may go before and behind it."""
        with _makers.one():
            deferred = reference()
            return deferred is not None and not _makers.ended and deferred.advance()


def _lower_priority() -> None:
    """Let the system prefer other threads, if it knows threads."""
    with suppress(OSError, AttributeError):
        least = 19
        nice = min(os.getpriority(os.PRIO_PROCESS, 0) + _NICE, least)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


_alive: weakref.WeakSet[Deferred] = weakref.WeakSet()
_makers = _Makers()
background = _Background()


def _start_over() -> None:
    """In a child process."""
    _makers.renew()
    background.renew()
    for deferred in list(_alive):
        deferred.renew_locks()
        deferred.packs_inputs.open()  # no thread makes them here


atexit.register(_makers.end)
os.register_at_fork(before=_makers.hold, after_in_parent=_makers.release, after_in_child=_start_over)
