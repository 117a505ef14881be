"""What an agent left: `result.json`, or the same JSON between two markers in its output; never taken for more than it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from hookline.kube.pod_state import ContainerPhase, EndReason
from hookline.sympozium.phases import AgentSeen

BEGIN = "__SYMPOZIUM_RESULT__"
END = "__SYMPOZIUM_END__"
MOST_BYTES = 8 * 1024 * 1024
"""A longer result is refused whole: half of one would be taken for an answer."""
NO_REASON = "preRun hook requested skip"
_MOST = 10_000_000_000
_STATUSES = ("success", "error", "skipped")
_METRICS = ("durationMs", "inputTokens", "outputTokens", "toolCalls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`wrong` says why what was left is no result."""

    status: str = "error"
    response: str = ""
    error: str = ""
    metrics: Mapping[str, int] = field(default_factory=dict[str, int])
    wrong: str = ""


def parsed(content: bytes | str) -> Result:
    """The content of a result file."""
    given = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    if len(given) > MOST_BYTES:
        return _wrong(f"has {len(given)} bytes; at most {MOST_BYTES} are read")
    try:
        value: Any = json.loads(given.decode("utf-8"))
    except UnicodeDecodeError:
        return _wrong("is not text in UTF-8")
    except (ValueError, RecursionError) as exc:
        return _wrong(f"is not whole JSON: {exc}")
    if not isinstance(value, dict):
        return _wrong(f"is a {type(value).__name__}; it must be an object with status and response")
    return _read(cast("Mapping[str, Any]", value))


def from_output(text: str) -> Result | None:
    """The result that stands in the output, on a line of its own: the last whole one, wherever that line is.

    An answer that quotes a marker has it inside its JSON, so it does not count.
    """
    for line in reversed(text.split("\n")):
        known = line.strip()
        if known.startswith(BEGIN) and known.endswith(END):
            return parsed(known.removeprefix(BEGIN).removesuffix(END))
    return _spread(text)


def ended(
    exit_code: int | None, result: Result | None, *, reason: EndReason = EndReason.EXITED, tail: str = ""
) -> AgentSeen:
    """How an agent ended, of its exit code and what it left. Its own code counts above what it says of itself."""
    found = result or Result(status="success" if exit_code == 0 else "error")
    failed = reason is not EndReason.EXITED or exit_code != 0 or found.status == "error"
    if not failed and found.status == "skipped":
        return AgentSeen(
            state=ContainerPhase.ENDED, exit_code=exit_code, skipped=found.response.strip() or NO_REASON
        )
    said = found.error or (f"the agent's result {found.wrong}" if found.wrong else "")
    if failed and not said and reason is EndReason.EXITED:
        last = tail.strip().splitlines()[-1:]
        said = f"agent exited with code {exit_code}{''.join(f': {line}' for line in last)}"
    return AgentSeen(
        state=ContainerPhase.ENDED,
        exit_code=exit_code,
        reason=reason,
        result=found.response,
        error=said if failed else "",
        usage=_usage(found.metrics),
    )


def _read(value: Mapping[str, Any]) -> Result:
    status = value.get("status")
    if status not in _STATUSES:
        return _wrong(f"has the status {status!r}; known: {', '.join(_STATUSES)}")
    response, error = value.get("response"), value.get("error")
    for key, text in (("response", response), ("error", error)):
        if not isinstance(text, str | None):
            return _wrong(f"has a {key} that is no text")
    if status == "error" and not error:
        error = response or "the agent says that it failed, and not why"
    return Result(
        status=status, response=response or "", error=error or "", metrics=_metrics(value.get("metrics"))
    )


def _metrics(value: Any) -> dict[str, int]:
    """Counts that can be believed: none above a limit, and where one is negative none at all."""
    given: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
    counts = {key: given.get(key) for key in _METRICS}
    found = {key: min(count, _MOST) for key, count in counts.items() if _is_number(count)}
    return {key: int(count) if min(found.values()) >= 0 else 0 for key, count in found.items()}


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _usage(metrics: Mapping[str, int]) -> dict[str, int]:
    if not metrics:
        return {}
    return {**metrics, "totalTokens": metrics.get("inputTokens", 0) + metrics.get("outputTokens", 0)}


def _spread(text: str) -> Result | None:
    """A result whose markers stand on lines of their own, or that never got to its end."""
    _, begun, rest = text.rpartition(f"\n{BEGIN}") if f"\n{BEGIN}" in text else ("", *_at_start(text))
    if not begun:
        return None
    inner, closed, _ = rest.partition(END)
    return parsed(inner.strip()) if closed else _wrong(f"begins with {BEGIN} and has no {END}")


def _at_start(text: str) -> tuple[str, str]:
    return (BEGIN, text.removeprefix(BEGIN)) if text.startswith(BEGIN) else ("", text)


def _wrong(why: str) -> Result:
    return Result(status="error", wrong=why)
