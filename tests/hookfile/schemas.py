"""As much of JSON Schema as our own schemas use; a keyword that is not here is an error, not a pass."""

import re
from typing import Any

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
SAYS_NOTHING = {"$schema", "$defs", "title", "description"}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any] | None = None) -> list[str]:
    """The keywords of a schema that the value does not keep to."""
    root = root or schema
    told: list[str] = []
    for keyword, wanted in schema.items():
        if keyword not in SAYS_NOTHING and not KEYWORDS[keyword](value, wanted, schema, root):
            told.append(keyword)
    return told


def fits(value: Any, schema: Any, root: dict[str, Any]) -> bool:
    return not faults(value, schema, root)


def of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def referred(name: str, root: dict[str, Any]) -> Any:
    for part in name.removeprefix("#/").split("/"):
        root = root[part]
    return root


def extra(value: dict[str, Any], schema: dict[str, Any]) -> list[Any]:
    patterns = schema.get("patternProperties", {})
    return [
        item
        for key, item in value.items()
        if key not in schema.get("properties", {}) and not any(re.search(each, key) for each in patterns)
    ]


def additional(value: Any, wanted: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    left = extra(value, schema) if isinstance(value, dict) else []
    return not left if wanted is False else all(fits(item, wanted, root) for item in left)


def is_number(value: Any) -> bool:
    return of_type(value, "number")


KEYWORDS: dict[str, Any] = {
    "type": lambda v, w, s, r: any(of_type(v, name) for name in ([w] if isinstance(w, str) else w)),
    "enum": lambda v, w, s, r: v in w,
    "const": lambda v, w, s, r: type(v) is type(w) and v == w,
    "pattern": lambda v, w, s, r: not isinstance(v, str) or bool(re.search(w, v)),
    "minLength": lambda v, w, s, r: not isinstance(v, str) or len(v) >= w,
    "maxLength": lambda v, w, s, r: not isinstance(v, str) or len(v) <= w,
    "exclusiveMinimum": lambda v, w, s, r: not is_number(v) or v > w,
    "exclusiveMaximum": lambda v, w, s, r: not is_number(v) or not v >= w,
    "minItems": lambda v, w, s, r: not isinstance(v, list) or len(v) >= w,
    "uniqueItems": lambda v, w, s, r: not isinstance(v, list) or len({repr(each) for each in v}) == len(v),
    "items": lambda v, w, s, r: not isinstance(v, list) or all(fits(each, w, r) for each in v),
    "minProperties": lambda v, w, s, r: not isinstance(v, dict) or len(v) >= w,
    "required": lambda v, w, s, r: not isinstance(v, dict) or all(key in v for key in w),
    "properties": lambda v, w, s, r: (
        not isinstance(v, dict) or all(fits(v[key], w[key], r) for key in w if key in v)
    ),
    "patternProperties": lambda v, w, s, r: (
        not isinstance(v, dict)
        or all(fits(v[key], w[each], r) for key in v for each in w if re.search(each, key))
    ),
    "propertyNames": lambda v, w, s, r: not isinstance(v, dict) or all(fits(key, w, r) for key in v),
    "additionalProperties": additional,
    "dependentSchemas": lambda v, w, s, r: (
        not isinstance(v, dict) or all(fits(v, w[key], r) for key in w if key in v)
    ),
    "anyOf": lambda v, w, s, r: any(fits(v, each, r) for each in w),
    "not": lambda v, w, s, r: not fits(v, w, r),
    "oneOf": lambda v, w, s, r: sum(fits(v, each, r) for each in w) == 1,
    "$ref": lambda v, w, s, r: fits(v, referred(w, r), r),
}
