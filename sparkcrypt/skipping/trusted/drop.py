"""Removes a store: asks who uses its folder first, and deletes files of this table's stores alone."""

from __future__ import annotations

from collections.abc import Callable

from sparkcrypt.errors import ConfigError, VerificationError
from sparkcrypt.skipping.trusted.folder import StoreFolder
from sparkcrypt.skipping.trusted.sidecar import SIDECAR
from sparkcrypt.skipping.trusted.write import own_files, standing_generation


def drop_store(
    folder: StoreFolder,
    table_uuid: str | None,
    user_of: Callable[[str], str | None],
    note: Callable[[int], None],
) -> tuple[str, ...]:
    """Delete a store's files, its sidecar first, so that nobody goes by what is left where this is killed.

    Args:
        folder: of the store.
        table_uuid: of its table; None of a bare folder.
        user_of: tells who uses a folder, None where nobody does; asked before anything is deleted, while no writer
            can begin.
        note: is told the store's generation before anything is deleted, so that it is not used when it comes back.

    Returns:
        The names of the files that were deleted.

    Raises:
        ConfigError: there is no store, or there are files that are none of this table's index; nothing is deleted.
        VerificationError: somebody uses the folder; nothing is deleted.
        RunConflictError: a writer is at work.
    """
    try:
        if all(name.startswith((".", "_")) and name != SIDECAR for name in folder.names()):
            raise ConfigError(f"{folder.uri}: holds no store that sparkcrypt wrote; name the folder of one")
        with folder.lock():
            names = (SIDECAR, *own_files(folder, table_uuid))
            user = user_of(folder.uri)
            if user is not None:
                raise VerificationError(
                    f"{folder.uri}: {user}, so its files stay; point that elsewhere, then drop the store again"
                )
            note(standing_generation(folder) or 0)
            for name in names:
                folder.delete(name)
        folder.delete_folder()
    except OSError as error:
        raise ConfigError(
            f"{folder.uri}: cannot be deleted ({error.strerror or error}); see that this user may write to it"
        ) from error
    return names
