"""Imports of approved Python code: the content that was compared is what is executed."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from types import CodeType

from hookline.files import fixed


class ApprovedLoader(SourceFileLoader):
    """Loads the content that was compared; neither the file nor a compiled one beside it is read."""

    def get_code(self, fullname: str) -> CodeType | None:
        content = fixed(self.path)
        return super().get_code(fullname) if content is None else self.source_to_code(content, self.path)


class _Finder:
    """Finds approved code before the import system looks at the files."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        last = name.rpartition(".")[2]
        for folder in sys.path if path is None else path:
            package = f"{folder}/{last}"
            for file, places in ((f"{package}/__init__.py", [package]), (f"{package}.py", None)):
                if folder and fixed(file) is not None:
                    loader = ApprovedLoader(name, file)
                    return spec_from_file_location(
                        name, file, loader=loader, submodule_search_locations=places
                    )
        return None


@contextmanager
def approved_first() -> Generator[None]:
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)


def origin_of(module: str, folder: str) -> str:
    """The file that a module would be loaded from, beside those in a folder; empty where there is none."""
    sys.path.insert(0, folder)
    try:
        with approved_first():
            found = find_spec(module)
    except (ImportError, ValueError):
        return ""  # to import it says why
    finally:
        sys.path.remove(folder)
    return str(found.origin or "") if found is not None else ""
