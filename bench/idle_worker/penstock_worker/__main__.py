"""Stands in for `python -m penstock_worker`: says that it is well and ready, and does nothing."""

from __future__ import annotations

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
HTTPServer(("", int(os.environ["PENSTOCK_METRICS_PORT"])), Well).serve_forever()
