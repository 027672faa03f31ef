"""jax.scipy.special."""

from __future__ import annotations

from surface.row import Table, each, on, table

_ANY, _POSITIVE, _UNIT, _SHARE = "f32[n, 3]:calm", "f32[n, 3]:positive", "f32[n, 3]:unit", "f32[n, 3]:simplex"

TABLE: Table = table(
    each(
        "dawsn erf erfc erfcx expit fresnel gamma gammaln gammasgn i0 i0e i1 i1e sici",
        on(_ANY),
        on("i32[n]:small"),
    ),
    each("loggamma exp1 digamma entr", on(_POSITIVE), on("f32[n]:calm")),
    each("expi spence wofz", on(_POSITIVE), on("f32[n]:calm")),
    each("log_ndtr ndtr", on(_ANY), on("f32[n]:special")),
    each("erfinv", on(_UNIT)),
    each("logit ndtri", on(_SHARE)),
    each("beta betaln poch rel_entr kl_div", on(_POSITIVE, "f32[3]:positive")),
    each("gammainc gammaincc", on(_POSITIVE, "f32[3]:positive")),
    each("xlogy xlog1py", on(_ANY, "f32[3]:positive"), on("f32[n]:special", "f32[n]:positive")),
    each("boxcox boxcox1p", on(_POSITIVE, "f32[3]:unit")),
    each("softmax log_softmax", on("f32[n, 3]"), on("f32[n, 3]", axis=0)),
    {
        "bernoulli": [on("f32[n]", call=lambda f, x: f(8) * x.sum())],
        "bessel_jn": [on("f32[n]:positive", v=3)],
        "betainc": [on(_POSITIVE, "f32[3]:positive", _SHARE)],
        "comb": [on("i32[n]:below:9", "i32[3, 1]:below:9"), on("i32[n]:below:9", k=2, repetition=True)],
        "factorial": [on("i32[n]:below:9")],
        "expn": [on("f32[n]:positive", call=lambda f, x: f(2, x)), on("i32[3, 1]:below:4", "f32[n]:positive")],
        "hyp1f1": [on("f32[n]:positive", "f32[n]:positive", "f32[n]:simplex")],
        "hyp2f1": [on("f32[n]:unit", "f32[n]:unit", "f32[n]:positive", "f32[n]:simplex")],
        "logsumexp": [
            on("f32[n, 3]"),
            on("f32[n, 3]", axis=0, keepdims=True),
            on("f32[n, 3]", "f32[n, 3]", call=lambda f, x, b: f(x, b=b, axis=1, return_sign=True)),
            on("f32[n, 3]", "bool[n, 3]", call=lambda f, x, keep: f(x, where=keep)),
        ],
        "multigammaln": [on(_POSITIVE, call=lambda f, x: f(x + 3, 2))],
        "owens_t": [on(_ANY, "f32[3]")],
        "polygamma": [on("i32[3]:below:4", _POSITIVE)],
        "sph_harm_y": [on("i32[n]:below:4", "f32[n]:positive", call=lambda f, m, x: f(m, m // 2, x, x * 2, n_max=4))],
        "zeta": [
            on(_POSITIVE, "f32[3]:positive", call=lambda f, x, q: f(x + 1.5, q)),
            on("f32[n]:positive", call=lambda f, x: f(x + 1.5, 1.0)),
        ],
    },
)
