"""Entries in settings: the switches with which a client asks no hook, and entries that are taken out."""

import json

import pytest

from hookline.claude.clients import CLIENTS, Place
from hookline.claude.entries import read_settings, switched_off, take_entries_out

ONLY_MANAGED, NONE_AT_ALL = {"allowManagedHooksOnly": True}, {"disableAllHooks": True}


@pytest.mark.parametrize(
    ("written", "off"),
    [
        ({}, set()),
        ({Place.MANAGED: ONLY_MANAGED}, {Place.USER, Place.PROJECT, Place.LOCAL}),
        ({Place.MANAGED: {"allowManagedHooksOnly": False}}, set()),
        ({Place.USER: ONLY_MANAGED, Place.PROJECT: ONLY_MANAGED, Place.LOCAL: ONLY_MANAGED}, set()),
        ({Place.MANAGED: NONE_AT_ALL}, set(Place)),
        ({Place.USER: NONE_AT_ALL}, {Place.USER, Place.PROJECT, Place.LOCAL}),
        ({Place.LOCAL: {"disableAllHooks": False}, Place.USER: NONE_AT_ALL}, set()),
    ],
)
def test_a_switch_holds_for_the_entries_that_the_client_leaves_out(tmp_path, written, off):
    client = CLIENTS["claude-code"]._replace(managed=str(tmp_path / "etc" / "managed-settings.json"))
    environ = {"HOME": str(tmp_path / "user")}
    files = {place: client.file(place, tmp_path / "project", environ) for place in Place}
    for place, settings in written.items():
        files[place].parent.mkdir(parents=True, exist_ok=True)
        files[place].write_text(json.dumps(settings))
    told = {place: switched_off(client, place, tmp_path / "project", environ) for place in Place}
    assert {place for place, why in told.items() if why} == off
    assert all(any(f"{files[place]}: " in why for place in written) for why in told.values() if why)


def test_an_event_that_is_there_twice_leaves_no_entry_of_hookline_behind(tmp_path, monkeypatch):
    """A reader takes the last one, so to remove that alone would put the first one into force."""
    monkeypatch.setenv("HOOKLINE_HOME", str(tmp_path / "home"))
    ours = '[{"hooks": [{"type": "command", "command": "hookline answer Stop --once"}]}]'
    file = tmp_path / "settings.json"
    file.write_text(f'{{"a": 1, "hooks": {{"Stop": {ours}, "Stop": {ours}}}}}\n')
    assert take_entries_out(read_settings(file))
    assert file.read_text() == '{"a": 1}\n'
