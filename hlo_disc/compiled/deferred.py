"""Kernels of an executable that are compiled after it is linked: by a thread, or when a call first launches them.

A call compiles only the kernels that it may take. Host code has a slot for each other kernel, which is filled as soon
as the kernel is compiled: at the latest when it is first launched (`ral_launch_deferred`). The thread that launches a
kernel compiles it, and waits for no other kernel. After the call a thread of the process compiles the rest, one by one,
at a low priority. When it has compiled all kernels of a program, it builds the whole program, which is what is saved.
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
from hlo_disc.compiled.program import Code

logger = logging.getLogger("hlo_disc")

# How much less the thread is worth to the system than others: a tenth of the time where there is not enough for all.
_NICE = 10
# Seconds that a thread which needs a kernel at exit waits before it makes one.
_PATIENCE = 1.0


class Unmade(Protocol):
    """The kernels that a program lacks."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the kernels. A function of a kernel is named by `prefix`, the kernel's name and a suffix."""
        ...

    @property
    def prefix(self) -> str: ...

    @property
    def modules(self) -> str:
        """The symbol of the modules that a driver loads, in the object code of each kernel; "" if none does."""
        ...

    def make(self, name: str, known: Collection[str]) -> bytes:
        """Compile a kernel, which may call the known functions by symbol. Return its object code.

        Raises CompileError, UnsupportedOpError.
        """
        ...

    def whole(self) -> Code:
        """Build the program, all of whose kernels are made, and keep it for other processes."""
        ...


class Linked(Protocol):
    """Object code that is linked into this process; it lives as long as this object does."""

    def address(self, name: str) -> int: ...

    def functions(self) -> Mapping[str, int]:
        """Return the addresses of all functions, by name."""
        ...


class Tally:
    """The number of deferred kernels of a program.

    total: all of them. waiting: those that are not compiled yet. seconds: the time that the others took.
    """

    def __init__(self, total: int):
        self.total, self.waiting, self.seconds = total, total, 0.0
        self.lock = threading.Lock()

    def count(self, seconds: float) -> None:
        """Count one more kernel that was compiled, in so many seconds."""
        with self.lock:
            self.waiting -= 1
            self.seconds += seconds


class Deferred:
    """The deferred kernels of an executable, which holds this object. Threads may ask for any of them at the same time.

    first: the code that is already linked. link: links object code into the process, with the addresses of functions
    that it may call. packs_inputs: opened when all kernels are compiled. Until then calls pack no inputs, so that no
    call waits for kernels that read packed inputs. late_modules: of the kernels that are compiled, for a driver.
    """

    def __init__(self, unmade: Unmade, first: Linked, link: Callable[[bytes, Mapping[str, int]], Linked]):
        self._unmade: Unmade | None = unmade
        self._link = link
        self._first = first  # deferred kernels call its functions
        self._functions = dict(first.functions())
        self._names = {name.split("_")[0]: name for name in unmade.names}
        self._prefix, self._modules = unmade.prefix, unmade.modules
        self._linked: dict[str, Linked] = {}
        self._whole: Code | None = None
        self._left = collections.deque(unmade.names)
        self.tally = Tally(len(unmade.names))
        self.packs_inputs = ral.Gate()
        self.late_modules = ral.LateModules()
        self.renew_locks()
        _alive.add(self)

    def renew_locks(self) -> None:
        """Replace all locks. The threads that hold them do not exist in a child process."""
        self._locks: Mapping[str, AbstractContextManager[object]] = {
            name: threading.RLock() for name in self._names.values()
        }
        self._whole_lock = threading.RLock()
        self.tally.lock = threading.Lock()

    def __call__(self, function: str) -> int:
        """Return the address of what launches a kernel's function. Raises the errors of the kernel's compilation."""
        name = self._names[function.removeprefix(self._prefix).split("_")[0]]
        return self._make(name).address(self._modules or function)

    def _make(self, name: str) -> Linked:
        """Compile and link a kernel, unless that is done. Return it.

        While another thread compiles it, the calling thread waits; after an error it tries itself.
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
                        self._linked[name] = linked
                        self._functions |= linked.functions()
                        self._fill(linked)
                        self.tally.count(time.perf_counter() - start)
            if not self.tally.waiting:
                background.add(self)
        return self._linked[name]

    def _fill(self, linked: Linked) -> None:
        """Let the runtime find a kernel: XLA's threads that launch it then wait for no Python, which may be ending."""
        if self._modules:
            self.late_modules.add(linked.address(self._modules))
            return
        for function, address in linked.functions().items():
            with suppress(KeyError):  # the kernel's own functions have none
                ral.fill(self._first.address(f"{function}{SLOT}"), address)

    @property
    def is_whole(self) -> bool:
        """Whether the whole program is built."""
        return self._whole is not None

    def whole(self) -> Code:
        """Return the code of the program with all its kernels. Raises the errors of their compilation."""
        with _makers.one(), self._whole_lock:
            if self._whole is None:
                assert self._unmade is not None
                for name in self._names.values():
                    self._make(name)
                self._whole = self._unmade.whole()
                self._unmade = None  # with the graph, and what it has of weights
                self.packs_inputs.open()
        return self._whole

    def advance(self) -> bool:
        """Compile one more kernel, or after the last one build the program. Return whether there is more to do.

        A kernel that cannot be compiled is left to the call that asks for it, which raises the error.
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
    """The threads that compile kernels now. The process's exit and its forks wait for them.

    Exit destroys LLVM's data, and Python ends threads wherever they are. A child process would inherit locks that no
    thread releases.
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
        """Register the calling thread as one of the threads, once no other thread holds them.

        At exit it waits for _PATIENCE only. Mostly the process has ended by then; if not, something waits for this
        thread.
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
        """Hold the threads: let no other thread become one of them, and wait until those that are have finished."""
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
        """Hold the threads at exit. After _PATIENCE a thread may go on."""
        self._until = time.monotonic() + _PATIENCE
        self.ended = True
        self.hold()


class _Background:
    """The thread of this process that compiles deferred kernels. It ends when none is left, and starts again for more.

    A step compiles one kernel, or builds one program whose kernels are all compiled.
    """

    def __init__(self) -> None:
        self._waiting: collections.deque[weakref.ref[Deferred]] = collections.deque()
        self.renew()

    def renew(self) -> None:
        """Forget the thread, which a child process does not have."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, deferred: Deferred) -> None:
        """Queue kernels to compile, if their executable lives until then."""
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
        """Do one step. Return whether there is more to do. The executable may be freed before the step and after it."""
        with _makers.one():
            deferred = reference()
            return deferred is not None and not _makers.ended and deferred.advance()


def _lower_priority() -> None:
    """Let the system prefer other threads, if it has priorities of threads."""
    with suppress(OSError, AttributeError):
        least = 19
        nice = min(os.getpriority(os.PRIO_PROCESS, 0) + _NICE, least)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


_alive: weakref.WeakSet[Deferred] = weakref.WeakSet()
_makers = _Makers()
background = _Background()


def _start_over() -> None:
    """Reset all threads and locks in a child process."""
    _makers.renew()
    background.renew()
    for deferred in list(_alive):
        deferred.renew_locks()
        deferred.packs_inputs.open()  # no thread makes them here


atexit.register(_makers.end)
os.register_at_fork(before=_makers.hold, after_in_parent=_makers.release, after_in_child=_start_over)
