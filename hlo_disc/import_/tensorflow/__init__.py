"""TensorFlow's ops: a handler for each op, or a row with a formula, in a file for each family."""
