"""The handlers of custom calls: the runtime's own, and XLA FFI handlers that the user or jaxlib has registered.

JAX itself is not imported: jaxlib keeps XLA's registry. What was registered before XLA's CPU client exists waits in a
queue of jaxlib's, and what jaxlib ships is registered by `import jax` only; both are looked at. Of what it ships, calls
of LAPACK are the runtime's own here, because libraries without Python need them too.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Mapping
from typing import Any

from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.ral import _ral
from hlo_disc.ral.entries import Handlers

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]

_fresh_types = itertools.count(1 << 40)
_own: dict[str, dict[str, Any]] = {}  # what users have registered with us


def find(target: str) -> Handlers | None:
    """Return the addresses of a target's handlers for the CPU; None for an unknown target.

    Raises UnsupportedOpError for a target of the API before the XLA FFI.
    """
    own = _ral.own_handlers().get(target)
    if own:
        return Handlers(execute=own)
    lapack = _ral.lapack_handlers().get(target)
    if lapack and target not in _own:
        return Handlers(execute=lapack)
    found = _own.get(target) or _registered(target) or _waiting(target) or _jaxlib().get(target)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise UnsupportedOpError(f"custom call @{target}: its target is no XLA FFI handler but of the API before it")
    return Handlers(**{stage: _address(found[stage]) for stage in Handlers._fields if found.get(stage) is not None})


def is_lapack(target: str) -> bool:
    """Whether the target is a function of linear algebra; these refuse empty matrices."""
    return lapack_name(target) is not None or target in _jaxlib()


def lapack_name(target: str) -> str | None:
    """Return the name of LAPACK's function for a handler of the runtime's; None for another target."""
    return target.removeprefix("lapack_").removesuffix("_ffi") if target in _ral.lapack_handlers() else None


def lapack_function(target: str) -> int:
    """Return the address of that function in SciPy; 0 for another target."""
    name = lapack_name(target)
    if name is None:
        return 0
    from scipy.linalg import cython_blas, cython_lapack

    return _address(cython_lapack.__pyx_capi__.get(name) or cython_blas.__pyx_capi__[name])


def register_target(name: str, function: object) -> None:
    """Let programs that are made from now on call a handler: a capsule with its address, or {stage: capsule}.

    Handlers that are registered with JAX (`jax.ffi.register_ffi_target`) are found without this, but for one thing:
    jaxlib does not hand out the stage "instantiate", so handlers with a state must be registered here too.
    """
    stages = dict(function) if isinstance(function, Mapping) else {"execute": function}
    if not stages.keys() <= set(Handlers._fields) or "execute" not in stages:
        raise ArgumentError(
            f"the stages of handler {name} are {', '.join(map(str, stages)) or 'none'}; they must be of "
            f"{', '.join(Handlers._fields)}, of which execute must be there"
        )
    for stage, capsule in stages.items():
        if capsule is not None and not _is_capsule(capsule):
            raise ArgumentError(
                f"the stage {stage} of handler {name} is a {type(capsule).__name__}, must be a capsule with the "
                "handler's address: jax.ffi.pycapsule of a C function makes one"
            )
    _own[name] = stages


def register_type(name: str, registration: Mapping[str, object]) -> None:
    """Tell the runtime of a type of which a custom call's handler keeps a state, so that it can destroy such states.

    registration: what `jax.ffi.register_ffi_type` is given: {"type_id": capsule, "type_info": capsule}. Register the
    type with JAX first when it is to be used there too: a type without a number gets one here.
    """
    for part in ("type_id", "type_info"):
        if not isinstance(registration, Mapping) or not _is_capsule(registration.get(part)):
            raise ArgumentError(
                f"the registration of type {name} must be what jax.ffi.register_ffi_type takes, "
                f'{{"type_id": capsule, "type_info": capsule}}; it has no capsule {part}'
            )
    number = ctypes.c_int64.from_address(_address(registration["type_id"]))
    deleter = ctypes.c_void_p.from_address(_address(registration["type_info"]) + 2 * ctypes.sizeof(ctypes.c_void_p))
    if not number.value:
        number.value = next(_fresh_types)
    if not deleter.value:
        raise ArgumentError(f"the type {name} of a custom call's state has no deleter")
    _ral.register_state_type(number.value, deleter.value)


def _is_capsule(value: object) -> bool:
    return type(value).__name__ == "PyCapsule"


def _address(capsule: object) -> int:
    address: int = _pointer(capsule, _name(capsule))
    return address


def _registered(target: str) -> object:
    from jaxlib import _jax

    return _jax.custom_call_targets("cpu").get(target)


def _waiting(target: str) -> Any:
    """Return a handler from the queue of those registered before there was a client; the last registration counts."""
    client = sys.modules.get("jaxlib.xla_client")
    if client is None:
        return None
    platform = client.xla_platform_names.get("cpu", "cpu")
    for name, function, api_version, *_ in reversed(client._custom_callback.get(platform, ())):
        if name == target:
            if api_version == 0:
                return function
            return function if isinstance(function, dict) else {"execute": function}
    return None


def _jaxlib() -> dict[str, object]:
    from jaxlib.cpu import _lapack as kernels

    return {name: {"execute": capsule} for name, capsule in kernels.registrations().items() if name.endswith("_ffi")}
