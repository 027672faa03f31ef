"""What runs on the host: guards, sizes, memory, launches, control flow."""
