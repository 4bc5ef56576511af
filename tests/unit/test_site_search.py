"""What people type into the site's search: each job's page is among the first three that it shows."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import log, sqrt

import pytest

from tools.site_hook import ROOT, boost_of, outside_files, site_uri, slug

PAGES = [
    *(file.relative_to(ROOT).as_posix() for file in sorted((ROOT / "docs").rglob("*.md"))),
    *(name for name in outside_files() if name.endswith(".md")),
]
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,3} (.*)$", re.MULTILINE)
JOBS = {
    "add it to an existing job": "existing-jobs.md",
    "schedule backfills every night": "how-to/nightly-backfill.md",
    "nightly overwrite job": "how-to/overwrite-job.md",
    "avro schema registry": "how-to/avro.md",
    "encrypt a whole estate": "how-to/encrypt-an-estate.md",
    "change a tag": "how-to/retag.md",
    "retag a column": "how-to/retag.md",
    "erase a person": "how-to/erase-a-person.md",
    "run on yarn": "how-to/yarn.md",
    "kubernetes with an object store": "how-to/kubernetes.md",
    "emr": "how-to/emr-and-dataproc.md",
    "dataproc": "how-to/emr-and-dataproc.md",
    "livy": "how-to/livy.md",
    "airflow operator": "how-to/airflow.md",
    "upgrade": "how-to/upgrade.md",
    "encrypt spark job output": "existing-jobs.md",
    "enable encryption dataframe write": "existing-jobs.md",
    "cron": "how-to/nightly-backfill.md",
    "truncate reload table": "how-to/overwrite-job.md",
    "migrate existing plaintext tables": "how-to/encrypt-an-estate.md",
    "change tag re-encrypt files": "how-to/retag.md",
    "fix wrong tag": "how-to/retag.md",
    "gdpr delete customer data": "how-to/erase-a-person.md",
    "right to be forgotten": "how-to/erase-a-person.md",
    "hadoop cluster": "how-to/yarn.md",
    "minio": "how-to/kubernetes.md",
    "release notes": "how-to/upgrade.md",
    "java reader without spark": "how-to/readers-outside-spark.md",
    "rotate a master key": "how-to/rotate-keys.md",
    "yearly key rotation": "how-to/rotate-keys.md",
    "leaked key": "how-to/rotate-keys.md",
    "compromised key": "how-to/rotate-keys.md",
    "stolen key": "how-to/rotate-keys.md",
}
"""What is typed -> the page that must be found."""
FIRST = 3
STOP_WORDS = {
    *("a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can"),
    *("do", "does", "for", "from", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "no", "not"),
    *("of", "on", "or", "so", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "what"),
    *("when", "where", "which", "who", "with", "you", "every"),
}
TITLE, TEXT = 1000.0, 1.0
"""What a word counts in a title and in a text, as the theme's index has it."""


def sections() -> Iterator[dict[str, str]]:
    """Yield the sections of all pages as the site's index has them: the text before the first heading is the page's."""
    for page in PAGES:
        text = BLOCK.sub(lambda block: re.sub(r"^ *#", "", block[0], flags=re.MULTILINE), (ROOT / page).read_text())
        text = re.sub(r"\]\([^)]*\)|[`*|\[\]]", " ", text)
        parts = HEADING.split(text)[1:]
        for number, (title, below) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            place = site_uri(page) + (f"#{slug(title)}" if number else "")
            yield {"location": place, "title": title, "text": below}


class Search:
    """The search of the site's theme: lunr's scores of words and of beginnings of words, of titles and of texts."""

    def __init__(self) -> None:
        """Count the words of each section."""
        self.parents: list[bool] = []
        self.pages: list[str] = []
        self.found: dict[str, dict[tuple[int, float], int]] = defaultdict(dict)
        places: set[str] = set()
        for section in sections():
            if section["location"] in places:
                continue
            places.add(section["location"])
            number = len(self.pages)
            self.pages.append(section["location"].partition("#")[0])
            self.parents.append("#" not in section["location"])
            for field, weight in (("title", TITLE), ("text", TEXT)):
                for word, times in Counter(re.split(r"[\s\-]+", section[field].lower())).items():
                    if word and word not in STOP_WORDS:
                        self.found[word][number, weight] = times

    def find_pages(self, query: str) -> list[str]:
        """Return the pages for a query, the best first: each by its best section.

        A section that is a page's beginning, and one that has all words, count more, as in the theme.
        """
        words = query.split()
        terms = [(word, term) for word in words for term in self.found if term.startswith(word)]
        length = sqrt(len({term for _, term in terms})) or 1.0
        scores: dict[int, float] = defaultdict(float)
        matched: dict[int, set[str]] = defaultdict(set)
        for word, term in terms:
            places = self.found[term]
            rarity = log(1 + abs((len(self.pages) - len(places) + 0.5) / (len(places) + 0.5)))
            for (number, weight), times in places.items():
                scores[number] += weight * rarity * 2.2 * times / (1.2 + times) / length
                matched[number].add(word)
        ranked = []
        for number, score in scores.items():
            counted = {word for word in words if word in matched[number] or word not in STOP_WORDS}
            boost = self.parents[number] + len(matched[number]) / len(counted)
            ranked.append((score * (1 + boost**2) * boost_of(self.pages[number]), self.pages[number]))
        return list(dict.fromkeys(page for _, page in sorted(ranked, reverse=True)))


@pytest.fixture(scope="module")
def search() -> Search:
    """The search over all pages."""
    return Search()


@pytest.mark.parametrize(("query", "page"), JOBS.items())
def test_every_job_is_found(search: Search, query: str, page: str) -> None:
    """By the words of somebody who does not know ours."""
    assert page in search.find_pages(query)[:FIRST]


def test_what_is_nowhere_is_not_found(search: Search) -> None:
    """So a page is not found by anything at all."""
    assert search.find_pages("zeppelin") == []
