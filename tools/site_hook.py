"""What MkDocs asks while it builds the site: the pages outside of docs/, links between all, and what came out as text.

The pages are written to be read where they lie, in a checkout or on a forge. On the site they keep their places, but
that the README is the first page, and what is below docs/ is at the top.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs/"
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "LICENSE", "conf", "tests/corpus/README.md")
"""Files and folders outside of docs/ that are on the site."""
LINK = re.compile(r"(\]\()([^)\s#]+)?(#[^)\s]*)?(?=\))")
LOG = logging.getLogger("mkdocs.hooks.site_hook")
"""A warning to MkDocs's own logger fails a strict build."""
_BOOSTS = {"how-to/": 2.0, "existing-jobs.md": 2.0, "runbooks.md": 2.0, "api.md": 0.25, "commands.md": 0.5}
_BOOSTS |= dict.fromkeys(("decisions/", "architecture.md", "performance.md", "CHANGELOG.md", "CONTRIBUTING.md"), 0.25)
"""Page, or folder of pages -> what it counts in the site's search: whoever searches has a job to do."""
_CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
_MARKUP = re.compile(r"^\s*(?:<(?:p|li)>)?\s*((?:[-*+]|\d+\.) |\||```)", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def slug(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def outside_files() -> list[str]:
    """Return the files outside of docs/ that are on the site, by their paths in the checkout."""
    found = []
    for name in OUTSIDE:
        path = ROOT / name
        below = (
            [file for file in path.rglob("*") if file.suffix in (".json", ".md", ".py", ".yaml")]
            if path.is_dir()
            else [path]
        )
        found += sorted(file.relative_to(ROOT).as_posix() for file in below)
    return found


def site_uri(path: str) -> str:
    """Return where a file or folder of the checkout is on the site; a folder is its README."""
    if path == "README.md":
        return "index.md"
    named = path if (ROOT / path).is_file() else next((f"{above}/README.md" for above in _above(path)), path)
    return named.removeprefix(DOCS)


def boost_of(uri: str) -> float:
    """Return what a page of the site counts in its search, where others count 1."""
    return next((boost for place, boost in _BOOSTS.items() if uri == place or uri.startswith(place)), 1.0)


def source_of(uri: str) -> str:
    """Return the path in the checkout of a page of the site."""
    if uri == "index.md":
        return "README.md"
    return uri if uri in outside_files() else DOCS + uri


def relink(markdown: str, uri: str) -> str:
    """Return a page with its relative links as the site needs them.

    Args:
        markdown: the page.
        uri: its place on the site.
    """
    source = source_of(uri)

    def replace(link: re.Match[str]) -> str:
        opening, path, anchor = link.groups(default="")
        if not path or ":" in path:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        return opening + posixpath.relpath(site_uri(target), posixpath.dirname(uri) or ".") + anchor

    blocks = [block.span() for block in _FENCED.finditer(markdown)]
    return LINK.sub(
        lambda link: link[0] if any(start <= link.start() < end for start, end in blocks) else replace(link), markdown
    )


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that links on GitHub use."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/."""
    from mkdocs.structure.files import File  # links are checked where MkDocs is not installed

    for name in outside_files():
        files.append(File.generated(config, site_uri(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Bring the links of a page to where the site has their targets, and tell the search what the page counts."""
    page.meta["search"] = {"boost": boost_of(page.file.src_uri)}
    return relink(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warn of lists, tables and blocks of code that came out as text."""
    for line in find_unrendered(html):
        LOG.warning("%s: is text on the site, and not a list, table or block: %r", page.file.src_uri, line)
    return html


def find_unrendered(html: str) -> list[str]:
    """Return the lines of a page's HTML that show marks of Markdown, such as of a list that is indented by two."""
    plain = _CODE.sub(lambda code: "\n" * code[0].count("\n"), html)
    return [plain[found.start() :].lstrip().partition("\n")[0] for found in _MARKUP.finditer(plain)]


def _above(path: str) -> list[str]:
    """Return the folders from a path upwards that have a README."""
    folders = [path, *(folder.as_posix() for folder in Path(path).parents if folder != Path())]
    return [folder for folder in folders if (ROOT / folder / "README.md").is_file()]
