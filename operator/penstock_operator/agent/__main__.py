"""`python -m penstock_operator.agent`: one node's agent, until told to stop."""

from __future__ import annotations

import sys

from penstock_operator.agent.main import run_agent

if __name__ == "__main__":
    sys.exit(run_agent())
