"""Pages for people: every link leads somewhere, in a checkout and on the site, and every page is on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tools.site_hook import LINK, ROOT, find_unrendered, outside_files, relink, site_uri, slug, source_of

FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
PAGES = sorted(
    [file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md")]
    + [name for name in outside_files() if name.endswith(".md")]
)


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings."""
    text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings}


def broken_links(text: str, page: str) -> Iterator[str]:
    """Yield the relative links of a page's text that lead to no file, or to no heading of it."""
    for _, path, anchor in LINK.findall(INLINE.sub("", FENCED.sub("", text))):
        if ":" in path:
            continue
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        whole = (ROOT / target).exists()
        if not whole or (anchor and target.endswith(".md") and anchor[1:] not in anchors(target)):
            yield path + anchor


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    """No relative link or anchor of a page is broken in a checkout."""
    assert list(broken_links((ROOT / page).read_text(encoding="utf-8"), page)) == []


def test_a_broken_link_is_found() -> None:
    """A file that is not there, a heading that is not there, and one of the page itself."""
    text = "[a](nowhere.md) [b](keys.md#no-such-heading) [c](#none) [d](keys.md#rotation) `[e](code.md)`"
    assert list(broken_links(text, "docs/scale.md")) == ["nowhere.md", "keys.md#no-such-heading", "#none"]


@pytest.mark.parametrize(
    ("uri", "link", "there"),
    [
        ("index.md", "docs/how-to/yarn.md#run", "how-to/yarn.md#run"),
        ("how-to/airflow.md", "../../conf/airflow/sparkcrypt_nightly.py", "../conf/airflow/sparkcrypt_nightly.py"),
        ("keys.md", "../README.md", "index.md"),
        ("deploy.md", "../conf/airflow", "conf/README.md"),
        ("CHANGELOG.md", "docs/keys.md#rotation", "keys.md#rotation"),
        ("keys.md", "https://example.org/a.md", "https://example.org/a.md"),
        ("keys.md", "#rotation", "#rotation"),
    ],
)
def test_links_keep_their_targets_on_the_site(uri: str, link: str, there: str) -> None:
    """A page that is elsewhere on the site is named by its place there; code is left as it is."""
    block = f"\n```\n[a]({link})\n```\n"
    assert relink(f"[a]({link}){block}", uri) == f"[a]({there}){block}"


def test_the_navigation_has_every_page() -> None:
    """Each page is in it once, and each entry is a page."""
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = re.findall(r"'([\w/.-]+\.md)'", str(navigation))
    assert sorted(named) == sorted(map(site_uri, PAGES))
    assert [source_of(site_uri(page)) for page in PAGES] == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_pages_begin_with_their_matter(page: str) -> None:
    """No page begins by saying whom it is for."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.startswith("# ") and not re.match(r"# .*\n+This page is for", text)


def test_every_how_to_is_named_by_the_readme() -> None:
    """A reader finds each job from the first page."""
    text = Path(ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if page.startswith("docs/how-to/") and f"({page})" not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_nested_lists_are_lists_on_the_site(page: str) -> None:
    """Forges take any indentation, MkDocs takes four spaces for each level."""
    text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    items = re.findall(r"^( +)(?:[-*+]|\d+\.) ", text, re.MULTILINE)
    assert [indent for indent in items if len(indent) % 4] == []


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_tables_on_the_site(page: str) -> None:
    """One begins after an empty line, or the lines above and below it are one paragraph."""
    lines = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8")).splitlines()
    heads = [number for number, line in enumerate(lines) if re.match(r" *\|( ?:?-+:? ?\|)+$", line)]
    assert [lines[number - 1] for number in heads if number > 1 and lines[number - 2].strip()] == []


def test_markup_that_came_out_as_text_is_found() -> None:
    """In lists and paragraphs; code may show what it likes."""
    html = "<ol>\n<li>one\n  - two</li>\n</ol>\n<p>text\n| a | b |</p>\n<p>```sh</p>"
    assert find_unrendered(html) == ["- two</li>", "| a | b |</p>", "<p>```sh</p>"]
    fine = "<pre><code>- a\n| b |\n</code></pre>\n<ul>\n<li><code>- x</code> 1 - 2</li>\n</ul>\n<p>2026</p><td>+ x</td>"
    assert find_unrendered(fine) == []
