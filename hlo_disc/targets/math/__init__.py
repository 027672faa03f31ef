"""Functions of LLVM IR on vectors: polynomials for every transcendental function, in f32 and f64."""
