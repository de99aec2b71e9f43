"""The same pages without TensorBoard: a small server for this machine alone."""

from __future__ import annotations

import functools
import socketserver
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from auditor.errors import AuditProblem

from .pages import Pages, StartResponse, refused

HOST = "127.0.0.1"
FIRST_PORT = 6006
PORTS = 20
"""Ports that are tried where none was asked for."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = False


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class gives it
        """Say nothing of each request."""


def start(root: Path, port: int | None) -> str:
    """Serve the pages of ``root`` in a thread of its own and return the address. As :func:`auditor.tensorboard_tab.board.start`."""
    server = _bound(port)
    server.set_app(functools.partial(_answer, Pages(root), {f"{HOST}:{server.server_port}", f"localhost:{server.server_port}"}))
    threading.Thread(target=server.serve_forever, name="audit view", daemon=True).start()
    return f"http://{HOST}:{server.server_port}/page.html"


def _bound(port: int | None) -> _Server:
    candidates = (port,) if port is not None else (*range(FIRST_PORT, FIRST_PORT + PORTS), 0)
    problem: OSError | None = None
    for candidate in candidates:
        try:
            return _Server((HOST, candidate), _Quiet)
        except OSError as error:
            problem = error
    raise AuditProblem(f"port {port} cannot be used: {problem.strerror if problem else ''}", "choose another --port")


def _answer(pages: Pages, hosts: set[str], environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    # A name of a stranger's that leads to this machine must not read what is here.
    if environ.get("HTTP_HOST") not in hosts:
        return refused("403 Forbidden", "this address is not served", start_response)
    route = environ.get("PATH_INFO", "/").lstrip("/") or "page.html"
    return pages.answer(route, environ, start_response)
