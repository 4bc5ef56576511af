"""The demo of retention: 14 months, each under a key of its own; the oldest is past its retention and is shredded."""

from __future__ import annotations

import json
import sys
import time
from datetime import date, timedelta

from rich.table import Table
from run_demo import defaults
from showcase import HERE, DemoError, Showcase, check, console, fresh, say

WORK = HERE / "work-retention"
MONTHS = 14
POLICY = """\
version: 1
key_service: {type: local, path: keys}
footer: {key: footer, mode: encrypted}
audit: {key: audit}
untagged: plaintext
run_state: state/
tags:
  contact: {key: "contact-{ingest_date:%Y-%m}", retention: 365d, create_keys: true}
  pii:     {key: pii}
"""


class RetentionDemo(Showcase):
    """The set-up, with the steps of this demo."""

    def step(self, *arguments: str) -> str:
        """Run a step of retention_steps.py; return the last line that it prints."""
        lines = self.run([sys.executable, str(HERE / "retention_steps.py"), *arguments]).strip().splitlines()
        return lines[-1] if lines else ""

    def answers(self, *months: str) -> dict[str, dict[str, str]]:
        """Return what each route gives of each month."""
        found: dict[str, dict[str, str]] = json.loads(self.step("read", str(self.policy), *months))
        return found

    def show_life(self, months: list[str]) -> None:
        """Write, rotate, plan, shred and read.

        Raises:
            DemoError: a step failed, or did not show what it must.
        """
        oldest, latest, policy = months[0], months[-1], ("--policy", str(self.policy))
        say("1", f"a table of {MONTHS} months; the first write into a month makes its key")
        # No write makes the key of a month that is past its retention; this one was made when the month began.
        for key in ("footer", "audit", "pii", f"contact-{oldest}"):
            self.cli("keys", "create", key, *policy)
        rows = json.loads(self.step("make", str(self.policy), *months))
        listed = json.loads(self.cli("keys", "list", *policy, "--json"))
        keys = [key["key_id"] for key in listed if key["key_id"].startswith("contact-")]
        check("keys of months", sorted(keys), [f"contact-{month}" for month in months])
        console.print(f"   {rows} rows; keys {keys[0]} to {keys[-1]}")
        say("2", "sparkcrypt rotate --key pii: data keys are wrapped by a new version, no page is touched")
        rotated = json.loads(self.cli("rotate", "--key", "pii", "--table", "crm.contacts", *policy, "--json"))
        check("rotation", (rotated["outcome"], rotated["totals"]["files_rewritten"]), ("done", MONTHS))
        self.cli("backfill", "expire", "--table", "crm.contacts", "--older-than", "0s", *policy)
        say("3", "sparkcrypt shred apply, with a reason in place of the number that a person types")
        before = self.answers(oldest, latest)
        shredded = json.loads(
            self.cli(
                "shred", "apply", "--yes", "--reason", "retention of contacts", "--head", "none", *policy, "--json"
            )
        )
        check("shredded keys", [key["key_id"] for key in shredded["shredded"]], [f"contact-{oldest}"])
        (gone,) = shredded["shredded"]
        console.print(f"   {gone['key_id']} is gone, effective {gone['effective_at']}")
        say("4", "every route, before and after")
        after = self.answers(oldest, latest)
        show_answers(before, after)
        check_answers(before, after, oldest, latest)
        self.refuse_again(oldest)

    def refuse_again(self, month: str) -> None:
        """See that the key is not made again under its id.

        Raises:
            DemoError: it is.
        """
        try:
            self.cli("keys", "create", f"contact-{month}", "--policy", str(self.policy))
        except DemoError as refused:
            if "was shredded by" not in str(refused):
                raise
            console.print(f"   contact-{month} is never made again: it was shredded")
            return
        raise DemoError(f"contact-{month} was made again")


def show_answers(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> None:
    """Print what each route gave, month by month."""
    table = Table("month", "route", "before", "after", title_justify="left")
    for month, answers in before.items():
        for route, answer in answers.items():
            table.add_row(month, route, answer, after[month][route])
    console.print(table)


def check_answers(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]], oldest: str, latest: str
) -> None:
    """Refuse answers that are not those that must be.

    Raises:
        DemoError: one is another.
    """
    check("the latest month", after[latest], before[latest])
    check("ssn of the oldest month", after[oldest]["Spark SQL, column ssn"], before[oldest]["Spark SQL, column ssn"])
    for route, answer in before[oldest].items():
        check(f"{route} before", answer.partition(":")[0], "3 values")
    for route in ("Spark SQL", "pyarrow"):
        told = after[oldest][route]
        if not told.startswith("refused") or "shredded on" not in told or "retention of contacts" not in told:
            raise DemoError(f"{route} does not say when and why: {told}")
    for route, answer in after[oldest].items():
        if "nulls" in route:
            check(route, answer, "3 nulls")


def last_months(today: date) -> list[str]:
    """Return the last 14 months, this one included; the first ended more than 365 days ago, the second did not."""
    months, day = [], today.replace(day=1)
    for _ in range(MONTHS):
        months.append(f"{day:%Y-%m}")
        day = (day - timedelta(days=1)).replace(day=1)
    return months[::-1]


def main() -> int:
    """Run the demo; return the exit code."""
    started, work = time.monotonic(), fresh(WORK)
    (work / "policy.yaml").write_text(POLICY)
    demo = RetentionDemo(work, work / "policy.yaml", defaults(work))
    demo.prepare()
    try:
        demo.show_life(last_months(date.today()))
    except DemoError as error:
        console.print(f"The demo failed: {error}", style="red", markup=False)
        return 1
    console.print(f"The demo passed: one month is dark by every route, in {time.monotonic() - started:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
