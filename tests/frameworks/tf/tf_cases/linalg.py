"""tf.linalg and tf.signal."""

import tensorflow as tf

from .case import cases

SQUARE, MATRICES, BATCH = "f32[a, a]", "f32[a, b, c]", "f32[a, b, b]"
SMALL = ((3,), (6,), (1,), (0,))
# Sizes of matrices of which a diagonal beside the main one is as long as a row, or as a column.
WIDE, TALL = ((3, 5, 4), (2, 6, 7), (1, 1, 3)), ((3, 4, 5), (2, 7, 6), (1, 2, 2))


def definite(x):
    return tf.matmul(x, x, transpose_b=True) + 3.0 * tf.eye(tf.shape(x)[-1])


def lower(x):
    return tf.linalg.band_part(x, -1, 0) + 4.0 * tf.eye(tf.shape(x)[-1])


def regular(x):
    return x + 5.0 * tf.eye(tf.shape(x)[-1])


def rebuilt(s, u, v):
    """Return the product of the factors, which does not depend on the signs of singular vectors."""
    return tf.matmul(u * s[..., None, :], v, adjoint_b=True)


BANDS = ((-1, 1), (0, 2), (-3, -1), 2, -2)


def banded(align):
    return lambda x: [tf.linalg.diag_part(x, k=k, align=align, padding_value=7) for k in BANDS]


def eigen(x):
    """Return what does not depend on the order of eigenvalues."""
    values, vectors = tf.linalg.eig(x)
    return tf.matmul(vectors * values[..., None, :], tf.linalg.inv(vectors)), tf.norm(vectors, axis=-2)


def slope(function):
    """Return the gradient of a sum."""

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(function(x))
        return tape.gradient(total, x)

    return gradient


ANY = ((3, 5), (7, 2), (4, 4), (1, 1), (0, 3))

CASES = cases(
    "linalg",
    [
        ("matmul", tf.linalg.matmul, ("f32[a, b]", "f32[b, c]")),
        (
            "matmul of turned ones",
            lambda x, y: tf.matmul(x, y, transpose_a=True, transpose_b=True),
            ("f32[b, a]", "f32[c, b]"),
        ),
        ("matmul of batches", tf.linalg.matmul, ("f32[a, b, c]", "f32[a, c, d]")),
        ("matmul of batches that broadcast", tf.linalg.matmul, ("f32[a, 1, b, c]", "f32[d, c, 2]")),
        ("matvec", tf.linalg.matvec, ("f32[a, b]", "f32[b]")),
        ("einsum", lambda x, y: tf.einsum("bij,bjk->bik", x, y), ("f32[a, b, c]", "f32[a, c, d]")),
        ("einsum of heads", lambda x, y: tf.einsum("bshd,bthd->bhst", x, y), ("f32[a, b, 2, 4]", "f32[a, c, 2, 4]")),
        ("einsum with an ellipsis", lambda x, y: tf.einsum("...ij,jk->...ik", x, y), ("f32[a, b, c]", "f32[c, 3]")),
        ("tensordot", lambda x, y: tf.tensordot(x, y, [[1], [0]]), ("f32[a, b, c]", "f32[b, d]")),
        ("matrix_transpose", tf.linalg.matrix_transpose, MATRICES),
        ("adjoint", tf.linalg.adjoint, "c64[a, b]"),
        ("trace", tf.linalg.trace, "f32[a, b]"),
        ("diag", tf.linalg.diag, "f32[a, b]"),
        ("diag_part", tf.linalg.diag_part, "f32[a, b]", ((3, 5), (6, 2), (1, 1))),
        ("set_diag", tf.linalg.set_diag, ("f32[a, b, b]", "f32[a, b]")),
        ("diag above", lambda x: tf.linalg.diag(x, k=2), "f32[a, b]"),
        ("diag below", lambda x: tf.linalg.diag(x, k=-1, padding_value=3.0), "f32[a, b]"),
        ("diag_part above", lambda x: tf.linalg.diag_part(x, k=1), "f32[a, b, c]", ((3, 5, 4), (2, 2, 7), (1, 3, 2))),
        ("diag_part below", lambda x: tf.linalg.diag_part(x, k=-2), "f32[a, b]", ((3, 5), (6, 2), (3, 3))),
        ("set_diag above", lambda x: tf.linalg.set_diag(x, x[:, 0, 2:] * 3.0, k=2), "f32[a, b, c]", WIDE),
        ("set_diag below", lambda x: tf.linalg.set_diag(x, x[:, 1:, 0] * 3.0, k=-1), "f32[a, b, c]", TALL),
        ("sum by a list of axes", lambda x, y: tf.tensordot(x, y, tf.constant([[0], [0]])), ("f32[a, b]", "f32[a, c]")),
        ("tensor_diag", tf.linalg.tensor_diag, "f32[a]"),
        *(
            (f"diag_part of a band, {align}", banded(align), "f32[2, a, b]", ((4, 5), (7, 4), (4, 4)))
            for align in ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
        ),
        (
            "set_diag of a band",
            lambda x: [tf.linalg.set_diag(x, tf.linalg.diag_part(x, k=k) * 2, k=k) for k in BANDS],
            "f32[2, 4, 5]",
            ((), (), ()),
        ),
        *(
            (
                f"diag of a band, {align}",
                lambda x, align=align: [tf.linalg.diag(x, k=k, align=align) for k in ((-1, 1), (0, 2), (-3, -1))],
                "f32[2, 3, a]",
                ((4,), (7,), (3,)),
            )
            for align in ("RIGHT_LEFT", "LEFT_RIGHT")
        ),
        ("diag beside the main one", lambda x: [tf.linalg.diag(x, k=k) for k in (-2, 1)], "f32[a, b]"),
        (
            "diag with rows of its own",
            lambda x: tf.linalg.diag(x, k=(-1, 0), num_rows=tf.shape(x)[2] + 1, padding_value=2),
            "f32[a, 2, b]",
            ((3, 4), (1, 2), (2, 7)),
        ),
        ("band_part", lambda x: tf.linalg.band_part(x, 1, 2), MATRICES),
        ("band_part of all below", lambda x, n: tf.linalg.band_part(x, n, 1), (MATRICES, "i32[]@-1:0")),
        ("eye", lambda x: tf.eye(tf.shape(x)[0], tf.shape(x)[1]), "f32[a, b]"),
        ("norm", lambda x: tf.linalg.norm(x, axis=1), "f32[a, b]"),
        ("norm of 1", lambda x: tf.linalg.norm(x, ord=1, axis=1), "f32[a, b]"),
        ("cross", tf.linalg.cross, ("f32[a, 3]", "f32[a, 3]")),
        ("cholesky", lambda x: tf.linalg.cholesky(definite(x)), SQUARE, SMALL, 1e-4),
        (
            "cholesky_solve",
            lambda x, y: tf.linalg.cholesky_solve(tf.linalg.cholesky(definite(x)), y),
            (SQUARE, "f32[a, b]"),
            ((3, 2), (6, 1), (1, 1)),
            1e-3,
        ),
        (
            "triangular_solve",
            lambda x, y: tf.linalg.triangular_solve(lower(x), y),
            (SQUARE, "f32[a, b]"),
            ((3, 2), (6, 1), (1, 1)),
            1e-4,
        ),
        (
            "triangular_solve adjoint",
            lambda x, y: tf.linalg.triangular_solve(lower(x), y, adjoint=True),
            (SQUARE, "f32[a, b]"),
            ((3, 2), (6, 1), (1, 1)),
            1e-4,
        ),
        ("inv", lambda x: tf.linalg.inv(regular(x)), BATCH, ((2, 3), (3, 5), (1, 1), (0, 3)), 1e-4),
        (
            "solve",
            lambda x, y: tf.linalg.solve(regular(x), y),
            (BATCH, "f32[a, b, c]"),
            ((2, 3, 2), (3, 5, 1), (1, 1, 1)),
            1e-4,
        ),
        ("det", lambda x: tf.linalg.det(x), BATCH, ((2, 3), (3, 5), (1, 1), (0, 3)), 1e-4),
        ("slogdet", lambda x: tf.linalg.slogdet(x), BATCH, ((2, 3), (3, 5), (1, 1), (0, 3)), 1e-4),
        ("slogdet of complex numbers", tf.linalg.slogdet, "c64[a, b, b]", ((2, 3), (3, 5), (1, 1)), 1e-4),
        (
            "inverses of adjoints",
            lambda x: (tf.linalg.inv(x, adjoint=True), tf.linalg.solve(x, x[..., :1], adjoint=True)),
            "c128[a, b, b]",
            ((2, 3), (3, 5), (1, 1)),
            1e-8,
        ),
        ("logdet", lambda x: tf.linalg.logdet(definite(x)), SQUARE, ((3,), (6,), (1,)), 1e-4),
        ("lu", lambda x: tf.linalg.lu(x), BATCH, ((2, 3), (3, 5), (1, 1)), 1e-4),
        ("eigvalsh", lambda x: tf.linalg.eigvalsh(definite(x)), SQUARE, ((3,), (6,), (1,)), 1e-4),
        ("qr", tf.linalg.qr, "f32[a, b]", ANY, 1e-4),
        ("qr of all", lambda x: tf.linalg.qr(x, full_matrices=True), "f64[2, a, b]", ANY),
        ("qr of complex numbers", lambda x: tf.linalg.qr(x), "c64[a, b]", ANY, 1e-4),
        ("svd", lambda x: rebuilt(*tf.linalg.svd(x)), "f32[2, a, b]", ANY, 1e-4),
        ("svd of all", lambda x: [tf.shape(y) for y in tf.linalg.svd(x, full_matrices=True)], "f32[a, b]", ANY),
        ("singular values", lambda x: tf.linalg.svd(x, compute_uv=False), "f32[a, b]", ANY, 1e-4),
        ("pinv", tf.linalg.pinv, "f32[a, 4]", ((7,), (5,), (4,)), 1e-3),
        (
            "eigenvalues of a complex matrix",
            lambda x: tf.linalg.eigvalsh(x + tf.linalg.adjoint(x)),
            "c64[a, a]",
            SMALL,
            1e-4,
        ),
        ("eig", eigen, "f32[2, a, a]", ((3,), (7,), (1,)), 1e-3),
        ("eigvals", lambda x: tf.sort(tf.abs(tf.linalg.eigvals(x))), SQUARE, ((3,), (7,), (1,)), 1e-3),
        ("sqrtm", lambda x: tf.linalg.sqrtm(regular(x)), BATCH, ((2, 3), (3, 7), (1, 1), (0, 3)), 1e-4),
        ("sqrtm of complex numbers", tf.linalg.sqrtm, "c128[2, a, a]", SMALL, 1e-8),
        ("sqrtm of turns", lambda x: tf.linalg.sqrtm(x - tf.transpose(x)), "f64[a, a]", ((2,), (6,), (4,)), 1e-8),
        ("sqrtm of nothing real", lambda x: tf.linalg.sqrtm(-definite(x)), SQUARE, SMALL),
        ("gradient of sqrtm", slope(lambda x: tf.linalg.sqrtm(regular(x)) ** 2), SQUARE, SMALL[:3], 1e-3),
        (
            "tridiagonal_solve",
            lambda x, y: tf.linalg.tridiagonal_solve(x + [[0.0], [6.0], [0.0]], y),
            ("f32[c, 3, a]", "f32[c, a, b]"),
            ((3, 2, 2), (7, 1, 3), (1, 1, 1), (4, 2, 0)),
            1e-4,
        ),
        (
            "tridiagonal_matmul",
            tf.linalg.tridiagonal_matmul,
            ("f32[c, 3, a]", "f32[c, a, b]"),
            ((3, 2, 2), (7, 1, 3), (1, 1, 1), (4, 2, 0)),
        ),
        (
            "gradient of qr",
            slope(lambda x: tf.linalg.qr(x)[1] ** 2),
            "f32[c, 5, 3]",
            ((0, 0, 1), (0, 0, 4), (0, 0, 0)),
            1e-3,
        ),
        ("gradient of svd", slope(lambda x: rebuilt(*tf.linalg.svd(x)) ** 2), "f32[a, 3, 3]", ((1,), (4,), (0,)), 1e-3),
        ("l2_normalize", lambda x: tf.linalg.l2_normalize(x, 0), "f32[a, b]"),
        ("normalize", lambda x: tf.linalg.normalize(x, axis=1), "f32[a, b]", ((3, 5), (6, 2), (1, 1))),
        ("global_norm", lambda x, y: tf.linalg.global_norm([x, y]), ("f32[a]", "f32[b, c]")),
        ("bf16 product", tf.linalg.matmul, ("bf16[a, b]", "bf16[b, c]"), ((3, 5, 4), (1, 1, 1), (0, 2, 3)), 4e-2),
        ("fft", tf.signal.fft, "c64[a, b]", ((3, 5), (6, 8), (1, 1)), 1e-4),
        ("rfft", tf.signal.rfft, "f32[a, b]", ((3, 5), (6, 8), (1, 2)), 1e-4),
        ("irfft", lambda x: tf.signal.irfft(tf.signal.rfft(x)), "f32[a, b]", ((3, 6), (6, 8), (1, 2)), 1e-4),
        ("rfft3d", tf.signal.rfft3d, "f32[a, b, c]", ((3, 5, 4), (6, 8, 2), (1, 1, 1)), 1e-4),
        (
            "irfft3d",
            lambda x: tf.signal.irfft3d(tf.signal.rfft3d(x)),
            "f32[a, b, c]",
            ((3, 5, 4), (6, 8, 2), (1, 1, 2)),
            1e-4,
        ),
        ("fft2d", tf.signal.fft2d, "c64[a, b, c]", ((3, 5, 4), (6, 8, 2), (1, 1, 1)), 1e-4),
    ],
)
