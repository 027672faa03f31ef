"""tf.image."""

import tensorflow as tf

from .case import cases

IMAGE, UNIT = "f32[a, b, c, 3]", "f32[a, b, c, 3]@0:1"
SIZES = ((2, 7, 6), (3, 5, 8), (1, 4, 4), (0, 5, 6), (2, 1, 1))
SOME = ((2, 7, 6), (3, 5, 8), (1, 4, 4))


BOXES = ("f32[a, 4]@0:1", "f32[a]@-3:3")
PICTURES = ((2, 7, 3), (1, 1, 1), (3, 40, 2), (2, 0, 3))
COUNTS = ((7,), (1,), (0,), (13,), (40,))


def resized(method, **how):
    return lambda x: tf.image.resize(x, [5, 9], method, **how)


def slope(function):
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(total, x)

    return gradient


def cropped(size):
    """Return a function of crops, and of their gradients by the images and by the boxes."""

    def function(x, boxes):
        with tf.GradientTape() as tape:
            tape.watch([x, boxes])
            made = tf.image.crop_and_resize(x, boxes, [0, 0, 0, 0], size)
            total = tf.reduce_sum(made**2)
        return made, tape.gradient(total, [x, boxes])

    return function


def combined(**how):
    """Return a function of boxes of several pictures and classes."""

    def chosen(corners, scores):
        size = tf.concat([corners[..., 2:] * 0.5, -corners[..., 2:] * 0.5], -1)
        return tf.image.combined_non_max_suppression(corners + size, scores, 4, 9, 0.3, -1.0, **how)

    return chosen


def kept(function):
    """Return a function of boxes, some of them reversed, and of scores, some of them equal."""

    def chosen(corners, scores):
        size = tf.concat([corners[:, 2:] * 0.5, -corners[:, 2:] * 0.5], 1)
        return function(corners + size, tf.round(scores))

    return chosen


def projected(interpolation, mode):
    rows = [[0.9, 0.1, 0.5, -0.2, 1.1, -0.7, 0.01, 0.02], [3.0, 0.5, -30.0, -0.5, 4.0, 20.0, 0.0, 0.0]]
    how = {"output_shape": [9, 11], "fill_value": 0.5, "interpolation": interpolation, "fill_mode": mode}
    return lambda x: [
        tf.raw_ops.ImageProjectiveTransformV3(images=x, transforms=given, **how) for given in (rows, rows[:1])
    ]


CASES = cases(
    "image",
    [
        ("resize bilinear", resized("bilinear"), IMAGE, SIZES),
        ("resize nearest", resized("nearest"), IMAGE, SIZES),
        ("resize bicubic", resized("bicubic"), IMAGE, SOME, 1e-4),
        *((f"resize {name}", resized(name), IMAGE, SIZES, 1e-4) for name in ("lanczos3", "gaussian", "mitchellcubic")),
        *(
            (f"resize {name} to means", resized(name, antialias=True), IMAGE, SIZES, 1e-4)
            for name in ("bilinear", "bicubic", "lanczos5")
        ),
        ("resize area", resized("area"), IMAGE, SOME, 1e-4),
        ("gradient of resize to means", slope(resized("lanczos3", antialias=True)), IMAGE, SOME, 1e-3),
        *(
            (
                f"scale_and_translate by a {kernel}",
                lambda x, kernel=kernel: tf.raw_ops.ScaleAndTranslate(
                    images=x, size=[6, 7], scale=[0.7, 1.3], translation=[1.5, -2.0], kernel_type=kernel
                ),
                IMAGE,
                SOME,
                1e-4,
            )
            for kernel in ("box", "triangle", "keyscubic", "lanczos1")
        ),
        *(
            (
                f"projected, {way}, {mode}",
                projected(way, mode),
                "f32[2, b, c, 3]",
                ((2, 7, 6), (2, 3, 4), (2, 1, 1)),
                1e-4,
            )
            for way, mode in (
                ("NEAREST", "CONSTANT"),
                ("BILINEAR", "CONSTANT"),
                ("BILINEAR", "REFLECT"),
                ("BILINEAR", "WRAP"),
                ("NEAREST", "NEAREST"),
            )
        ),
        (
            "projected whole numbers",
            lambda x: tf.raw_ops.ImageProjectiveTransformV3(
                images=tf.cast(x, tf.uint8),
                transforms=[[1.0, 0.1, 0.5, -0.1, 1.2, 0.3, 0.0, 0.0]],
                output_shape=[4, 5],
                fill_value=3.0,
                interpolation="BILINEAR",
            ),
            "f32[a, b, c, 2]@0:150",
            SOME,
        ),
        ("gradient of resize bicubic", slope(resized("bicubic")), IMAGE, SIZES, 1e-3),
        (
            "gradient of bicubic as in TensorFlow 1",
            slope(lambda x: tf.compat.v1.image.resize_bicubic(x, [5, 9], align_corners=True)),
            IMAGE,
            SOME,
            1e-3,
        ),
        *(
            (f"gradients of crops of {size}", cropped(size), (IMAGE, "f32[4, 4]@-0.2:1.2"), SOME, 1e-3)
            for size in ((3, 4), (1, 5))
        ),
        ("non_max_suppression", kept(lambda b, s: tf.image.non_max_suppression(b, s, 5, 0.3, -1.5)), BOXES, COUNTS),
        (
            "non_max_suppression of data",
            kept(
                lambda b, s: tf.gather(b, tf.image.non_max_suppression(b, s, tf.cast(tf.reduce_max(s) * 2, tf.int32)))
            ),
            BOXES,
            ((7,), (1,), (13,), (40,)),
        ),
        (
            "non_max_suppression_v4",
            kept(
                lambda b, s: tf.raw_ops.NonMaxSuppressionV4(
                    boxes=b,
                    scores=s,
                    max_output_size=8,
                    iou_threshold=0.4,
                    score_threshold=-1.0,
                    pad_to_max_output_size=True,
                )
            ),
            BOXES,
            COUNTS,
        ),
        (
            "non_max_suppression_with_scores",
            kept(
                lambda b, s: [
                    tf.image.non_max_suppression_with_scores(b, s, 20, 0.5, -1.5, soft_nms_sigma=sigma)
                    for sigma in (0.0, 0.3)
                ]
            ),
            BOXES,
            COUNTS,
        ),
        *(
            (f"combined_non_max_suppression of {what}", combined(**how), (f"f32[a, b, {q}, 4]@0:1.2", scores), sizes)
            for what, q, scores, sizes, how in (
                ("shared boxes", 1, "f32[a, b, c]", PICTURES, {}),
                ("a class's own boxes", "c", "f32[a, b, c]", PICTURES, {"clip_boxes": False}),
                ("one class", 1, "f32[a, b, 1]", PICTURES, {}),
                ("two classes, padded by class", 1, "f32[a, b, 2]", PICTURES, {"pad_per_class": True}),
                ("one class, padded by class", 1, "f32[a, b, 1]", PICTURES, {"pad_per_class": True}),
            )
        ),
        ("resize to twice", lambda x: tf.image.resize(x, tf.shape(x)[1:3] * 2), IMAGE, SIZES),
        ("resize as in TensorFlow 1", lambda x: tf.compat.v1.image.resize_bilinear(x, [5, 9]), IMAGE, SIZES),
        ("bicubic as in TensorFlow 1", lambda x: tf.compat.v1.image.resize_bicubic(x, [5, 9]), IMAGE, SOME, 1e-4),
        (
            "resize with aligned corners",
            lambda x: tf.compat.v1.image.resize_bilinear(x, [5, 9], align_corners=True),
            IMAGE,
            SIZES,
        ),
        ("flip_left_right", tf.image.flip_left_right, IMAGE, SIZES),
        ("flip_up_down", tf.image.flip_up_down, IMAGE, SIZES),
        ("transpose", tf.image.transpose, IMAGE, SIZES),
        ("rot90", tf.image.rot90, IMAGE, SIZES),
        ("adjust_brightness", lambda x: tf.image.adjust_brightness(x, 0.2), UNIT, SIZES),
        ("adjust_contrast", lambda x: tf.image.adjust_contrast(x, 2.0), UNIT, SOME, 1e-4),
        ("adjust_saturation", lambda x: tf.image.adjust_saturation(x, 0.7), UNIT, SIZES, 1e-4),
        ("adjust_hue", lambda x: tf.image.adjust_hue(x, 0.1), UNIT, SIZES, 1e-4),
        ("adjust_gamma", lambda x: tf.image.adjust_gamma(x, 0.5), UNIT, SIZES),
        ("per_image_standardization", tf.image.per_image_standardization, IMAGE, SOME, 1e-4),
        ("rgb_to_grayscale", tf.image.rgb_to_grayscale, UNIT, SIZES),
        ("grayscale_to_rgb", tf.image.grayscale_to_rgb, "f32[a, b, c, 1]", SIZES),
        ("rgb_to_hsv", tf.image.rgb_to_hsv, UNIT, SIZES, 1e-4),
        ("hsv_to_rgb", tf.image.hsv_to_rgb, UNIT, SIZES, 1e-4),
        ("rgb_to_yiq", tf.image.rgb_to_yiq, UNIT, SIZES, 1e-4),
        ("rgb_to_yuv", tf.image.rgb_to_yuv, UNIT, SIZES, 1e-4),
        ("central_crop", lambda x: tf.image.central_crop(x, 0.5), IMAGE, SOME),
        ("crop_to_bounding_box", lambda x: tf.image.crop_to_bounding_box(x, 1, 2, 2, 2), IMAGE, SOME),
        ("pad_to_bounding_box", lambda x: tf.image.pad_to_bounding_box(x, 1, 2, 12, 12), IMAGE, SOME),
        ("resize_with_crop_or_pad", lambda x: tf.image.resize_with_crop_or_pad(x, 5, 6), IMAGE, SOME),
        (
            "extract_patches",
            lambda x: tf.image.extract_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1] * 4, "VALID"),
            IMAGE,
            SOME,
        ),
        ("sobel_edges", tf.image.sobel_edges, IMAGE, SOME, 1e-4),
        ("total_variation", tf.image.total_variation, IMAGE, SOME, 1e-4),
        ("convert_image_dtype", lambda x: tf.image.convert_image_dtype(x, tf.float32), "u8[a, b, c, 3]@0:255", SIZES),
        ("psnr", lambda x, y: tf.image.psnr(x, y, 1.0), (UNIT, UNIT), SOME, 1e-4),
        (
            "crop_and_resize",
            lambda x: tf.image.crop_and_resize(x, [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.2]], [0, 0], [3, 4]),
            IMAGE,
            SOME,
            1e-4,
        ),
    ],
)
