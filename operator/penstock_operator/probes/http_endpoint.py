"""An HTTP endpoint for probes and metrics, as the operator and the node agent have one each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from penstock.errors import PermanentError

Handler = Callable[[web.Request], Awaitable[web.Response]]


async def serve(port: int, routes: Mapping[str, Handler], advice: str) -> web.AppRunner:
    """Answer GET on `routes` (path -> handler), on every address, until `cleanup` of what is returned.

    PermanentError when the port is taken; `advice` says where another is set.
    """
    app = web.Application()
    app.add_routes([web.get(path, handler) for path, handler in routes.items()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, None, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PermanentError(
            f"port {port} for health and metrics cannot be listened on ({error.strerror}); {advice}"
        ) from error
    return runner
