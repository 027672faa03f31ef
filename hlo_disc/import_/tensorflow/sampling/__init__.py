"""Random numbers, bit for bit as TensorFlow's kernels draw them."""
