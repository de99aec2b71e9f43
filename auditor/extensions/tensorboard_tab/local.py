"""The same pages without TensorBoard: a small server for this machine alone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem

from .pages import Pages, StartResponse, refused

HOST = "127.0.0.1"
FIRST_PORT = 6006
PORTS = 20
"""Ports that are tried where none was asked for."""

THREADS = 8
"""Requests that are answered at a time; others wait in waitress's queue, none is reset."""

CONNECTIONS, SILENT_S = 1000, 10
"""Connections that are open at a time, and seconds after which one that sends nothing is closed: at
waitress's own 100 and 120 s a hundred half-open ones keep everybody else out.
"""


def start(root: Path, port: int | None) -> str:
    """Serve the pages of ``root`` in a thread of its own and return the address.

    ``port`` None looks for a free one from 6006 upwards, 0 takes any. Raises :class:`AuditProblem`
    where the port cannot be used.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a busy machine is no news
    application = _OurHostsOnly(Pages(root))
    server = _bound(application, port)
    port = application.serve_at(int(server.effective_port))
    threading.Thread(target=server.run, name="audit view", daemon=True).start()
    return f"http://{HOST}:{port}/page.html"


def _bound(application: _OurHostsOnly, port: int | None) -> Any:
    try:
        from waitress import create_server
    except ImportError as error:
        raise AuditProblem(
            f"the pages cannot be served: {error}", "pip install 'torch-step-audit[all]'"
        ) from None
    candidates = (port,) if port is not None else (*range(FIRST_PORT, FIRST_PORT + PORTS), 0)
    problem: OSError | None = None
    for candidate in candidates:
        try:
            return create_server(
                application,
                host=HOST,
                port=candidate,
                threads=THREADS,
                ident=None,
                connection_limit=CONNECTIONS,
                channel_timeout=SILENT_S,
                cleanup_interval=SILENT_S // 2,
                asyncore_use_poll=True,  # select() ends at descriptor 1,023
            )
        except OSError as error:
            problem = error
    reason = problem.strerror if problem else ""
    raise AuditProblem(f"port {port} cannot be used: {reason}", "choose another --port")


class _OurHostsOnly:
    """The WSGI application; a stranger's host name that leads to this machine must not read it."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._hosts: frozenset[str] = frozenset()

    def serve_at(self, port: int) -> int:
        """Answer requests for this port's addresses, and return it. Not before."""
        self._hosts = frozenset((f"{HOST}:{port}", f"localhost:{port}"))
        return port

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_HOST") not in self._hosts:
            return refused("403 Forbidden", "this address is not served", start_response)
        route = environ.get("PATH_INFO", "/").lstrip("/") or "page.html"
        return self._pages.answer(route, environ, start_response)
