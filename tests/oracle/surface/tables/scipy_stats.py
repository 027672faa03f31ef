"""jax.scipy.stats: its distributions, a module each, and the functions beside them."""

from __future__ import annotations

from collections.abc import Mapping

from surface.row import Table, each, on, table

_ANY, _POSITIVE, _COUNT, _SHARE = "f32[n, 3]:calm", "f32[n, 3]:positive", "i32[n, 3]:below:7", "f32[n, 3]:simplex"

# A distribution, its functions of a value, and those of a probability; then the value and the parameters.
_ROWS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("bernoulli", "cdf logpmf pmf", "ppf", ("i32[n, 3]:below:2", "f32[n, 3]:simplex")),
    ("beta", "cdf logcdf logpdf logsf pdf sf", "", (_SHARE, "f32[3]:positive", "f32[n, 1]:positive")),
    ("betabinom", "logpmf pmf", "", (_COUNT, "i32[]:full", "f32[3]:positive", "f32[n, 1]:positive")),
    ("binom", "logpmf pmf", "", (_COUNT, "i32[3]:below:9", _SHARE)),
    ("cauchy", "cdf logcdf logpdf logsf pdf sf", "isf ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("chi2", "cdf logcdf logpdf logsf pdf sf", "", (_POSITIVE, "f32[3]:positive")),
    ("expon", "cdf logcdf logpdf logsf pdf sf", "ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("gamma", "cdf logcdf logpdf logsf pdf sf", "", (_POSITIVE, "f32[3]:positive")),
    ("gennorm", "cdf logpdf pdf", "", (_ANY, "f32[3]:positive")),
    ("geom", "logpmf pmf", "", (_COUNT, _SHARE)),
    ("gumbel_l", "cdf logcdf logpdf logsf pdf sf", "ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("gumbel_r", "cdf logcdf logpdf logsf pdf sf", "ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("laplace", "cdf logpdf pdf", "", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("logistic", "cdf logpdf pdf sf", "isf ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("nbinom", "logpmf pmf", "", (_COUNT, "f32[3]:positive", _SHARE)),
    ("norm", "cdf logcdf logpdf logsf pdf sf", "isf ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("pareto", "cdf logcdf logpdf logsf pdf sf", "ppf", (_POSITIVE, "f32[3]:positive")),
    ("t", "logpdf pdf", "", (_ANY, "f32[3]:positive")),
    ("truncnorm", "cdf logcdf logpdf logsf pdf sf", "", ("f32[n, 3]:unit", "f32[3]:unit", "f32[3]:positive")),
    ("uniform", "cdf logpdf pdf", "ppf", (_ANY, "f32[3]", "f32[n, 1]:positive")),
    ("vonmises", "logpdf pdf", "", ("f32[n, 3]:unit", "f32[3]:positive")),
    ("wrapcauchy", "logpdf pdf", "", (_POSITIVE, "f32[3]:simplex")),
)

DISTRIBUTIONS: Mapping[str, Table] = {
    **{
        f"jax.scipy.stats.{name}": table(each(of_value, on(*specs)), each(of_probability, on(_SHARE, *specs[1:])))
        for name, of_value, of_probability, specs in _ROWS
    },
    "jax.scipy.stats.poisson": table(
        each("cdf logpmf pmf", on(_COUNT, "f32[n, 3]:positive")), each("entropy", on("f32[n, 3]:positive", "f32[3]"))
    ),
    "jax.scipy.stats.dirichlet": each(
        "logpdf pdf", on("f32[3]:simplex", "f32[3]:positive"), on("f32[n]:simplex", "f32[n]:positive")
    ),
    "jax.scipy.stats.multinomial": each(
        "logpmf pmf", on("i32[n]:below:3", "f32[n]:simplex", call=lambda f, x, p: f(x.at[4:].set(0), x[:4].sum(), p))
    ),
    "jax.scipy.stats.multivariate_normal": each(
        "logpdf pdf", on("f32[n, 3]", "f32[3]", "f32[3, 3]:definite"), on("f32[n]", "f32[n]", "f32[n, n]:definite")
    ),
}

STATS: Table = {
    "mode": [on("i32[n, 3]:small"), on("f32[3, n]", axis=-1, keepdims=True), on("i32[n]:small", axis=None)],
    "rankdata": [
        on("f32[n, 3]"),
        on("i32[3, n]:small", axis=-1),
        *(on("i32[n]:small", method=m) for m in ("min", "max", "dense", "ordinal")),
    ],
    "sem": [on("f32[n, 3]"), on("f32[3, n]", axis=-1, ddof=0)],
    "gaussian_kde": [
        on("f32[n]", call=lambda f, x: f(x)(x[:3])),
        on("f32[2, n]", "f32[2, 3]", call=lambda f, x, y: f(x).logpdf(y)),
        on("f32[n]", "f32[n]:positive", call=lambda f, x, w: f(x, weights=w).integrate_box_1d(-1.0, 1.0)),
    ],
}
