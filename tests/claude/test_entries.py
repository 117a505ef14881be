"""The switches with which a client asks no hook, and whose entries each of them switches off."""

import json

import pytest

from hookline.claude.clients import CLIENTS, Place
from hookline.claude.entries import switched_off

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
