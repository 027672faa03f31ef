"""DHLO: the graph that the compiler works on, its symbolic sizes, what is known about them, and the rewrites."""
