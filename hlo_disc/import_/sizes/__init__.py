"""Sizes while a program is read: the symbols of a call, and shape arithmetic over them."""
