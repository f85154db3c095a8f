"""``python -m fedprior``: the command line where its script is not on the path."""

from fedprior.cli import main

if __name__ == "__main__":
    main()
