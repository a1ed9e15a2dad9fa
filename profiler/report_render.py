"""The forms of a report: text for terminals and logs, Markdown for pull requests, HTML for notebooks."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profiler.report_sections import Section


def render_text(sections: Sequence[Section], width: int = 100, color: bool = False) -> str:
    """Returns sections as text of at most `width` columns, without trailing blanks.

    Args:
      sections: what to show.
      width: columns of the terminal.
      color: True adds ANSI colours.
    """
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    for section in sections:
        console.print(_to_rich(section))
        console.print()
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines()) + "\n"


def _to_rich(section: Section) -> RenderableType:
    parts: list[RenderableType] = [Text(section.title, style="bold")]
    parts += [Text(line, style=_style(line)) for line in section.lines]
    if section.columns:
        parts.append(rich_table(section.columns, section.rows))
    parts += [Padding(Text(f"{number}. {item}"), (0, 0, 0, 2)) for number, item in enumerate(section.items, 1)]
    parts += [Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in section.notes]
    return Group(*parts)


def _style(line: str) -> str:
    if line.startswith("! "):
        return "yellow"
    return "bold" if line.startswith("Verdict:") else ""


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Returns a table; a column whose name begins with "*" is right-aligned.

    Numbers, source lines and columns of single words keep to one line: what gives way is text with several words.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        right = column.startswith("*")
        title = column.lstrip("*")
        is_whole = right or column.endswith("source") or not any(" " in row[number] for row in rows)
        table.add_column(title, justify="right" if right else "left", overflow="fold", no_wrap=is_whole)
    for row in rows:
        table.add_row(*row)
    return table


def render_markdown(sections: Sequence[Section]) -> str:
    """Returns sections as GitHub-flavoured Markdown."""
    blocks: list[str] = []
    for section in sections:
        blocks.append(f"### {_escape(section.title)}")
        blocks += [_escape(line) for line in section.lines if line]
        if section.columns:
            blocks.append("\n".join(_markdown_table(section)))
        if section.items:
            blocks.append("\n".join(f"{number}. {_escape(item)}" for number, item in enumerate(section.items, 1)))
        blocks += [f"_{_escape(note)}_" for note in section.notes]
    return "\n\n".join(blocks) + "\n"


def _markdown_table(section: Section) -> list[str]:
    head = [column.lstrip("*") for column in section.columns]
    rule = ["---:" if column.startswith("*") else "---" for column in section.columns]
    return [_markdown_row(row) for row in (head, rule, *section.rows)]


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_escape(cell) for cell in cells)} |"


def _escape(text: str) -> str:
    for character in ("\\", "|", "<", "_", "*"):
        text = text.replace(character, f"\\{character}")
    return text


def render_html(sections: Sequence[Section]) -> str:
    """Returns sections as an HTML fragment, for notebooks; it brings no style of its own but alignment."""
    return "\n".join(_html_section(section) for section in sections)


def _html_section(section: Section) -> str:
    parts = [f"<h4>{html.escape(section.title)}</h4>"]
    parts += [_html_line(line) for line in section.lines if line]
    if section.columns:
        aligns = ["right" if column.startswith("*") else "left" for column in section.columns]
        head = "".join(_html_cell("th", column.lstrip("*"), align) for column, align in zip(section.columns, aligns))
        rows = ["".join(_html_cell("td", cell, align) for cell, align in zip(row, aligns)) for row in section.rows]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    if section.items:
        parts.append(f"<ol>{''.join(f'<li>{html.escape(item)}</li>' for item in section.items)}</ol>")
    parts += [f"<p><small>{html.escape(note)}</small></p>" for note in section.notes]
    return "\n".join(parts)


def _html_line(line: str) -> str:
    text = html.escape(line)
    return f"<p><b>{text}</b></p>" if _style(line) else f"<p>{text}</p>"


def _html_cell(tag: str, text: str, align: str) -> str:
    return f'<{tag} style="text-align:{align}">{html.escape(text)}</{tag}>'
