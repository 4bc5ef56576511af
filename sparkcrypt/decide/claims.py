"""Check of an encrypted file's own description, its AAD prefix and algorithm, against its path and the policy."""

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
    """Check an encrypted file's AAD prefix and algorithm, which nothing in the file authenticates.

    Args:
        policy: its algorithms are allowed.
        path: the file's path, as the user gave it.
        prefix: its AAD prefix.
        algorithm: its algorithm.
        place: its whole path, whose folders show its partition; ``path`` by default.
        table_uuid: UUID of the table that it must belong to; None accepts any table.

    Returns:
        How it is bound to its path more weakly than it could be, or None.

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
