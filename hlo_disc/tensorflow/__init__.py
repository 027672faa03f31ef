"""TensorFlow: functions with unknown sizes compiled once, and called as functions and as ops of TensorFlow's.

```python
@hlo_disc.tensorflow.jit                                    # imported at the first call, serves any shape
def f(x): ...

g = hlo_disc.tensorflow.compile(f, [tf.TensorSpec([None, 64])])
g(x); tf.function(g)(x)                                     # an op; SavedModels keep the program
```

A process that loads such a SavedModel imports this module; it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hlo_disc.import_.sizes.symbols import constraint_texts
from hlo_disc.options import Options
from hlo_disc.tensorflow.compiled import Compiled
from hlo_disc.tensorflow.function import JitFunction
from hlo_disc.tensorflow.importing import Imported, concrete_of

__all__ = ["Compiled", "JitFunction", "compile", "jit"]


def compile(
    function: object,
    input_signature: object = None,
    *,
    dims: Mapping[str, object] | Sequence[object] | None = None,
    constraints: str | Sequence[str] = (),
    options: Options | None = None,
    **overrides: object,
) -> Compiled:
    """Compile a function of TensorFlow once for every shape of a signature.

    Args:
        function: a Python function, a `tf.function`, one of its concrete functions, or a Keras model.
        input_signature: a `tf.TensorSpec` for each parameter, with None for unknown sizes, in a list unless there is
            one parameter; not needed if the function has a signature.
        dims: names of the sizes, from an input's name to a shape string, as `{"x": "(b, s, _)"}`: sizes of one name are
            equal.
        constraints: conditions that hold for the dims, `"s <= 512"` or `["s <= 512", "s % 8 == 0"]`.
        options: how to compile and run; by default the environment's options.
        overrides: fields of `Options` by name, which take precedence over `options`.

    Returns:
        A function of tensors.

    Raises:
        UnsupportedOpError: an op cannot be compiled; the message has its line.
        ArgumentError: the argument is no function of TensorFlow, or the signature, dims or options do not fit.
        ShapeError: sizes can never agree.
    """
    imported = Imported(concrete_of(function, input_signature))
    texts = constraint_texts(constraints)
    return Compiled(imported, imported.compiled(dims, texts, options, overrides), texts)


def jit(function: Callable[..., object] | None = None, *, options: Options | None = None, **overrides: object) -> Any:
    """Return a function that is compiled at its first call, and then serves calls of any shape.

    Args:
        function: a Python function of tensors, in any nest; without it, `jit` returns a decorator.
        options: how to compile and run; by default the environment's options.
        overrides: fields of `Options` by name, which take precedence over `options`.

    Returns:
        The function, or a decorator.
    """
    if function is None:
        return lambda f: JitFunction(f, options, overrides)
    return JitFunction(function, options, overrides)
