"""TensorFlow's ops: one function an op, or a row of a formula, one file a family."""
