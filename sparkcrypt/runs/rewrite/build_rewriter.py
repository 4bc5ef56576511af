"""Creation of the rewriter of a run's units, with the swap that suits the target and the requested engine."""

from __future__ import annotations

from sparkcrypt.ledger.unit import base_location
from sparkcrypt.runs.rewrite.context import RunContext
from sparkcrypt.runs.rewrite.engine import Stager
from sparkcrypt.runs.rewrite.native_engine import NativeStager
from sparkcrypt.runs.rewrite.options import RunOptions
from sparkcrypt.runs.rewrite.spark_engine import SparkStager
from sparkcrypt.runs.rewrite.swap import choose_swap
from sparkcrypt.runs.rewrite.unit_rewriter import UnitRewriter


def rewriter_of(context: RunContext, options: RunOptions, *, resumed: bool = False) -> UnitRewriter:
    """Return the rewriter of a run's units.

    Args:
        context: the run's context.
        options: the options with which the run began.
        resumed: whether an ``--output`` that already exists may have been written by this run.

    Raises:
        ConfigError: as `choose_swap`.
    """
    records = context.journal.records
    base = next((base_location(record.staged) for record in records if record.staged is not None), None)
    swap = choose_swap(context.table, context.run_id, options, resumed=resumed, base=base)
    stager: Stager = SparkStager(context.table)
    if options.engine == "native":
        renamed_by = context.run_id if swap.same_folder else None
        stager = NativeStager(
            context.table,
            mac=lambda: context.mac,
            discard=context.disposal.delete,
            renamed_by=renamed_by,
            rewrap=options.rewrap,
            purge=options.purge,
        )
    return UnitRewriter(context, stager, swap)
