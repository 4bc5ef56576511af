"""What an encrypted file says of itself: held against the place that it lies in and the policy's algorithms."""

from __future__ import annotations

from sparkcrypt.decide.identity import check_aad_prefix
from sparkcrypt.errors import VerificationError
from sparkcrypt.policy.model import Policy


def check_claims(
    policy: Policy,
    path: str,
    prefix: bytes | None,
    algorithm: str | None,
    *,
    place: str | None = None,
    table_uuid: str | None = None,
) -> str | None:
    """Check what an encrypted file says of itself and nothing in it authenticates.

    Args:
        policy: names the algorithms.
        path: of the file, as people named it.
        prefix: its AAD prefix.
        algorithm: its algorithm.
        place: its whole path, whose folders tell its partition; ``path`` by default.
        table_uuid: whose file it is to be; None takes any table's.

    Returns:
        What ties it to its place less than it could, or None.

    Raises:
        VerificationError: its algorithm was never the policy's, it is another table's, or it was moved since it was
            written.
    """
    weak = check_aad_prefix(prefix, place or path, table_uuid=table_uuid, strict=False)
    allowed = policy.readable_algorithms
    if algorithm not in allowed:
        raise VerificationError(
            f"{path}: its algorithm is {algorithm}; allowed by the policy: {', '.join(allowed)}; name it under "
            "algorithm_history if it was the policy's once, else the file was altered"
        )
    return weak
