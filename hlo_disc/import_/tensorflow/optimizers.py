"""The steps of optimizers, each one op: new values of a variable and of its state.

Each rule is a function of its op's operands in their order, the variables first, and returns what is assigned to these.
The formulas are those that the ops' documentation gives, `tf.raw_ops.ResourceApply…`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ops.expr import where
from hlo_disc.import_.handlers.arrays import Array, array
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

# A rule is given the op, for its attributes, and the operands.
Rule = Callable[..., Sequence[Array]]


def _sign(x: Array) -> Array:
    return x.op("sign")


def _toward(x: Array, to: Array, rate: Array) -> Array:
    """Update a moving average; rate: the share of the old value."""
    return x + (to - x) * (1 - rate)


def _proximal(x: Array, rate: Array, l1: Array, l2: Array) -> Array:
    """Apply the proximal step of both penalties: towards zero, and not beyond."""
    return _sign(x) * (abs(x) - rate * l1).maximum(0) / (1 + l2 * rate)


def _momentum(op: Node, x: Array, kept: Array, rate: Array, g: Array, momentum: Array) -> Sequence[Array]:
    kept = kept * momentum + g
    step = g * rate + kept * momentum * rate if op.attributes["use_nesterov"] else kept * rate
    return [x - step, kept]


def _keras_momentum(op: Node, x: Array, kept: Array, rate: Array, g: Array, momentum: Array) -> Sequence[Array]:
    kept = kept * momentum - g * rate
    return [x + (kept * momentum - g * rate if op.attributes["use_nesterov"] else kept), kept]


def _adam_step(
    op: Node, m: Array, v: Array, powers: Sequence[Array], rest: Sequence[Array]
) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Return both averages, and the step as a function of the second."""
    rate, first, second, epsilon, g = rest
    m, v = _toward(m, g, first), _toward(v, g * g, second)
    rate = rate * (1 - powers[1]).sqrt() / (1 - powers[0])
    ahead = m * first + g * (1 - first) if op.attributes.get("use_nesterov") else m
    return m, v, lambda squares: ahead * rate / (squares.sqrt() + epsilon)


def _adam(op: Node, x: Array, m: Array, v: Array, p1: Array, p2: Array, *rest: Array) -> Sequence[Array]:
    m, v, step = _adam_step(op, m, v, (p1, p2), rest)
    return [x - step(v), m, v]


def _amsgrad(
    op: Node, x: Array, m: Array, v: Array, most: Array, p1: Array, p2: Array, *rest: Array
) -> Sequence[Array]:
    m, v, step = _adam_step(op, m, v, (p1, p2), rest)
    most = most.maximum(v)
    return [x - step(most), m, v, most]


def _adamax(op: Node, x: Array, m: Array, v: Array, p1: Array, rate: Array, *rest: Array) -> Sequence[Array]:
    first, second, epsilon, g = rest
    m, v = _toward(m, g, first), (second * v).maximum(abs(g))
    return [x - rate / (1 - p1) * (m / (v + epsilon)), m, v]


def _adadelta(
    op: Node, x: Array, squares: Array, steps: Array, rate: Array, rho: Array, epsilon: Array, g: Array
) -> Sequence[Array]:
    squares = squares * rho + g * g * (1 - rho)
    step = (steps + epsilon).sqrt() * (squares + epsilon).op("rsqrt") * g
    return [x - step * rate, squares, steps * rho + step * step * (1 - rho)]


def _adagrad(op: Node, x: Array, squares: Array, rate: Array, g: Array) -> Sequence[Array]:
    squares = squares + g * g if op.attributes["update_slots"] else squares
    return [x - g * rate * squares.op("rsqrt"), squares]


def _adagrad_epsilon(op: Node, x: Array, squares: Array, rate: Array, epsilon: Array, g: Array) -> Sequence[Array]:
    squares = squares + g * g if op.attributes["update_slots"] else squares
    return [x - g * rate / (squares.sqrt() + epsilon), squares]


def _adagrad_dual(
    op: Node, x: Array, total: Array, squares: Array, g: Array, rate: Array, l1: Array, l2: Array, step: Array
) -> Sequence[Array]:
    total, squares = total + g, squares + g * g
    turns = step.cast(x.dtype)
    above = _sign(total) * (abs(total) - l1 * turns).maximum(0)
    pull = where(l1 > 0, above, total)
    return [-(rate * pull) / (l2 * turns * rate + squares.sqrt()), total, squares]


def _sign_step(rate: Callable[[Array, Array, Array], Array]) -> Rule:
    def rule(
        op: Node, x: Array, m: Array, size: Array, base: Array, decay: Array, beta: Array, g: Array
    ) -> Sequence[Array]:
        m = m * beta + g * (1 - beta)
        return [x - size * rate(base, decay, _sign(g) * _sign(m)) * g, m]

    return rule


def _rms(
    op: Node, x: Array, ms: Array, mom: Array, rate: Array, rho: Array, momentum: Array, epsilon: Array, g: Array
) -> Sequence[Array]:
    ms = _toward(ms, g * g, rho)
    mom = mom * momentum + g * rate * (ms + epsilon).op("rsqrt")
    return [x - mom, ms, mom]


def _centered_rms(op: Node, x: Array, mg: Array, ms: Array, mom: Array, *rest: Array) -> Sequence[Array]:
    rate, rho, momentum, epsilon, g = rest
    ms, mg = _toward(ms, g * g, rho), _toward(mg, g, rho)
    mom = mom * momentum + g * rate / (ms - mg * mg + epsilon).sqrt()
    return [x - mom, mg, ms, mom]


def _ftrl(op: Node, x: Array, squares: Array, linear: Array, g: Array, *rest: Array) -> Sequence[Array]:
    """Follow the regularised leader."""
    rate, l1, l2, *shrinkage, power = rest
    after = squares + g * g
    pulled = g + x * (shrinkage[0] * 2) if shrinkage else g

    def root(a: Array) -> Array:
        return where(power == -0.5, a.sqrt(), a.op("power", -power))

    # With multiply_linear_by_lr everything below is kept times the rate.
    times, over = (rate, rate.like(1)) if op.attributes.get("multiply_linear_by_lr") else (rate.like(1), rate)
    linear = linear + pulled * times - (root(after) - root(squares)) / over * x
    pull = _sign(linear) * (l1 * times) - linear
    made = pull / (root(after) / over + l2 * times * 2)
    return [where(abs(linear) > l1 * times, made, 0), after, linear]


def _proximal_adagrad(
    op: Node, x: Array, squares: Array, rate: Array, l1: Array, l2: Array, g: Array
) -> Sequence[Array]:
    squares = squares + g * g
    own = rate * squares.op("rsqrt")
    return [_proximal(x - g * own, own, l1, l2), squares]


def _step(rule: Rule) -> Handler:
    def handler(r: Reader, op: Node, operands: list[Operand]) -> Result:
        return [x.value for x in rule(op, *(array(r, o) for o in operands))]

    return handler


_RULES: dict[str, Rule] = {
    "AdaMax": _adamax,
    "Adadelta": _adadelta,
    "Adagrad": _adagrad,
    "AdagradDA": _adagrad_dual,
    "AdagradV2": _adagrad_epsilon,
    "Adam": _adam,
    "AdamWithAmsgrad": _amsgrad,
    "AddSign": _sign_step(lambda base, decay, signs: base + decay * signs),
    "CenteredRMSProp": _centered_rms,
    "Ftrl": _ftrl,
    "FtrlV2": _ftrl,
    "GradientDescent": lambda op, x, rate, g: [x - g * rate],
    "KerasMomentum": _keras_momentum,
    "Momentum": _momentum,
    "PowerSign": _sign_step(lambda base, decay, signs: (base * decay * signs).exp()),
    "ProximalAdagrad": _proximal_adagrad,
    "ProximalGradientDescent": lambda op, x, rate, l1, l2, g: [_proximal(x - g * rate, rate, l1, l2)],
    "RMSProp": _rms,
}
HANDLERS: dict[str, Handler] = {f"ResourceApply{name}": _step(rule) for name, rule in _RULES.items()}
