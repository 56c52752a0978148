"""Railroad diagrams of the grammar on the page about statements: EBNF to SVG.

The EBNF is ISO's, as far as the page uses it: `|`, `[ ]`, `{ }`, `( )`, quoted terminals, names of
rules, and `? … ?` for what is said in words. A test compares the same EBNF with the parser.
"""

import html
import re
from collections.abc import Iterator, Sequence
from typing import Final

import railroad
from railroad import Choice, Comment, DiagramItem, NonTerminal, Stack, Terminal

WIDTH_MAX: Final = 640  # Pixels of a line of a diagram; what is wider continues on another line.
_RULE: Final = re.compile(r"^(\w+) +=(.*?) ;(?: +\(\*(.*?)\*\))?$", re.DOTALL | re.MULTILINE)
_TOKEN: Final = re.compile(r"\"[^\"]*\"|'[^']*'|\?[^?]*\?|\w+|…|\S")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}

railroad.INTERNAL_ALIGNMENT = "left"
railroad.STROKE_ODD_PIXEL_LENGTH = False  # Lines are two pixels wide.


def rules_of(page: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, right side and remark of each rule in the one block of EBNF of *page*."""
    (block,) = re.findall(r"^```ebnf\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for name, right_side, remark in _RULE.findall(block):
        yield name, re.sub(r"\s+", " ", right_side).strip(), remark.strip()


def grammar_page(page: str) -> str:
    """Return a page with a diagram for each rule of the grammar on *page*."""
    rules = list(rules_of(page))
    names = {name for name, _, _ in rules}
    parts = [_HEAD]
    for name, right_side, remark in rules:
        parts.append(f"## {name} {{#{name}}}\n\n")
        parts.append(figure(name, right_side, names))
        parts.append(f"\n{remark[0].upper()}{remark[1:]}.\n\n" if remark else "\n")
    return "".join(parts)


def figure(name: str, right_side: str, names: set[str]) -> str:
    """Return the diagrams of a rule, and its EBNF as text; *names* are the rules to link to."""
    reader = _Reader(right_side, names)
    whole = [(right_side, reader.alternatives())]
    # The library takes too little room for a choice between items of several lines.
    drawn = reader.top if any(isinstance(each, Stack) for _, each in reader.top) else whole
    svgs = "".join(_svg(item, f"{name} = {text}") for text, item in drawn)
    ebnf = _linked(f"{name} = {right_side} ;", names - {name})
    return f'<figure class="railroad">{svgs}<figcaption><code>{ebnf}</code></figcaption></figure>\n'


def _svg(item: DiagramItem, label: str) -> str:
    written: list[str] = []
    diagram = railroad.Diagram(item, type="complex")
    diagram.attrs |= {"role": "img", "aria-label": label}
    diagram.writeSvg(written.append)
    svg = re.sub(r"\s*\n\s*", "", "".join(written))
    svg = re.sub(r"(<text[^>]*>[^<]*</text>)\1", r"\1", svg)  # The library writes a link's twice.
    return svg.replace("<a xlink:href", '<a tabindex="-1" href')


def _linked(text: str, names: set[str]) -> str:
    def one(piece: re.Match[str]) -> str:
        shown = html.escape(piece[0])
        return f'<a href="#{shown}">{shown}</a>' if piece[0] in names else shown

    return _TOKEN.sub(one, text)


class _Reader:
    """Reads the right side of a rule from left to right."""

    def __init__(self, text: str, names: set[str]) -> None:
        self._pieces = _TOKEN.findall(text)
        self._names = names
        self._at = 0
        self.top: list[tuple[str, DiagramItem]] = []

    def alternatives(self, end: str = "") -> DiagramItem:
        """Return what stands up to *end*, which is passed."""
        found: list[tuple[str, DiagramItem]] = []
        while not found or self._next() == "|":
            self._at += 1 if found else 0
            begin = self._at
            item = self._sequence(end)
            found.append((" ".join(self._pieces[begin : self._at]), item))
        if self._next() != end:
            raise SyntaxError(f"expected {end or 'the end'}, found {self._next()!r}")
        self._at += 1
        self.top = found  # At the end those of the rule itself, which ends last.
        items = [item for _, item in found]
        return items[0] if len(items) == 1 else Choice(0, *items)

    def _sequence(self, end: str) -> DiagramItem:
        items: list[DiagramItem] = []
        while self._next() not in ("|", end):
            items.append(self._item())
        return in_lines(items)

    def _item(self) -> DiagramItem:
        piece = self._next()
        self._at += 1
        if piece in _CLOSING:
            inner = self.alternatives(_CLOSING[piece])
            if piece == "(":
                return inner
            return railroad.Optional(inner) if piece == "[" else railroad.ZeroOrMore(inner)
        if piece[0] in "\"'":
            return Terminal(piece[1:-1])
        if piece[0] == "?":
            return Comment(piece[1:-1].strip())
        if piece == "…":
            return Comment("to")
        if piece.isidentifier():
            return NonTerminal(piece, href=f"#{piece}" if piece in self._names else None)
        raise SyntaxError(f"expected an item, found {piece!r}")

    def _next(self) -> str:
        return self._pieces[self._at] if self._at < len(self._pieces) else ""


def in_lines(items: Sequence[DiagramItem]) -> DiagramItem:
    """Return *items* one after the other, on as many lines as `WIDTH_MAX` makes of them."""
    lines: list[list[DiagramItem]] = [[]]
    for item in items:
        used = sum(each.width + 20 for each in lines[-1])
        if lines[-1] and used + item.width > WIDTH_MAX:
            lines.append([])
        lines[-1].append(item)
    sequences = [railroad.Sequence(*line) for line in lines]
    return sequences[0] if len(sequences) == 1 else Stack(*sequences)


_HEAD: Final = """# Grammar

Each rule of the [statements' grammar](../statements.md#grammar) as a diagram: follow the line from
left to right.
Rounded boxes are written as they stand, keywords in any case. Square boxes are other rules.
Under each diagram is the same rule as EBNF.

"""
