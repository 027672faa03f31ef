"""Which ops share a kernel, in which order groups run, and which memory they change in place."""
