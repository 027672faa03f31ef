"""From a graph to an equal and simpler one."""
