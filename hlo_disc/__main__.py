"""`python -m hlo_disc`: the command line."""

from hlo_disc.cli import main

if __name__ == "__main__":
    main()
