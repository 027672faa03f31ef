"""DHLO: the graph that the compiler works on, its symbolic sizes, facts about them, and the rewrites."""
