"""Structured output: the schema for a model's answer, and the reading of an answer by it."""

from __future__ import annotations

from typing import Any


class DoesNotFit(ValueError):
    """An answer that does not match the schema; the message is for the model."""


class OutputSchema:
    """A pydantic model class, or any type that pydantic can check."""

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter

        self.kind = kind
        self.name: str = getattr(kind, "__name__", str(kind))
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    @property
    def json_schema(self) -> dict[str, Any]:
        return self._adapter.json_schema()

    def read(self, text: str | None) -> Any:
        """The answer as a value; code fences around it are ignored."""
        return self._checked(lambda: self._adapter.validate_json(_bare(text or "")))

    def check(self, value: Any) -> Any:
        """Validates a value with which a hook replaced the answer."""
        return self._checked(lambda: self._adapter.validate_python(value))

    def _checked(self, read: Any) -> Any:
        from pydantic import ValidationError

        try:
            return read()
        except ValidationError as exc:
            problems = [
                f"{'.'.join(str(part) for part in error['loc']) or 'answer'}: {error['msg']}"
                for error in exc.errors(include_url=False)
            ]
            raise DoesNotFit(f"the answer does not fit {self.name}: {'; '.join(problems)}") from None


def _bare(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        body = stripped[3:-3]
        first, _, rest = body.partition("\n")
        return rest if first.strip().isalpha() or not first.strip() else body
    return stripped
