"""Values of a kernel and the code of elementwise ops on them."""
