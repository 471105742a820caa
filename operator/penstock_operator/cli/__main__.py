"""`python -m penstock_operator.cli`: `penstock` of this interpreter."""

from __future__ import annotations

from penstock_operator.cli.main import main

if __name__ == "__main__":
    main()
