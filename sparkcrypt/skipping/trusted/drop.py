"""Deletes a store, after checking that nothing else uses its folder or has files in it."""

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
    """Delete a store's files, the sidecar first, so that the rest is not used if this process is killed.

    Args:
        folder: the store's folder.
        table_uuid: the table's UUID; None for a bare folder.
        user_of: returns a text about the user of a folder, None if it is unused; called before anything is deleted,
            while other writers are locked out.
        note: called with the store's generation before anything is deleted, so that a restored copy is not used.

    Returns:
        The names of the deleted files.

    Raises:
        ConfigError: there is no store, or the folder has files that do not belong to this table's store; nothing is
            deleted.  Or a file cannot be deleted.
        VerificationError: the folder is in use; nothing is deleted.
        RunConflictError: another process writes the store.
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
