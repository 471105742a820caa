"""Syntax trees of Python sources, for any thread.

CPython before 3.11.8 and 3.12.2 counts the depth of a tree that it makes in one place for all threads
(gh-106905): of two that parse at once one may get a SystemError. So one parses at a time. Neighbours: `code`
looks for names, a worker's `user_code` for what processors use.
"""

from __future__ import annotations

import ast
import threading

# A finalizer that runs in the middle of parsing may parse too, in the same thread.
_ONE_AT_A_TIME = threading.RLock()


def syntax_tree(source: str) -> ast.Module:
    """As `ast.parse`. Raises SyntaxError, ValueError."""
    with _ONE_AT_A_TIME:
        return ast.parse(source)
