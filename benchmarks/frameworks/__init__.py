"""The ops that programs call: a module for each framework, with the same names, written as its users write them."""
