"""A policy file is read strictly: every mistake is an error that names file, line, key and what is allowed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sparkcrypt.errors import ConfigError
from sparkcrypt.policy.build import policy_from_canonical
from sparkcrypt.policy.load import MAX_BYTES, load_policy, policy_from_text, policy_of
from sparkcrypt.policy.model import Policy

GOOD = """version: 1
key_service: {type: local, path: keys/}
footer: {key: footer}
untagged: plaintext
tags:
  pii: {key: pii}
  contact: {key: "contact-{day:%Y-%m}", retention: 400d}
"""


def late_data(key: str) -> str:
    """Return the good policy with a key of late data."""
    return GOOD.replace("retention: 400d", f"retention: 400d, late_data: '{key}'")


def load(text: str) -> Policy:
    """Return the policy of a text."""
    return policy_from_text(text, where="policy.yaml", base="/conf")


def messages(text: str) -> list[str]:
    """Return the lines of the error that a text gives."""
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value).splitlines()


def test_good_policy_loads_with_paths_absolute() -> None:
    """Relative paths stand against the policy's folder, and defaults are filled in."""
    policy = load(GOOD)
    assert policy.key_service.options == {"path": "/conf/keys"}
    assert (policy.run_state, policy.algorithm, policy.data_key_bits) == ("/conf/state", "AES_GCM_V1", 256)
    assert [rule.name for rule in policy.tags] == ["pii", "contact"]


def test_aliases_are_in_one_form() -> None:
    """Each name is kept in the form in which places are compared, and so in the canonical JSON."""
    policy = load(GOOD + "aliases:\n  HDFS://NN1:8020/: hdfs://prod\n  viewfs://c/data: s3://lake/\n")
    assert policy.to_dict()["aliases"] == {"hdfs://nn1": "hdfs://prod", "viewfs://c/data": "s3a://lake"}
    assert policy_from_canonical(policy.canonical()) == policy


def test_audit_key_is_taken_and_travels_only_where_it_is_set() -> None:
    """A policy may name the key of its audits; one that does not keeps the digest that it had before there was one."""
    plain, audited = load(GOOD), load(GOOD + "audit: {key: audit, history: [audit-2024]}\n")
    assert (plain.audit_key, audited.audit_key, audited.audit_key_history) == (None, "audit", ("audit-2024",))
    assert "audit" not in plain.to_dict()
    assert audited.to_dict()["audit"] == {"key": "audit", "history": ["audit-2024"]}


EXACT = {
    "duplicate key": (
        GOOD + "untagged: deny\n",
        "policy.yaml:8: untagged: written twice, first on line 4; keep one",
    ),
    "duplicate tag": (
        GOOD + "  pii: plaintext\n",
        "policy.yaml:8: tags.pii: written twice, first on line 6; keep one",
    ),
    "unknown key": (
        GOOD.replace("untagged:", "untaged:"),
        "policy.yaml:4: untaged: is not a known key; did you mean 'untagged'? allowed: access_log, algorithm, "
        "algorithm_history, aliases, ask_for_access, audit, bucketing, data_key_bits, declassify, footer, formats, "
        "index, inherit, key_service, old_files, rotate_every, run_state, safe_aggregates, sinks, strict_projection, "
        "tables, tags, untagged, version",
    ),
    "missing untagged": (
        GOOD.replace("untagged: plaintext\n", ""),
        "policy.yaml:1: the document: 'untagged' is missing",
    ),
    "bad duration": (
        GOOD.replace("400d", "400 days"),
        "policy.yaml:7: tags.contact.retention: is '400 days'; allowed: a number and one of s, m, h, d, w, such as 400d, "  # noqa: E501  # one message, one line
        "up to 36500d",
    ),
    "unknown tag in overlay": (
        GOOD + "tables:\n  a.b:\n    tags: {c: [pi]}\n",
        "policy.yaml:10: tables.a.b.tags.c: tag 'pi' is not defined under 'tags'; did you mean 'pii'? allowed: pii, contact",  # noqa: E501  # one message, one line
    ),
    "alias that is no URI": (
        GOOD + "aliases:\n  /lake: hdfs://prod/lake\n",
        "policy.yaml:9: aliases./lake: is no alias; allowed: a URI and the one that counts for it, such as "
        "hdfs://nn1.example.org:8020: hdfs://prod",
    ),
    "alias of an alias": (
        GOOD + "aliases:\n  hdfs://a: hdfs://b\n  hdfs://b/x: hdfs://c\n  hdfs://c: hdfs://d\n",
        "policy.yaml:10: aliases.hdfs://b/x: leads to hdfs://c, which is itself below an alias; name the place by "
        "which the catalog knows its tables",
    ),
    "alias of a place inside it": (
        GOOD + "aliases:\n  hdfs://a:8020: hdfs://A/x\n",
        "policy.yaml:9: aliases.hdfs://a:8020: lies in hdfs://a/x or has it inside, so it is no other name of it; name "
        "the place by which the catalog knows its tables",
    ),
    "alias with two meanings": (
        GOOD + "aliases:\n  s3://a: hdfs://b\n  s3a://A/: hdfs://c\n",
        "policy.yaml:10: aliases.s3a://A/: is another spelling of a name above, and leads elsewhere; keep one",
    ),
    "mode of inheritance": (
        GOOD + "inherit: deny\n",
        "policy.yaml:8: inherit: is 'deny'; allowed: observe, refuse, add",
    ),
    "mode of sinks": (
        GOOD.replace("{key: pii}", "{key: pii, sinks: no}"),
        "policy.yaml:6: tags.pii.sinks: is 'no'; allowed: deny, warn, allow",
    ),
    "mode of denial": (
        GOOD.replace("{key: pii}", "{key: pii, on_denied: null}"),
        "policy.yaml:6: tags.pii.on_denied: is None; allowed: error, mask",
    ),
    "mask that shows equal values": (
        GOOD.replace("{key: pii}", "{key: pii, on_denied: sha256}"),
        "policy.yaml:6: tags.pii.on_denied: is 'sha256'; allowed: error, mask",
    ),
    "true for 1": (GOOD.replace("version: 1", "version: true"), "policy.yaml:1: version: is True; allowed: 1"),
    "yes for true": (
        GOOD + "tables:\n  a.b: {enforce: no}\n",
        "policy.yaml:9: tables.a.b.enforce: is 'no'; allowed: true, false",
    ),
    "alias": (
        GOOD + "tables: &x {}\n",
        "policy.yaml:8: anchors and aliases (& and *) are not taken; write each value out",
    ),
    "merge key": (
        GOOD + "tables:\n  <<: {a.b: {}}\n",
        "policy.yaml:9: tables: every key is a plain name; merge keys (<<) and lists or mappings as keys are not taken",
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_message_is_exact(name: str) -> None:
    """These mistakes give these words, with the line."""
    text, message = EXACT[name]
    assert message in messages(text)


MISTAKES = {
    "version 2": (GOOD.replace("version: 1", "version: 2"), ":1: version: is 2; allowed: 1"),
    "version as text": (GOOD.replace("version: 1", "version: '1'"), ":1: version: is '1'; allowed: 1"),
    "bits as text": (GOOD + "data_key_bits: '256'\n", ":8: data_key_bits: is '256'; allowed: 128, 192, 256"),
    "bits as hexadecimal": (GOOD + "data_key_bits: 0x80\n", "is '0x80'; allowed: 128, 192, 256"),
    "bits unknown": (GOOD + "data_key_bits: 512\n", "is 512; allowed: 128, 192, 256"),
    "bits as float": (GOOD + "data_key_bits: 256.0\n", "is 256.0; allowed: 128, 192, 256"),
    "algorithm unknown": (GOOD + "algorithm: AES\n", "is 'AES'; allowed: AES_GCM_V1, AES_GCM_CTR_V1"),
    "algorithm history unknown": (GOOD + "algorithm_history: [ROT13]\n", "'ROT13' is not known; allowed: AES_GCM_V1"),
    "algorithm history no list": (GOOD + "algorithm_history: AES_GCM_V1\n", "allowed: a list of names"),
    "untagged no": (
        GOOD.replace("untagged: plaintext", "untagged: no"),
        "is 'no'; allowed: plaintext, footer_key, deny",
    ),
    "footer a text": (GOOD.replace("{key: footer}", "footer"), ":3: footer: is 'footer'; allowed: a mapping"),
    "footer mode": (GOOD.replace("{key: footer}", "{key: f, mode: clear}"), "allowed: encrypted, plaintext"),
    "footer key empty": (GOOD.replace("{key: footer}", "{key: ''}"), ":3: footer.key: is ''; allowed: a text"),
    "footer key a number": (GOOD.replace("{key: footer}", "{key: 7}"), ":3: footer.key: is 7; allowed: a text"),
    "footer key a template": (GOOD.replace("{key: footer}", "{key: 'f-{day}'}"), "cannot hold partition values"),
    "footer key called plaintext": (GOOD.replace("{key: footer}", "{key: plaintext}"), "may not be called plaintext"),
    "audit a text": (GOOD + "audit: audit\n", ":8: audit: is 'audit'; allowed: a mapping"),
    "audit null": (GOOD + "audit:\n", ":8: audit: is None; allowed: a mapping"),
    "audit without key": (GOOD + "audit: {history: [old]}\n", ":8: audit: 'key' is missing"),
    "audit key empty": (GOOD + "audit: {key: ''}\n", ":8: audit.key: is ''; allowed: a text"),
    "audit with an unknown option": (GOOD + "audit: {kye: audit}\n", ":8: audit.kye: is not a known key; did you mean"),
    "audit history no list": (GOOD + "audit: {key: audit, history: old}\n", "allowed: a list of names"),
    "audit key a template": (GOOD + "audit: {key: 'a-{day}'}\n", ":8: audit.key: 'a-{day}': the audit's key cannot"),
    "audit key called plaintext": (GOOD + "audit: {key: plaintext}\n", "without key cannot be authenticated"),
    "audit key the footer's": (GOOD + "audit: {key: footer}\n", "'footer' is the footer's key, which every reader may"),
    "audit key once the footer's": (
        GOOD.replace("{key: footer}", "{key: footer, history: [old]}") + "audit: {key: old}\n",
        "'old' is the footer's key",
    ),
    "audit key a tag's": (GOOD + "audit: {key: pii}\n", "'pii' is the key of tag 'pii', which its readers may use"),
    "audit key once a tag's": (
        GOOD.replace("{key: pii}", "{key: pii, history: [old]}") + "audit: {key: old}\n",
        "'old' is the key of tag 'pii'",
    ),
    "template of the audit's key": (
        GOOD + "audit: {key: contact-2026-01}\n",
        "could also give 'contact-2026-01', which is the key the audit's",
    ),
    "tags a list": (GOOD.split("tags:")[0] + "tags: [pii, contact]\n", "allowed: a mapping of tag names to keys"),
    "tags two letters": (GOOD.split("tags:")[0] + "tags: [ab, cd]\n", "allowed: a mapping of tag names to keys"),
    "tag a list": (GOOD.replace("{key: pii}", "[pii]"), ":6: tags.pii: is ['pii']; allowed: a mapping"),
    "tag a text": (GOOD.replace("{key: pii}", "pii"), ":6: tags.pii: is 'pii'; allowed: plaintext, or a mapping"),
    "tag null": (GOOD.replace("{key: pii}", ""), ":6: tags.pii: is None; allowed: a mapping"),
    "tag without key": (GOOD.replace("{key: pii}", "{}"), ":6: tags.pii: 'key' is missing"),
    "tag with history and no key": (GOOD.replace("{key: pii}", "{history: [old]}"), ":6: tags.pii: 'key' is missing"),
    "tag with history and a number": (GOOD.replace("{key: pii}", "{key: 5, history: [old]}"), "tags.pii.key: is 5;"),
    "tag with a null key": (GOOD.replace("{key: pii}", "{key: null}"), "tags.pii.key: is None; allowed: a key id"),
    "tag with key plaintext": (GOOD.replace("{key: pii}", "{key: plaintext}"), "may not be called plaintext"),
    "tag with an unknown option": (GOOD.replace("{key: pii}", "{kye: pii}"), "did you mean 'key'?"),
    "tag name with a comma": (GOOD.replace("  pii:", '  "pii,x":'), "may not hold spaces, commas"),
    "tag name with a space": (GOOD.replace("  pii:", '  "p ii":'), "may not hold spaces, commas"),
    "tag name empty": (GOOD.replace("  pii:", '  "":'), "may not hold spaces, commas"),
    "template unclosed": (
        GOOD.replace("{key: pii}", '{key: "a-{day"}'),
        "write a brace that is part of the key id twice",
    ),
    "template of nothing": (GOOD.replace("{key: pii}", '{key: "a-{}"}'), "with a partition column's name"),
    "template with an attribute": (GOOD.replace("{key: pii}", '{key: "a-{day.x}"}'), "with a partition column's name"),
    "template with an index": (GOOD.replace("{key: pii}", '{key: "a-{day[0]}"}'), "with a partition column's name"),
    "template with a conversion": (GOOD.replace("{key: pii}", '{key: "a-{day!r}"}'), "with a partition column's name"),
    "template with a bad format": (
        GOOD.replace("{key: pii}", '{key: "a-{day:%Q}"}'),
        "a date format holds % and one of",
    ),
    "template with a cut format": (
        GOOD.replace("{key: pii}", '{key: "a-{day:%Y%}"}'),
        "a date format holds % and one of",
    ),
    "template with a nested format": (GOOD.replace("{key: pii}", '{key: "a-{day:%Y{x}}"}'), "a date format holds %"),
    "template of any footer": (
        GOOD.replace("{key: pii}", '{key: "{day}"}'),
        "could also give 'footer', which is the key the footer's",
    ),
    "template of another's key": (
        GOOD.replace("contact-{day:%Y-%m}", "p{day}"),
        "could also give 'pii', which is the key of tag",
    ),
    "retention number": (GOOD.replace("400d", "400"), "is 400; allowed: a number and one of"),
    "retention zero": (GOOD.replace("400d", "0d"), "is '0d'; allowed"),
    "retention negative": (GOOD.replace("400d", "-1d"), "is '-1d'; allowed"),
    "retention months": (GOOD.replace("400d", "13M"), "is '13M'; allowed"),
    "retention endless": (GOOD.replace("400d", "9" * 5000 + "d"), "allowed: a number and one of"),
    "retention too long": (GOOD.replace("400d", "99999999w"), "up to 36500d"),
    "retention other digits": (GOOD.replace("400d", "٤d"), "allowed: a number and one of"),
    "log on an object store": (
        GOOD + "access_log: {location: 's3a://logs/access'}\n",
        ":8: access_log.location: 's3a://logs/access' is on s3a, and each reader appends to files of its own",
    ),
    "log without location": (GOOD + "access_log: {required: true}\n", ":8: access_log: 'location' is missing"),
    "log required by a text": (
        GOOD + "access_log: {location: x, required: always}\n",
        ":8: access_log.required: is 'always'; allowed: true, false",
    ),
    "log with an unknown option": (GOOD + "access_log: {location: x, rotate: 1}\n", ":8: access_log.rotate: is not a"),
    "log inside of a table": (
        GOOD + "access_log: {location: /lake/t/log}\ntables:\n  d.t: {location: 'file:/lake/t'}\n",
        ":8: access_log.location: '/lake/t/log' lies inside of table 'd.t', at file:/lake/t; name a folder outside",
    ),
    "index a text": (GOOD + "index: indexes\n", ":8: index: is 'indexes'; allowed: a mapping"),
    "index without location": (GOOD + "index: {}\n", ":8: index: 'location' is missing"),
    "index with an unknown option": (GOOD + "index: {location: x, kind: y}\n", ":8: index.kind: is not a known key"),
    "index inside of a table": (
        GOOD + "index: {location: /lake/t/idx}\ntables:\n  d.t: {location: 'file:/lake/t'}\n",
        ":8: index.location: '/lake/t/idx' lies inside of table 'd.t', at file:/lake/t; name a folder outside",
    ),
    "index on an object store": (
        GOOD + "index: {location: 's3://lake/idx'}\n",
        ":8: index.location: 's3://lake/idx': stores are not kept on s3:, where two writers of one store could not be "
        "kept apart; allowed: a local path, file:, hdfs:, webhdfs:, swebhdfs:",
    ),
    "aggregate that answers a value": (GOOD + "safe_aggregates: [max]\n", "'max' is none that hides single values"),
    "aggregate misspelt": (GOOD + "safe_aggregates: [averg]\n", "did you mean 'avg'?"),
    "aggregates that are no list": (GOOD + "safe_aggregates: avg\n", "allowed: a list of names"),
    "grace number": (GOOD + "old_files: {grace: 24}\n", ":8: old_files.grace: is 24; allowed: a number and one of"),
    "grace negative": (GOOD + "old_files: {grace: -1h}\n", "is '-1h'; allowed"),
    "grace with a leading zero": (GOOD + "old_files: {grace: 01h}\n", "is '01h'; allowed"),
    "formats without Parquet": (
        GOOD + "formats: [orc]\n",
        ":8: formats: is ['orc']; allowed: [parquet], or [parquet, orc]",
    ),
    "formats unknown": (GOOD + "formats: [parquet, avro]\n", "allowed: [parquet], or [parquet, orc]"),
    "formats written twice": (GOOD + "formats: [parquet, orc, orc]\n", "allowed: [parquet], or [parquet, orc]"),
    "formats that are no list": (GOOD + "formats: orc\n", ":8: formats: is 'orc'; allowed: a list of names"),
    "rotation number": (GOOD + "rotate_every: 365\n", ":8: rotate_every: is 365; allowed: a number and one of"),
    "retention without a date": (
        GOOD.replace("pii: {key: pii}", "pii: {key: pii, retention: 1d}"),
        "policy.yaml:6: tags.pii.retention: no data are ever past it, since key 'pii' does not show their date",
    ),
    "retention without a year": (GOOD.replace("%Y-%m", "%m"), "key 'contact-{day:%m}' does not show their date"),
    "date of no template": (GOOD.replace("400d", "400d, dates: {month: '%Y%m'}"), "has no date 'month'; name one"),
    "date without a format": (
        GOOD.replace("400d", "400d, dates: {day: week}"),
        "a format of a partition's values holds",
    ),
    "date of weeks": (GOOD.replace("400d", "400d, dates: {day: '%G-%V'}"), "a format of a partition's values holds %Y"),
    "date of no column": (GOOD.replace("400d", "400d, dates: {day: {}}"), "a format of a partition's values holds"),
    "date of months in a key of days": (
        GOOD.replace("%Y-%m", "%Y-%m-%d").replace("400d", "400d, dates: {day: '%Y%m'}"),
        "needs %d of 'day', which %Y%m does not show; such as {month: '%Y%m'}, or {day: {year: '%Y'",
    ),
    "date without a year": (
        GOOD.replace("400d", "400d, dates: {day: '%m'}"),
        "needs %Y, %m of 'day', which %m does not",
    ),
    "keys made without a date": (
        GOOD.replace("pii: {key: pii}", "pii: {key: pii, retention: 1d, create_keys: true}"),
        "create_keys: a write makes the keys of a template with a date",
    ),
    "late data of no bucket": (
        GOOD.replace("pii: {key: pii}", "pii: {key: pii, retention: 1d, late_data: late}"),
        "late_data: rows are late for a bucket of a template with a date",
    ),
    "late data without retention": (GOOD.replace("retention: 400d", "late_data: late"), "give the tag both"),
    "late data in clear": (late_data("plaintext"), "allowed: refuse, or a key id"),
    "late data by a partition": (late_data("l-{day:%Y-%m}"), "with the day of writing, such as late-{written:%Y-%m}"),
    "late data by no date": (late_data("late-{written}"), "or one with the day of writing"),
    "late data under the footer's key": (late_data("footer"), "'footer' is a key, or could give one, of the footer"),
    "late data under a bucket's key": (late_data("contact-2026-01"), "one, of a bucket of tag 'contact'"),
    "late data under buckets' keys": (late_data("contact-{written:%Y-%m}"), "one, of a bucket of tag 'contact'"),
    "rotation of nothing": (GOOD + "rotate_every: 0d\n", "rotate_every: is '0d'; allowed"),
    "grace missing": (GOOD + "old_files: {}\n", ":8: old_files: 'grace' is missing"),
    "grace misspelt": (GOOD + "old_files: {grase: 1h}\n", "did you mean 'grace'?"),
    "key service missing": (GOOD.replace("key_service: {type: local, path: keys/}\n", ""), "'key_service' is missing"),
    "key service a text": (GOOD.replace("{type: local, path: keys/}", "local"), ":2: key_service: is 'local'"),
    "key service no type": (GOOD.replace("type: local, ", ""), "'type' is missing"),
    "key service no path": (GOOD.replace(", path: keys/", ""), "'path' is missing"),
    "key service path a number": (
        GOOD.replace("path: keys/", "path: 5"),
        ":2: key_service.path: is 5; allowed: a text",
    ),
    "key service unknown option": (GOOD.replace("path: keys/", "pth: keys/"), "did you mean 'path'?"),
    "key service not finite": (GOOD.replace("type: local, path: keys/", "type: own, x: {y: .inf}"), None),
    "tables a list": (GOOD + "tables: [a.b]\n", ":8: tables: is ['a.b']; allowed: a mapping"),
    "table null": (GOOD + "tables:\n  a.b:\n", ":9: tables.a.b: is None; allowed: a mapping"),
    "table without database": (GOOD + "tables:\n  b: {require_encryption: true}\n", "a table is named database.table"),
    "table without name": (GOOD + "tables:\n  '': {location: /x}\n", "a table is named database.table"),
    "table twice by case": (GOOD + "tables:\n  a.b: {}\n  A.B: {}\n", "is the same table as 'A.B'"),
    "table unknown option": (
        GOOD + "tables:\n  a.b: {require_encrypton: true}\n",
        "did you mean 'require_encryption'?",
    ),
    "table flag as number": (GOOD + "tables:\n  a.b: {require_encryption: 1}\n", "is 1; allowed: true, false"),
    "table flag as text": (GOOD + "tables:\n  a.b: {require_encryption: 'true'}\n", "is 'true'; allowed: true, false"),
    "table flag null": (GOOD + "tables:\n  a.b: {enforce: }\n", "is None; allowed: true, false"),
    "overlay path empty": (GOOD + "tables:\n  a.b: {tags: {a..b: pii}}\n", "has an empty name"),
    "overlay path not UTF-8": (GOOD + "tables:\n  a.b: {tags: {a%FF: pii}}\n", "is not percent-encoded UTF-8"),
    "overlay without tag": (GOOD + "tables:\n  a.b: {tags: {c: []}}\n", "names no tag"),
    "overlay with a mapping": (GOOD + "tables:\n  a.b: {tags: {c: {d: pii}}}\n", "allowed: a list of names"),
    "overlay with an empty tag": (GOOD + "tables:\n  a.b: {tags: {c: 'pii,,contact'}}\n", "tag '' is not defined"),
    "not YAML": ("version: [1\n", ":2: not YAML: "),
    "two documents": (GOOD + "---\n" + GOOD, "not YAML: "),
    "control character": (GOOD + "x: \x07\n", "not YAML: "),
    "a list": ("- version: 1\n", ":1: the document: is [{'version': 1}]; allowed: a mapping"),
    "a text": ("policy\n", ":1: the document: is 'policy'; allowed: a mapping"),
    "empty": ("", ":1: the document: 'version' is missing"),
    "only comments": ("# nothing\n", "'untagged' is missing"),
    "explicit YAML tag": (GOOD + "run_state: !!python/name:os.system x\n", ":8: YAML tags (!…) are not taken"),
    "binary": (GOOD + "run_state: !!binary aGk=\n", ":8: YAML tags (!…) are not taken"),
    "set": (GOOD + "run_state: !!set {a}\n", ":8: YAML tags (!…) are not taken"),
    "list as key": (GOOD + "? [a]\n: b\n", "every key is a plain name"),
    "half a character": (GOOD.replace("{key: footer}", r'{key: "\uD800"}'), "allowed: a text that is not empty"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_refused_with_its_place(name: str) -> None:
    """Every kind of mistake is a ConfigError whose lines begin with file and line and say what is allowed."""
    text, part = MISTAKES[name]
    if part is None:  # a text that only looks like a number is a text
        assert load(text).key_service.options == {"x": {"y": ".inf"}}
        return
    found = messages(text)
    assert any(part in line for line in found), found
    assert all(line.startswith("policy.yaml:") for line in found)


def test_all_problems_are_told_at_once() -> None:
    """A file with three mistakes gives three lines."""
    text = GOOD.replace("400d", "soon").replace("untagged: plaintext", "untagged: maybe") + "data_key_bits: 7\n"
    assert len(messages(text)) == 3


SECRETS = [
    "{type: vault, token: s3cr3t}",
    "{type: vault, auth: {method: token, token: s3cr3t}}",
    "{type: vault, auth: {method: approle, secret_id: s3cr3t}}",
    "{type: vault, address: 'https://me:s3cr3t@host:8200'}",
    "{type: own, password: s3cr3t}",
    "{type: own, API_KEY: s3cr3t}",
    "{type: own, aws: [{secret_access_key: s3cr3t}]}",
    "{type: local, path: keys/, token: s3cr3t}",
]


@pytest.mark.parametrize("service", SECRETS)
def test_secret_is_refused_and_not_shown(service: str) -> None:
    """A credential in the key service is refused wherever it stands, and no message repeats it."""
    found = messages(GOOD.replace("{type: local, path: keys/}", service))
    assert any("holds a secret" in line for line in found)
    assert "s3cr3t" not in "\n".join(found)


@pytest.mark.parametrize("option", ["token_file: /run/token", "secret_id_file: /run/id", "jwt_path: /run/jwt"])
def test_path_of_a_secret_is_no_secret(option: str) -> None:
    """Options that name the file of a credential stay."""
    assert (
        load(GOOD.replace("{type: local, path: keys/}", f"{{type: own, auth: {{{option}}}}}")).key_service.type == "own"
    )


def test_billion_laughs_do_not_grow() -> None:
    """Aliases that would double at every level are refused before anything is composed."""
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 64)]
    began = time.monotonic()
    assert "anchors and aliases" in messages("\n".join(lines))[0]
    assert time.monotonic() - began < 5


def test_recursive_alias_is_refused() -> None:
    """A value that holds itself is refused, not followed."""
    assert "anchors and aliases" in messages("a: &a [*a]\n")[0]


@pytest.mark.parametrize("text", ["[" * 50_000, "a: " + "{b: " * 20_000, "\n".join(" " * n + "a:" for n in range(500))])
def test_deep_document_is_refused_without_overflow(text: str) -> None:
    """Nesting is refused by its depth, whatever the style, and the stack does not overflow."""
    assert "nested deeper than 20 levels" in messages(text)[0]


def test_huge_document_is_refused() -> None:
    """A file over the limit is refused before it is parsed."""
    assert "larger than" in messages("#" * (MAX_BYTES + 1))[0]


def test_huge_file_is_read_no_further_than_the_limit(tmp_path: Path) -> None:
    """A file without end is not read to its end."""
    with pytest.raises(ConfigError, match=r"larger than|not YAML"):
        load_policy("/dev/zero")


def test_missing_file_is_told(tmp_path: Path) -> None:
    """A path that is not there, or is a folder, is named with the reason."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read \(No such file"):
        load_policy(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        load_policy(tmp_path)


def test_other_file_system_is_refused() -> None:
    """A policy on a file system that this reader does not know is refused, and the allowed forms are told."""
    with pytest.raises(ConfigError, match="allowed: a path, or a file: URI"):
        load_policy("s3a://bucket/policy.yaml")


@pytest.mark.parametrize("content", [b"\xff\xfev\x00", b"version: 1 # caf\xe9\n"])
def test_other_encoding_is_refused(tmp_path: Path, content: bytes) -> None:
    """A file that is not UTF-8 is refused by name."""
    (tmp_path / "p.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"p\.yaml: cannot be read \(it is not UTF-8\)"):
        load_policy(tmp_path / "p.yaml")


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text])
def test_windows_forms_are_taken(tmp_path: Path, change: object) -> None:
    """CRLF line ends and a byte order mark change nothing, and lines are counted right."""
    assert callable(change)
    (tmp_path / "p.yaml").write_bytes(change(GOOD).encode())
    assert load_policy(tmp_path / "p.yaml").tags == load(GOOD).tags
    (tmp_path / "p.yaml").write_bytes(change(GOOD + "x: 1\n").encode())
    with pytest.raises(ConfigError, match=r"p\.yaml:8: x: is not a known key"):
        load_policy((tmp_path / "p.yaml").as_uri())


def test_names_may_be_of_any_script() -> None:
    """Tags, keys, tables and columns take any letters."""
    policy = load(
        GOOD.replace("pii:", "личное:").replace("{key: pii}", "{key: 鍵/1:a}") + "tables: {é.ü: {tags: {ß: личное}}}\n"
    )
    assert policy.tags[0].name == "личное"
    assert policy.table("É.Ü").tags == (("ß", ("личное",)),)


@pytest.mark.parametrize(
    ("written", "base", "resolved"),
    [
        ("s", "/conf", "/conf/s"),
        ("../s/", "/conf/a", "/conf/s"),
        ("/s", "/conf", "/s"),
        ("s3a://b/s", "/conf", "s3a://b/s"),
        ("file:/s", "/conf", "file:/s"),
        ("hdfs:/s", "/conf", "hdfs:/s"),
        ("s", "hdfs://nn/conf", "hdfs://nn/conf/s"),
    ],
)
def test_paths_become_absolute(written: str, base: str, resolved: str) -> None:
    """Relative paths stand against the policy's folder or URI; URIs and absolute paths stay."""
    assert policy_from_text(GOOD + f"run_state: '{written}'\n", where="p", base=base).run_state == resolved


def test_plaintext_with_a_history_is_written_with_a_null_key() -> None:
    """A tag that was encrypted and is plaintext now keeps its old keys for readers, but only when it says so."""
    rule = load(GOOD.replace("{key: pii}", "{key: null, history: [old]}")).tag("pii")
    assert rule is not None
    assert (rule.key, rule.history) == (None, ("old",))


def test_a_tag_is_found_without_case_where_one_alone_fits() -> None:
    """An exact name comes first; of several that differ in case alone, none is guessed."""
    text = """
version: 1
key_service: {type: local, path: /keys}
footer: {key: footer}
untagged: plaintext
tags: {pii: {key: pii}, Fin: {key: fin}, fin: {key: fin}}
"""
    policy = policy_from_text(text, where="policy.yaml", base="/")
    wanted = {"pii": "pii", "PII": "pii", "Fin": "Fin", "fin": "fin", "FIN": None, "x": None}
    found = {name: policy.find_tag(name) for name in wanted}
    assert {name: rule and rule.name for name, rule in found.items()} == wanted


def test_a_policy_is_taken_as_it_is_or_by_its_path(tmp_path: Path) -> None:
    """A path of either kind is loaded, a policy is the same object, and anything else is named."""
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    loaded = policy_of(file)
    assert (policy_of(str(file)), policy_of(loaded) is loaded) == (loaded, True)
    with pytest.raises(ConfigError, match=r"nosuch\.yaml: cannot be read"):
        policy_of(tmp_path / "nosuch.yaml")
    with pytest.raises(ConfigError, match=r"None is no policy; give the path of a policy file"):
        policy_of(None)  # type: ignore[arg-type]  # what a caller without types may give
