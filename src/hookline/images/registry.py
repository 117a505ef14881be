"""Images in a registry: the few GETs of the distribution API, with `http.client` in the fetching thread.

Credentials are looked up when a registry asks for them, and go to that registry and to the token server that it names,
never along a redirect to another host. Plain HTTP is for this machine, and for hosts that were named for it.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

from hookline import http_client
from hookline.engine.plain import json_or_none
from hookline.errors import ImageError
from hookline.images.credentials import Login, login
from hookline.images.manifest import (
    ACCEPTED,
    LARGEST_TEXT,
    Descriptor,
    FetchContext,
    Landing,
    ManifestSource,
    digest_of,
)
from hookline.images.reference import Reference, is_digest
from hookline.tasks import backoff

T = TypeVar("T")

_HOSTS = {"docker.io": "registry-1.docker.io"}
_REDIRECTS = (301, 302, 303, 307, 308)
_TRIES = 4
_FIRST_WAIT = 0.3
_LONGEST_WAIT = 20.0
_SILENCE = 30.0
_CONNECT = 15.0
_CHUNK = 256 * 1024
_SAID = 200
_CHALLENGE = re.compile(r'(\w+)((?:\s*,?\s*\w+=(?:"[^"]*"|[^\s,"]+))+)')
_PAIR = re.compile(r'(\w+)=(?:"([^"]*)"|([^\s,"]+))')


class RegistrySource(ManifestSource):
    """One image in a registry. `silence` is how long, in seconds, it may send nothing."""

    def __init__(self, reference: Reference, context: FetchContext, silence: float = _SILENCE) -> None:
        super().__init__(reference.text, context)
        self._reference = reference
        self._stop = context.stop
        self._silence = silence
        host = _HOSTS.get(reference.registry, reference.registry)
        scheme = "http" if self._may_be_plain(host) else "https"
        self._base = urlsplit(f"{scheme}://{host}/v2/{reference.repository}/")
        self._authorization: str | None = None
        self._login: Login | None = None
        self._trouble = ""

    def digest(self) -> str:
        return self._reference.digest or super().digest()

    def read_top(self) -> tuple[Descriptor, bytes]:
        return self._patiently(self._asked_top)

    def save(self, to: Landing) -> None:
        self._patiently(lambda: self._saved(to), to)

    def _asked_top(self) -> tuple[Descriptor, bytes]:
        what = f"manifest of {self.label}"
        path = f"manifests/{self._reference.wanted}"
        with self._got(path, {"Accept": ", ".join(ACCEPTED)}, what) as response:
            content = _whole(response, what)
            kind = response.getheader("Content-Type")
            named = response.getheader("Docker-Content-Digest")
        if kind is not None and not kind.partition(";")[0].strip().endswith("json"):
            self._check_is_manifest(content, kind, what)
        digest = self._checked_digest(content, named)
        return Descriptor(media_type=kind or "", digest=digest, size=len(content)), content

    def _check_is_manifest(self, content: bytes, kind: str, what: str) -> None:
        try:
            json.loads(content)
        except ValueError:
            raise ImageError(
                f"{what}: {self._base.netloc} answered with {kind}, not with a manifest; is it a registry?"
                f" It begins with {content[:60]!r}"
            ) from None

    def _checked_digest(self, content: bytes, named: str | None) -> str:
        expected = self._reference.digest
        if expected is None:
            expected = named if named and is_digest(named) else digest_of(content)
        found = digest_of(content, expected)
        if found != expected:
            raise ImageError(
                f"manifest of {self.label} has the wrong digest {found}, not {expected}; it is not used"
            )
        return found

    def _saved(self, to: Landing) -> None:
        media_type, digest = to.descriptor.media_type, to.descriptor.digest
        kind = "manifests" if media_type in ACCEPTED else "blobs"
        headers = {"Accept": media_type} if kind == "manifests" else {}
        if to.at:
            headers["Range"] = f"bytes={to.at}-"
        with self._got(f"{kind}/{digest}", headers, to.what) as response:
            begin = re.match(r"bytes (\d{1,19})-", response.getheader("Content-Range") or "")
            if to.at and not (response.status == 206 and begin and int(begin[1]) == to.at):
                if response.status == 206:
                    told = f"{to.what}: {self._base.netloc} answered with another range than was requested"
                    raise _Passing(told, restart=True)
                to.restart()
            while chunk := response.read1(_CHUNK):
                self._stop.check()
                to.write(chunk)
        if not to.whole:
            raise _Passing(f"{to.what}: {self._base.netloc} cut the stream after {to.at} bytes")

    def _patiently(self, work: Callable[[], T], to: Landing | None = None) -> T:
        """Retries errors that may pass; the count starts again whenever a download has got further."""
        tries = 0
        while True:
            most = to.most if to else 0
            try:
                return work()
            except _Passing as exc:
                tries = 1 if to and to.most > most else tries + 1
                if to and exc.restart:
                    to.restart()
                if tries >= _TRIES:
                    raise ImageError(f"{exc}; gave up after {tries} tries") from exc
                pause = exc.wait or backoff(tries, first=_FIRST_WAIT, longest=_LONGEST_WAIT)
                self._stop.wait(min(pause, _LONGEST_WAIT))

    @contextmanager
    def _got(self, path: str, headers: Mapping[str, str], what: str) -> Generator[HTTPResponse]:
        """The answer to a GET, with a login if the registry asks for one."""
        url = urlsplit(urljoin(self._base.geturl(), path))
        for first in (True, False):
            with self._followed(url, headers, what) as (response, at):
                asks = response.status == 401 and http_client.origin(at) == http_client.origin(url)
                if not asks or not first:
                    self._check_status(response, what)
                    yield response
                    return
                challenges = response.headers.get_all("WWW-Authenticate") or []
            self._authorization = self._logged_in(challenges, what)

    @contextmanager
    def _followed(
        self, url: SplitResult, headers: Mapping[str, str], what: str
    ) -> Generator[tuple[HTTPResponse, SplitResult]]:
        for _ in range(http_client.MOST_REDIRECTS + 1):
            sent = dict(headers)
            if self._authorization and http_client.origin(url) == http_client.origin(self._base):
                sent["Authorization"] = self._authorization
            with self._exchanged("GET", url, sent, None, what) as response:
                if response.status not in _REDIRECTS:
                    yield response, url
                    return
                url = self._redirected(url, response, what)
        raise ImageError(
            f"{what}: {self._base.netloc} redirects more than {http_client.MOST_REDIRECTS} times"
        )

    def _redirected(self, url: SplitResult, response: HTTPResponse, what: str) -> SplitResult:
        place = response.getheader("Location") or ""
        to = http_client.address(place, url)
        if to is None:
            raise ImageError(f"{what}: {url.netloc} redirects to {place[:200]!r}, which is not an address")
        if to.scheme == "http" and self._base.scheme == "https":
            raise ImageError(
                f"{what}: {url.netloc} redirects to {http_client.shown(to)}, which is not encrypted"
            )
        return to

    def _logged_in(self, challenges: list[str], what: str) -> str:
        """The value of Authorization that a registry asks for."""
        self._look_up_login()
        asked = _challenges(challenges)
        if self._login and self._login.bearer:
            return f"Bearer {self._login.bearer}"
        if "bearer" in asked:
            return f"Bearer {self._token(asked['bearer'], what)}"
        if "basic" in asked and self._login:
            return self._login.basic
        if "basic" in asked:
            raise ImageError(self._wants_login(what))
        raise ImageError(
            f"{what}: {self._base.netloc} wants a login of a kind that is not known: {asked or 'none'}"
        )

    def _look_up_login(self) -> None:
        if self._login is not None or self._trouble:
            return
        try:
            self._login = login(self._reference.registry, self.context.environ, self._stop)
        except ImageError as exc:
            # Many images need no login, so a broken credential helper is only a warning.
            self._trouble = f"{exc}"
            self.context.told(f"{self._trouble}; trying without a login")

    def _token(self, asked: Mapping[str, str], what: str) -> str:
        realm = http_client.address(asked.get("realm", ""))
        if realm is None:
            raise ImageError(
                f"{what}: {self._base.netloc} names no usable token server: {asked.get('realm')!r}"
            )
        if realm.scheme == "http" and not self._may_be_plain(realm.netloc):
            raise ImageError(f"{what}: the token server {http_client.shown(realm)} is not encrypted")
        scope = asked.get("scope") or f"repository:{self._reference.repository}:pull"
        query = {"service": asked.get("service", ""), "scope": scope}
        query = {key: value for key, value in query.items() if value}
        with self._token_answer(realm, query, what) as response:
            if response.status in (401, 403):
                raise ImageError(self._wants_login(what))
            self._check_status(response, f"{what}: token server {http_client.shown(realm)}")
            content = _whole(response, what)
        token = _token_in(content)
        if token is None:
            raise ImageError(
                f"{what}: the token server {http_client.shown(realm)} did not answer with a token"
            )
        return token

    def _token_answer(
        self, realm: SplitResult, query: dict[str, str], what: str
    ) -> AbstractContextManager[HTTPResponse]:
        if self._login and self._login.identity:
            form = {
                **query,
                "grant_type": "refresh_token",
                "client_id": "hookline",
                "refresh_token": self._login.identity,
            }
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            return self._exchanged("POST", realm, headers, urlencode(form).encode(), what)
        url = realm._replace(query="&".join(filter(None, (realm.query, urlencode(query)))))
        headers = {"Authorization": self._login.basic} if self._login else {}
        # A redirect is not followed here, so that a password goes nowhere else.
        return self._exchanged("GET", url, headers, None, what)

    def _wants_login(self, what: str) -> str:
        registry = self._reference.registry
        if self._login:
            return f"{what}: {registry} did not accept the login from {self._login.place}"
        how = self._trouble or f"log in with docker login {registry}"
        return f"{what}: {registry} wants a login, or there is no such image; {how}"

    def _check_status(self, response: HTTPResponse, what: str) -> None:
        status = response.status
        if status in (200, 206):
            return
        if status in (401, 403):
            raise ImageError(f"{self._wants_login(what)}{self._said(response)}")
        if status == 404:
            raise ImageError(f"{what} is missing: {self._base.netloc} does not have it{self._said(response)}")
        told = f"{what}: {self._base.netloc} answered {status} {response.reason}{self._said(response)}"
        if status == 416:
            raise _Passing(told, restart=True)
        if status in http_client.PASSING:
            raise _Passing(told, wait=http_client.retry_after(response.getheader))
        raise ImageError(told)

    def _said(self, response: HTTPResponse) -> str:
        """The registry's own message, with our secrets masked."""
        text = _error_text(response.read(16 * 1024))
        secrets = [
            (self._authorization or "").rpartition(" ")[2],
            *(self._login.secrets if self._login else ()),
        ]
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return f": {text[:_SAID]}" if text else ""

    @contextmanager
    def _exchanged(
        self, method: str, url: SplitResult, headers: Mapping[str, str], body: bytes | None, what: str
    ) -> Generator[HTTPResponse]:
        """One request and its answer, both ended when the fetch is; _Passing if another try may succeed."""
        proxy = None
        try:
            proxy = http_client.proxy_for(url, self.context.environ)
            with http_client.exchange(
                method,
                url,
                headers={"User-Agent": "hookline", **headers},
                body=body,
                stop=self._stop,
                connect=_CONNECT,
                silence=self._silence,
                proxy=proxy,
            ) as response:
                yield response
        except http_client.WrongProxy as exc:
            raise ImageError(f"{exc}") from exc
        except http_client.NotReached as exc:
            if isinstance(exc.__cause__, ssl.SSLError):
                raise ImageError(
                    f"{what}: no encrypted connection to {url.netloc}: {exc}."
                    " Plain HTTP is only used where it is asked for"
                ) from exc
            through = f" through the proxy {proxy.hostname}" if proxy else ""
            raise _Passing(f"{what}: {url.netloc} was not reached{through}: {exc}") from exc
        except (OSError, HTTPException) as exc:
            self._stop.check()
            said = "timed out" if isinstance(exc, TimeoutError) else f"{exc}" or type(exc).__name__
            raise _Passing(f"{what}: {url.netloc} gave no complete answer: {said}") from exc

    def _may_be_plain(self, host: str) -> bool:
        return http_client.is_loopback(host) or host in self.context.plain


class _Passing(ImageError):
    """An error that may pass; `wait` is how long the registry asks to wait.

    `restart`: the download cannot be resumed, only started again.
    """

    def __init__(self, message: str, *, wait: float | None = None, restart: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.restart = restart


def _whole(response: HTTPResponse, what: str) -> bytes:
    content = response.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ImageError(f"{what} has more than {LARGEST_TEXT} bytes")
    if response.length:
        raise _Passing(f"{what} was cut off")
    return content


def _challenges(headers: list[str]) -> dict[str, dict[str, str]]:
    return {
        match[1].lower(): {pair[1].lower(): pair[2] or pair[3] or "" for pair in _PAIR.finditer(match[2])}
        for header in headers
        for match in _CHALLENGE.finditer(header)
    }


def _token_in(content: bytes) -> str | None:
    found = json_or_none(content) or {}
    token = found.get("token") or found.get("access_token")
    return token if isinstance(token, str) and token.isascii() and token.isprintable() else None


def _error_text(content: bytes) -> str:
    try:
        errors: Any = json.loads(content)["errors"]
        return "; ".join(str(error.get("message") or error.get("code")) for error in errors)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return " ".join(content.decode("utf-8", "replace").split())
