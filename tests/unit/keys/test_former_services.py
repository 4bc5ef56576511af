"""Keys that move to another key service: who is asked about what, and what each answer means."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sparkcrypt.errors import (
    ConfigError,
    KeyAccessDeniedError,
    KeyNotFoundError,
    KeyServiceError,
    KeyServiceUnavailableError,
)
from sparkcrypt.keys.access_decisions import RefusalKeeper
from sparkcrypt.keys.local.service import LocalKeyService
from sparkcrypt.keys.open_service import MovingKeyService, needs_moving, open_key_service
from sparkcrypt.keys.service import DelegatingKeyService, KeyService
from sparkcrypt.policy.key_service import KEY_SERVICE_OPTIONS, FormerService, KeyServiceConfig, is_form_of
from tests.unit.keys.conftest import OpenAws, OpenVault

KEY = secrets.token_bytes(16)


class Failing:
    """A key service that raises, and counts how often it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error, self.asked = error, 0

    def unwrap(self, key_id: str, wrapped: str) -> bytes:
        """Raise."""
        self.asked += 1
        raise self.error


@pytest.fixture
def local(tmp_path: Path) -> Callable[[str], LocalKeyService]:
    """Opens a local key service in a folder of its own."""
    return lambda name: LocalKeyService(config_of(tmp_path / name))


def config_of(folder: Path, **more: Any) -> KeyServiceConfig:
    """Return the configuration of a local key service."""
    return KeyServiceConfig.from_dict({"type": "local", "path": str(folder), **more})


def moving(kind: str, current: Any, *former: tuple[str, Any], keys: tuple[str, ...] = ("pii",)) -> MovingKeyService:
    """Return a key service with former ones, each of a type."""
    opened = {FormerService(KeyServiceConfig.from_dict({"type": name}), keys): service for name, service in former}
    return MovingKeyService(kind, current, opened)


def test_policy_opens_what_a_former_service_wrapped_and_wraps_with_its_own(
    tmp_path: Path, local: Callable[[str], LocalKeyService]
) -> None:
    """Only for the keys that the policy names; the form of the texts does not tell here, so both are asked."""
    before = local("before")
    for key_id in ("pii", "fin", "contact-2026"):
        before.create(key_id)
    old = {key_id: before.wrap(key_id, KEY) for key_id in ("pii", "fin", "contact-2026")}
    former = {"type": "local", "path": str(tmp_path / "before"), "keys": ["pii", "contact-*"]}
    service = open_key_service(config_of(tmp_path / "now", former=[former]))
    service.create("footer")
    with pytest.raises(KeyNotFoundError, match=r"'pii' is not in .*/now"):
        service.wrap("pii", KEY)
    for key_id in ("pii", "fin"):
        service.create(key_id)
    assert before.list_keys() == local("before").list_keys()
    assert [service.unwrap(key_id, old[key_id]) for key_id in ("pii", "contact-2026")] == [KEY, KEY]
    with pytest.raises(KeyServiceError, match="key 'fin'") as refused:
        service.unwrap("fin", old["fin"])
    assert "former" not in str(refused.value)
    new = service.wrap("pii", KEY)
    assert local("now").unwrap("pii", new) == KEY
    assert (needs_moving(service, "pii", old["pii"]), needs_moving(service, "pii", new)) == (True, False)
    assert not needs_moving(service, "fin", old["fin"])
    assert not needs_moving(local("now"), "pii", old["pii"])
    assert service.offers("rotate") and service.offers("set_aside") and service.offers("delete_key")
    assert service.rotate("pii").versions == 2
    assert before.describe("pii").versions == 1


def test_form_of_a_text_leaves_services_out_and_leads_to_none(local: Callable[[str], LocalKeyService]) -> None:
    """A file that claims another service's form is refused by it, and a service is not asked about another's texts."""
    now, spy = local("now"), Failing(KeyServiceUnavailableError("down"))
    now.create("pii")
    new = now.wrap("pii", KEY)
    service = moving("local", now, ("vault", spy))
    assert (service.unwrap("pii", new), spy.asked) == (KEY, 0)
    with pytest.raises(KeyServiceUnavailableError, match="former key service of type 'vault': down"):
        service.unwrap("pii", new.replace("local:", "vault:"))
    claimed = moving("vault", spy, ("local", now))
    assert claimed.unwrap("pii", new) == KEY  # as the policy says
    forged = "local:v1:" + new.rpartition(":")[2][:-4] + "AAAA"
    for text in (forged, forged.replace("v1", "v7"), "local:v1:http://evil/"):
        with pytest.raises(KeyServiceError, match="former key service of type 'local'"):
            claimed.unwrap("pii", text)
    asked = spy.asked
    with pytest.raises(KeyServiceUnavailableError, match="key service of type 'vault': down"):
        claimed.unwrap("fin", new)  # no former service is named for this key
    assert spy.asked == asked + 1


@pytest.mark.parametrize("error", [KeyAccessDeniedError("no"), KeyServiceUnavailableError("down")])
def test_refusal_and_outage_are_final(error: KeyServiceError, local: Callable[[str], LocalKeyService]) -> None:
    """Neither says who wrapped the text, so no other service is asked in its place, and nothing is called missing."""
    former = local("before")
    former.create("pii")
    text = former.wrap("pii", KEY)
    with pytest.raises(type(error), match=str(error)):
        moving("local", Failing(error), ("local", former)).unwrap("pii", text)
    with pytest.raises(type(error), match=f"former key service of type 'local': {error}"):
        moving("local", local("now"), ("local", Failing(error))).unwrap("pii", text)
    with pytest.raises(type(error)):
        needs_moving(moving("local", Failing(error), ("local", former)), "pii", text)


def test_key_is_missing_only_where_every_service_says_so(local: Callable[[str], LocalKeyService]) -> None:
    """A key that is there and did not wrap a text is no missing key, whatever another service says."""
    now, before, stranger = local("now"), local("before"), local("stranger")
    for each in (now, before):
        each.create("footer")
    stranger.create("pii")
    text = stranger.wrap("pii", KEY)
    service = moving("local", now, ("local", before))
    with pytest.raises(KeyNotFoundError, match=r"key service of type 'local': .*; former key service"):
        service.unwrap("pii", text)
    now.create("pii")
    with pytest.raises(KeyServiceError, match="another key; ") as told:
        service.unwrap("pii", text)
    assert not isinstance(told.value, KeyNotFoundError)
    before.create("pii")
    with pytest.raises(KeyServiceError, match=r"another key; .*another key"):
        service.unwrap("pii", text)


def test_denial_of_a_former_service_counts_for_its_form(local: Callable[[str], LocalKeyService]) -> None:
    """A reader without a right in the former service goes on reading what is under the new one."""
    now, denying = local("now"), Failing(KeyAccessDeniedError("no"))
    now.create("pii")
    keeper = RefusalKeeper(moving("local", now, ("vault", denying)))
    for number in range(3):
        with pytest.raises(KeyAccessDeniedError):
            keeper.unwrap("pii", f"vault:v1:{number}")
        assert keeper.unwrap("pii", now.wrap("pii", KEY)) == KEY
    assert denying.asked == 1


def test_shredding_deletes_a_key_everywhere(local: Callable[[str], LocalKeyService]) -> None:
    """A former service that cannot is named before anything is deleted."""
    now, before = local("now"), local("before")
    for service in (now, before):
        service.create("pii")
    texts = now.wrap("pii", KEY), before.wrap("pii", KEY)

    class Keeping:
        """Has the key, and deletes none."""

        describe = staticmethod(before.describe)

    stuck = moving("local", now, ("vault", DelegatingKeyService(cast("KeyService", Keeping()))))
    assert stuck.offers("delete_key")
    with pytest.raises(ConfigError, match=r"type 'vault' has key 'pii' and does not delete .*nothing was deleted"):
        stuck.delete_key("pii")
    assert now.describe("pii").versions == 1
    moved = moving("local", now, ("local", before))
    assert moved.offers("delete_key")
    assert moved.delete_key("pii").promise.count("; ") >= 1
    for text in texts:
        with pytest.raises(KeyNotFoundError):
            moved.unwrap("pii", text)
    with pytest.raises(KeyNotFoundError):
        moved.delete_key("pii")


def test_built_in_services_write_their_type_first(service: KeyService, request: pytest.FixtureRequest) -> None:
    """By this the form of a text tells which built-in service cannot have wrapped it."""
    service.create("pii")
    text, kind = service.wrap("pii", KEY), request.node.callspec.params["service"]
    assert is_form_of(kind, text)
    assert [other for other in KEY_SERVICE_OPTIONS if is_form_of(other, text)] == [
        other for other in KEY_SERVICE_OPTIONS if other == kind
    ]


@pytest.mark.services
def test_vault_between_local_and_aws(
    open_vault: OpenVault, open_aws: OpenAws, local: Callable[[str], LocalKeyService]
) -> None:
    """Real answers: of Vault to another mount's text, of both to a key that they lack; what was decided of a key."""
    aws, vault, folder = open_aws(), open_vault(), local("before")
    for each in (aws, vault, folder):
        each.create("pii")
    texts = [each.wrap("pii", KEY) for each in (folder, vault, aws)]
    service = moving("aws", aws, ("vault", vault), ("local", folder))
    assert [service.unwrap("pii", text) for text in texts] == [KEY] * 3
    assert [needs_moving(service, "pii", text) for text in texts] == [True, True, False]
    assert not service.offers("may") and service.may(["pii"]) == {}
    back = moving("vault", vault, ("aws", aws))
    assert back.offers("may")
    assert back.may(["pii", "fin"]) == {"pii": "allowed", "fin": "shredded"}
    assert vault.offers("delete_key")
    vault.delete_key("pii")
    assert back.may(["pii"]) == {}
    with pytest.raises(KeyNotFoundError, match="key service of type 'vault'"):
        back.unwrap("pii", texts[1])
    assert back.unwrap("pii", texts[2]) == KEY
    vault.create("pii")
    with pytest.raises(KeyServiceError) as told:
        moving("vault", vault, ("vault", vault)).unwrap("pii", texts[1])
    assert not isinstance(told.value, KeyNotFoundError)
