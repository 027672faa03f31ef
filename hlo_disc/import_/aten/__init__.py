"""PyTorch's graphs of ATen ops: a reader, and a row for each op."""
