"""`python -m reprodb` is the same command as `reprodb`."""

from reprodb.cli import main

if __name__ == "__main__":
    main()
