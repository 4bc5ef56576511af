"""What pages are judged by: a strict parser, the elements that they may have, and texts that try to be more."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr"}
ALLOWED_ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer", "div", "span"),
    *("svg", "defs", "pattern", "rect", "line", "path", "circle", "text", "desc", "polygon", "polyline"),
    *("a", "p", "h1", "h2", "h3", "dl", "dt", "dd", "ul", "li", "code", "b", "strong", "bdi", "details", "summary"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "<!-- ",
    "javascript:alert(1)",
    "&lt;script&gt;",
]


class Page(HTMLParser):
    """What a parser finds: elements that are closed in order, their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        self.elements.append((tag, dict(attrs)))
        self.text += " "
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element of SVG without contents."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """The element that began last ends."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text, unless it is the style's."""
        if self._open and self._open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of each element of that name."""
        return [attributes for name, attributes in self.elements if name == tag]


def words(page: Page) -> str:
    """Return the text with single spaces."""
    return re.sub(r"\s+", " ", page.text)
