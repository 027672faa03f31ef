"""DHLO: the graph that the compiler works on, its symbolic sizes and what is known about them, and the rewrites on it."""
