"""The parser of the command line: the words of a command as the value of its class of options.

argparse loads faster than its peers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hookline.errors import UsageError, nearest
from hookline.files import output
from hookline.options import option_name

_TEXTS = "tuple[str, ...]"
_TYPES: dict[str, type[Any]] = {"str": str, _TEXTS: str, "int": int, "float": float, "Path": Path}
"""The type of an option's value, or of each where there are several, by the annotation of its field."""
_METAVARS = {str: "TEXT", int: "N", float: "N", Path: "PATH"}
_WORDS = "words"

Options = TypeVar("Options")


def parse(kind: type[Options], words: Sequence[str], command: str, about: str) -> Options | None:
    """The parsed options; None if help was printed instead."""
    # The words after `--` are never options.
    at = words.index("--") if "--" in words else len(words)
    own, rest = words[:at], words[at + 1 :]
    if "--help" in own:
        output.write(_parser(kind, command, about, for_help=True).format_help())
        return None
    parser = _parser(kind, command, about, for_help=False)
    found = vars(parser.parse_intermixed_args(own))
    return kind(**_positionals(kind, [*found.pop(_WORDS), *rest], command), **_values(kind, found))


class _Parser(argparse.ArgumentParser):
    """Raises UsageError, which names the option that was probably meant."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            word = unknown.split(" ")[0].partition("=")[0]
            near = nearest(word, (each for each in self._option_string_actions if each[:2] == "--"))
            hint = f"; did you mean {near}?" if near else ""
            message = f"there is no option {word}{hint}"
        raise UsageError(f"{message} ({self.prog} --help)")


def _parser(kind: type[Any], command: str, about: str, *, for_help: bool) -> _Parser:
    listed = [each for each in fields(kind) if each.metadata.get("positional")]
    usage = " ".join([f"hookline {command} [OPTIONS]", *(_positional_word(each) for each in listed)])
    parser = _Parser(
        prog=f"hookline {command}",
        usage=usage,
        description=about,
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30),
    )
    # Arguments may stand before, between and after options; argparse fills several optional ones wrongly then.
    positionals = parser.add_argument_group("arguments")
    for each in listed if for_help else ():
        positionals.add_argument(each.name.upper(), help=_help(each))
    if not for_help:
        positionals.add_argument(_WORDS, nargs="*")
    options = parser.add_argument_group("options")
    for each in fields(kind):
        if not each.metadata.get("positional"):
            _add_option(options, each)
    options.add_argument(
        "--help", action="store_true", default=argparse.SUPPRESS, help="show this help and exit"
    )
    return parser


def _add_option(options: Any, each: Field[Any]) -> None:
    about = each.metadata
    names = [option_name(each.name, about), *([about["short"]] if about.get("short") else [])]
    more: dict[str, Any] = {"dest": each.name, "default": argparse.SUPPRESS, "help": _help(each)}
    if each.type == "bool":
        more["action"] = "store_true"
    else:
        more["type"] = _type(each)
        more["metavar"] = _METAVARS[more["type"]]
        if each.type == _TEXTS:
            more["action"] = "append"
    options.add_argument(*names, **more)


def _type(each: Field[Any]) -> type[Any]:
    return _TYPES[str(each.type).removesuffix(" | None")]


def _help(each: Field[Any]) -> str:
    text = str(each.metadata["help"]).replace("%", "%%")
    if each.metadata.get("hidden"):
        return argparse.SUPPRESS
    shown = each.default
    if isinstance(shown, str | int | float) and not isinstance(shown, bool) and shown != "":
        return f"{text} [default: {shown}]"
    return text


def _positional_word(each: Field[Any]) -> str:
    word = each.name.upper() + ("..." if each.type == _TEXTS else "")
    return word if each.metadata["required"] else f"[{word}]"


def _positionals(kind: type[Any], words: list[str], command: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    left = list(words)
    for each in fields(kind):
        about = each.metadata
        if not about.get("positional"):
            continue
        if each.type == _TEXTS:
            given, left = tuple(left), []
        else:
            given, left = (_type(each)(left[0]) if left else None), left[1:]
        if given:
            found[each.name] = given
        elif about["required"]:
            raise UsageError(f"{each.name.upper()} is missing (hookline {command} --help)")
    if left:
        raise UsageError(f"unexpected argument {left[0]!r} (hookline {command} --help)")
    return found


def _values(kind: type[Any], found: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in fields(kind):
        about = each.metadata
        if each.name not in found:
            if about.get("required") and not about.get("positional"):
                raise UsageError(f"{option_name(each.name, about)} is missing")
            continue
        value = found[each.name]
        least, most = about.get("least"), about.get("most")
        if (least is not None and value < least) or (most is not None and value > most):
            wanted = f"{least} or more" if most is None else f"{least} to {most}"
            raise UsageError(f"{option_name(each.name, about)} is {value}; it must be {wanted}")
        values[each.name] = tuple(value) if each.type == _TEXTS else value
    return values
