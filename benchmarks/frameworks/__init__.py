"""What programs are written in: a module a framework, with the same names, each the framework's own way of doing it."""
