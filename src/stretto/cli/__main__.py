"""``python -m stretto.cli``."""

from . import main

if __name__ == "__main__":
    main()
