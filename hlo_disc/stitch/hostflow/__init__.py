"""The code that runs on the host: guards, sizes, memory, launches, control flow."""
