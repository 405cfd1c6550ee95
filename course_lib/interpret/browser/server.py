"""Answers the page on this machine: tornado, because it comes with JupyterLab and is kept by the same people.

What is asked of the index is answered at once; what needs the model goes to one other thread, and the model is loaded
when it is first asked for. Safety: the server listens on 127.0.0.1 alone. Page and data are given for a random token
only: without it another user of the machine could read the run. Data is asked for with the token in a header and
never by a cookie, so that another site's page cannot ask in the reader's name: a browser does not send such a header to
another site before it was allowed to, and nobody is. Names other than this machine's own are refused, because a
foreign name that points to 127.0.0.1 would make a foreign page the same site. A body is read after that, and a
connection on which nothing comes is closed.
"""

import asyncio
import hmac
import html
import os
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler, stream_request_body

from course_lib.interpret.browser import requests
from course_lib.interpret.browser.index import (
    FOUND,
    FeatureIndex,
    IndexDamaged,
    IndexMissing,
    IndexUnavailable,
    fingerprint,
)
from course_lib.interpret.browser.notes import FILE, Notes
from course_lib.interpret.browser.page import FRAMED_BY, as_json, page, policy

if TYPE_CHECKING:
    from course_lib.interpret.browser.features import FeatureBrowser

HOST = "127.0.0.1"
_LARGEST_BODY = 1 << 20
_MOST_FOUND = 200
"""Sentences with a word that are sent at once."""
_PATIENCE = 60.0
"""Seconds that a connection may take to send a request, and between two of them."""


class _Answers:
    """Answers of index and model. The model is loaded once, by the one thread that uses it."""

    def __init__(self, index: FeatureIndex, load: Callable[[], "FeatureBrowser"], notes: Notes | None):
        self.index, self.load, self.notes = index, load, notes
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="browse-model")

    @cached_property
    def browser(self) -> "FeatureBrowser":
        """The run's model."""
        return self.load()

    @cached_property
    def page(self) -> bytes:
        """The page, with the list of all features inside."""
        data = {"about": self.index.about, "identity": self.index.identity, "list": self.index.summary()}
        data["concepts"] = bool(self.index.concepts)
        kept = None if self.notes is None else self.notes.path.name
        return page(data | {"features": None, "notes": kept}).encode()

    def read(self, body: dict[str, Any]) -> Any:
        """Features by token of `text` in `language`."""
        return self.browser.read(requests.text(body, "text"), requests.language(body, "language")).as_dict()

    def translate(self, body: dict[str, Any]) -> Any:
        """Translations of `text` from `source` to `target`, with `changes`."""
        languages = (requests.language(body, name) for name in ("source", "target"))
        return self.browser.compare(requests.text(body, "text"), *languages, requests.changes(body))

    def effect(self, body: dict[str, Any]) -> Any:
        """The effect of `feature`, measured now."""
        from course_lib.interpret.browser.features import strongest_sentences

        feature = requests.integer(body, "feature")
        if not 0 <= feature < self.index.n_features:
            raise ValueError(f"feature is {feature}; expected a number from 0 to {self.index.n_features - 1}")
        sentences = strongest_sentences(self.index, [feature])
        if not sentences[0]:
            raise ValueError(f"feature {feature} is active nowhere; it has no effect to be measured")
        return self.browser.effects([feature], sentences).row(0)


@stream_request_body
class _Handler(RequestHandler):
    """Looks at name and token before the body is read, and keeps no more of it than is allowed."""

    def initialize(self, answers: _Answers, token: str) -> None:
        self.answers, self.token = answers, token
        self.body, self.body_size = bytearray(), 0

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", f"{policy()}; {FRAMED_BY}")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def prepare(self) -> None:
        if self.request.host_name not in (HOST, "localhost"):
            raise HTTPError(403, reason="this server answers under the name of this machine alone")
        if not hmac.compare_digest(self.given_token().encode(), self.token.encode()):
            raise HTTPError(
                403,
                reason="the token is missing or wrong: use the address that was printed, and --link for an old one",
            )

    def data_received(self, chunk: bytes) -> None:
        self.body_size += len(chunk)
        if self.body_size <= _LARGEST_BODY:
            self.body += chunk

    def argument(self, name: str) -> str:
        """A field of the address, with a sign in place of what is not UTF-8."""
        return self.request.query_arguments.get(name, [b""])[-1].decode(errors="replace")

    def given_token(self) -> str:
        return self.request.headers.get("Authorization", "").removeprefix("token ")

    def answer(self, value: Any) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(as_json(value).encode(errors="replace"))

    def write_error(self, status_code: int, **_: Any) -> None:
        self.answer({"error": self._reason})

    def log_exception(self, kind: Any, value: Any, traceback: Any) -> None:
        if not isinstance(value, HTTPError):
            super().log_exception(kind, value, traceback)


class _Page(_Handler):
    def given_token(self) -> str:
        return self.argument("token")

    def get(self) -> None:
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(self.answers.page)


class _Missing(_Handler):
    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)


class _Looked(_Handler):
    """An answer of the index to the numbers in the address; what it refuses is explained."""

    def get(self, *numbers: str) -> None:
        try:
            self.answer(self.look(self.answers.index, *map(int, numbers)))
        except ValueError as error:
            self.set_status(400)
            self.answer({"error": str(error)})


class _Feature(_Looked):
    def look(self, index: FeatureIndex, feature: int) -> Any:
        return index.feature(feature, language=self.argument("language") or None)


class _Pair(_Looked):
    def look(self, index: FeatureIndex, a: int, b: int) -> Any:
        return index.together(a, b)


class _Sentence(_Looked):
    def look(self, index: FeatureIndex, sentence: int) -> Any:
        return index.sentence(sentence)


class _Sentences(_Looked):
    def look(self, index: FeatureIndex) -> Any:
        n = self.argument("n") or str(FOUND)
        if not (n.isascii() and n.isdigit() and len(n) < 9 and 1 <= int(n) <= _MOST_FOUND):
            raise ValueError(f"n is {n[:20]!r}; expected 1 to {_MOST_FOUND} sentences")
        return index.find(self.argument("words"), language=self.argument("language") or None, n=int(n))


class _Notes(_Handler):
    """Reads the notes beside the run and changes those of some features. Answered in this thread, so one at a time."""

    def get(self) -> None:
        self.answer_notes(lambda notes: notes.read())

    def post(self) -> None:
        if self.body_size > _LARGEST_BODY:
            raise HTTPError(413, reason=f"the request is too large: at most {_LARGEST_BODY} bytes")

        def update(notes: Notes) -> dict[int, dict[str, Any]]:
            given = requests.body(bytes(self.body))
            before = None if given.get("before") is None else requests.notes(given, "before")
            return notes.update(requests.notes(given), before)

        self.answer_notes(update)

    def answer_notes(self, work: Callable[[Notes], dict[int, dict[str, Any]]]) -> None:
        if self.answers.notes is None:
            raise HTTPError(404)
        try:
            self.answer({"features": work(self.answers.notes)})
        except (ValueError, OSError) as error:
            self.set_status(400)
            self.answer({"error": f"Notes are not kept: {error}"})


class _Model(_Handler):
    async def post(self, name: str) -> None:
        try:
            if self.body_size > _LARGEST_BODY:
                raise HTTPError(413, reason=f"the request is too large: at most {_LARGEST_BODY} bytes")
            work = partial(getattr(self.answers, name), requests.body(bytes(self.body)))
            self.answer(await asyncio.get_running_loop().run_in_executor(self.answers.thread, work))
        except (ValueError, IndexUnavailable) as error:
            self.set_status(400)
            self.answer({"error": str(error)})
        except RuntimeError as error:
            from course_lib.mbart.model import ModelUnavailable

            if not isinstance(error, ModelUnavailable):
                raise
            self.set_status(503)
            self.answer({"error": str(error)})


class Server:
    """The page of a run, served by a thread of its own until `close`, or until the process ends.

    `port` 0 is any free one. A reader's notes are kept in the directory `notes`; without one by the reader's browser.
    Raises OSError where the port is taken.
    """

    def __init__(
        self,
        index: FeatureIndex,
        load: Callable[[], "FeatureBrowser"],
        *,
        port: int = 0,
        notes: Path | None = None,
    ):
        self.token = secrets.token_urlsafe(24)
        kept = None if notes is None else Notes(notes / FILE, index.identity, index.n_features)
        self.index, self.answers = index, _Answers(index, load, kept)
        sockets = bind_sockets(port, HOST)
        self.port = sockets[0].getsockname()[1]
        given = {"answers": self.answers, "token": self.token}
        application = Application(
            [
                (r"/", _Page, given),
                (r"/api/feature/(\d{1,9})", _Feature, given),
                (r"/api/together/(\d{1,9})/(\d{1,9})", _Pair, given),
                (r"/api/sentences", _Sentences, given),
                (r"/api/sentence/(\d{1,9})", _Sentence, given),
                (r"/api/notes", _Notes, given),
                (r"/api/(read|translate|effect)", _Model, given),
            ],
            default_handler_class=_Missing,
            default_handler_args=given,
            compress_response=True,
            log_function=lambda handler: None,
        )
        self._loop = asyncio.new_event_loop()
        self._server: HTTPServer | None = None
        started = threading.Event()

        async def start() -> None:
            # Of a body that is somewhat larger than allowed the handlers say so; tornado only closes the connection.
            self._server = HTTPServer(
                application,
                max_body_size=8 * _LARGEST_BODY,
                idle_connection_timeout=_PATIENCE,
                body_timeout=_PATIENCE,
            )
            self._server.add_sockets(sockets)
            started.set()

        def serve() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(start())
            self._loop.run_forever()
            self._loop.close()

        self.thread = threading.Thread(target=serve, name="browse-server", daemon=True)
        self.thread.start()
        started.wait()

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://{HOST}:{self.port}/?{urlencode({'token': self.token})}"

    def wait(self) -> None:
        """Return when the server is closed; an interrupt (Ctrl+C) closes it."""
        try:
            self.thread.join()
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stop answering. A second call does nothing."""

        async def stop() -> None:
            self._server.stop()
            await self._server.close_all_connections()
            self._loop.stop()

        if self.thread.is_alive():
            asyncio.run_coroutine_threadsafe(stop(), self._loop)
            self.thread.join()
            self.answers.thread.shutdown(wait=False, cancel_futures=True)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        address = html.escape(self.address)
        return {
            "text/plain": f"Feature browser: {self.address}",
            "text/html": (
                f'<p>Feature browser: <a href="{address}" target="_blank" rel="noopener">{address}</a></p>'
                f'<iframe src="{address}" title="Feature browser" width="100%" height="760" '
                'style="border: 1px solid #8888"></iframe>'
            ),
        }


def serve(
    run: os.PathLike | str,
    *,
    port: int = 0,
    effects: int | None = None,
    device: str | None = None,
    threads: int | None = None,
    progress: bool = True,
) -> Server:
    """Open the index of the run in directory `run`, which is made where there is none, and serve its page.

    See `build_index` for `effects`, and for what is raised beside OSError for a port that is taken.
    """

    def load() -> "FeatureBrowser":
        from course_lib.interpret.browser.features import FeatureBrowser

        return FeatureBrowser(run, device=device, threads=threads)

    index = open_or_build(run, effects=effects, device=device, threads=threads, progress=progress)
    return Server(index, load, port=port, notes=Path(run))


def open_or_build(run: os.PathLike | str, **options: Any) -> FeatureIndex:
    """The index of a run, made where there is none or a damaged one; torch is loaded only then."""
    try:
        return FeatureIndex.open(run)
    except (IndexMissing, IndexDamaged):
        fingerprint(Path(run))  # what is no run is refused before torch is loaded
        from course_lib.interpret.browser.build import build_index

        return build_index(run, **options)


def browse(run: os.PathLike | str, **options: Any) -> Server:
    """Serve the features of a run to this notebook: as the last value of a cell it shows the page.

    `run` is a result of `pipeline.run` or its directory; `options` are those of `serve`. The server ends with the
    kernel, or by `close()` of what is returned, whose `address` opens in any browser of this machine.
    """
    return serve(Path(run), **options)
