"""Options for a key service that does not answer: how long a call may take, and how long opened keys are used."""

from __future__ import annotations

from dataclasses import dataclass

from sparkcrypt.errors import ConfigError, show
from sparkcrypt.policy.duration import seconds_of
from sparkcrypt.policy.key_service import REPLICA_OPTIONS, KeyServiceConfig

MAX_RETRIES = 10


@dataclass(frozen=True, slots=True)
class Endurance:
    """Limits for the calls of one key service.

    Attributes:
        deadline_seconds: how long a call may take, all its tries and addresses included.
        max_retries: tries after the first, if the provider itself tries once.
        serve_stale_seconds: how long an opened key is used beyond its lifetime while the service does not answer.
    """

    deadline_seconds: float = 60.0
    max_retries: int = 5
    serve_stale_seconds: int = 0


def endurance_of(config: KeyServiceConfig) -> Endurance:
    """Return the limits in a configuration.

    Raises:
        ConfigError: a limit has a value that is not allowed.
    """
    options, usual = config.options, Endurance()
    deadline = options.get("deadline_seconds", usual.deadline_seconds)
    retries = options.get("max_retries", usual.max_retries)
    stale = seconds_of(options.get("serve_stale_for", "0s"), "0|[1-9][0-9]{0,10}")
    where = f"key_service of type {config.type!r}:"
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0.1 <= deadline <= 600:
        raise ConfigError(f"{where} deadline_seconds is {show(deadline)}; allowed: a number from 0.1 to 600")
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= MAX_RETRIES:
        raise ConfigError(f"{where} max_retries is {show(retries)}; allowed: a number from 0 to {MAX_RETRIES}")
    if stale is None:
        raise ConfigError(
            f"{where} serve_stale_for is {show(options['serve_stale_for'])}; allowed: a number and one of s, m, h, d, "
            "w, such as 15m; 0s serves nothing"
        )
    return Endurance(float(deadline), retries, stale)


def replicas_of(config: KeyServiceConfig) -> tuple[KeyServiceConfig, ...]:
    """Return one configuration for each address of a key service, in order of preference.

    Raises:
        ConfigError: the addresses are not a list, are empty or repeated, or are set beside a single address.
    """
    text, several = REPLICA_OPTIONS.get(config.type, ("", ""))
    options = config.options
    if several not in options:
        return (config,)
    places = options.pop(several)
    if (
        not isinstance(places, list)
        or not places
        or not all(isinstance(place, str) and place for place in places)
        or len(set(places)) < len(places)
        or text in options
    ):
        raise ConfigError(
            f"key_service of type {config.type!r}: {several} is {show(places)}; allowed: a list of different texts "
            f"in the order in which they are asked, with no {text} beside it"
        )
    return tuple(KeyServiceConfig.from_dict({"type": config.type, **options, text: place}) for place in places)
