"""The four kinds of error (`docs/architecture.md`): every adapter translates into one of them.

Retry: the same call may succeed later.  Permanent: somebody has to change something.
SkipTick: this round has no answer, the next one may.  A bug is any other exception.
"""


class PenstockError(Exception):
    """Base of all errors that Penstock raises on purpose."""


class RetryError(PenstockError):
    """A dependency is away for now; repeating the call (with its number) is safe."""


class PermanentError(PenstockError):
    """Repeating does not help; the message says what, where and what would be right."""


class SkipTickError(PenstockError):
    """This round cannot be decided; hold and look again in the next one."""
