"""Structured output: the schema a model is asked to keep to, and reading its answer by it."""

from __future__ import annotations

import json
from typing import Any


class DoesNotFit(ValueError):
    """An answer that is not what the schema asks for; the message is for the model."""


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
        """The answer as a value; code fences around it are forgiven."""
        return self._checked(lambda: self._adapter.validate_json(_bare(text or "")))

    def check(self, value: Any) -> Any:
        """A value that a hook put in the answer's place."""
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


def as_text(value: Any) -> str:
    """A value as a model reads it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
