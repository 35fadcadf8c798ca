"""What mkdocs.yml can't say: pages from above `docs/`, links that lead out of the site, a list of the decisions.

A page is read in two places: in the repository, where a link names a file, and on the site. A link to a page of both
stays a link. A link to what is in the repository alone (sources, tests, folders) becomes a path, as code. A link to
nothing is left alone: MkDocs finds it, and the strict build fails.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ABOVE = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
}
"""Pages of the site that stand at the top of the repository."""
SEARCHED_LAST = ("benchmarks.md", "changelog.md", "performance.md", "testing.md")
DECISIONS = "decisions/index.md"
ON_SITE = {**ABOVE, "README.md": "index.md", "docs/decisions": DECISIONS}
IN_REPOSITORY = {page: path for path, page in ABOVE.items()}

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^ *(```+|~~~+)")


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to each run of lines that is not inside a fenced block."""
    done: list[str] = []
    run: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if fence:
            done.append(line)
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            done += [change("".join(run)), line]
            run.clear()
            fence = mark[1]
        else:
            run.append(line)
    return "".join([*done, change("".join(run))])


def relinked(text: str, page: str) -> str:
    """The text of a page (named as on the site) with links as the site needs them."""
    here = posixpath.dirname(IN_REPOSITORY.get(page, f"docs/{page}"))

    def link(found: re.Match[str]) -> str:
        words, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join(here, target))
        on_site = ON_SITE.get(path)
        if on_site is None and path.startswith("docs/") and path.endswith(".md"):
            on_site = path.removeprefix("docs/")
        if on_site is not None:
            return f"[{words}]({posixpath.relpath(on_site, posixpath.dirname(page) or '.')}{anchor})"
        if not (ROOT / path).exists():
            return found[0]
        plain = words.strip("`")
        return f"`{path}`" if plain in (path, target) else f"{words} (`{path}`)"

    return outside_fences(text, lambda run: LINK.sub(link, run))


TABLE_ROW = re.compile(r"^ *\|.*\|$", re.MULTILINE)
CODE = re.compile(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)")


def pipes(text: str) -> str:
    r"""GitHub wants `\|` within the code of a table's cell; Python-Markdown would show the backslash."""

    def row(found: re.Match[str]) -> str:
        return CODE.sub(lambda code: code[0].replace(r"\|", "|"), found[0])

    return outside_fences(text, lambda run: TABLE_ROW.sub(row, run))


NO_HEADING = re.compile(r"^(#+)(?=[^#\s])", re.MULTILINE)
ITEM = re.compile(r"- |1\. ")


def as_on_github(text: str) -> str:
    """What Python-Markdown reads otherwise: a heading has a space after its #, a list needs no empty line before it."""
    return outside_fences(text, lambda run: lists_apart(NO_HEADING.sub(r"\\\1", run)))


def lists_apart(text: str) -> str:
    """With an empty line before each list that a paragraph stands above."""
    lines: list[str] = []
    within = True
    """A list, or nothing at all."""
    for line in text.splitlines(keepends=True):
        begins = ITEM.match(line) is not None
        if begins and not within:
            lines.append("\n")
        within = begins or not line.strip() or (within and bool(lines) and lines[-1].strip() != "")
        lines.append(line)
    return "".join(lines)


def title(path: Path) -> str:
    """The first heading of a page."""
    with path.open() as file:
        return file.readline().lstrip("# ").strip()


def decisions(paths: Iterable[Path]) -> str:
    """The page that lists all decisions."""
    lines = ["# Decisions", "", "What was decided, why, and what was left. Newest first.", ""]
    numbered = ((*title(path).split(". ", 1), path.name) for path in sorted(paths, reverse=True))
    lines += [f"- {number}: [{name}]({file})" for number, name, file in numbered]
    return "\n".join(lines) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from above `docs/`, and those that are made here."""
    for path, page in ABOVE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    found = (Path(config.docs_dir) / "decisions").glob("[0-9]*.md")
    files.append(File.generated(config, DECISIONS, content=decisions(found)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """As on GitHub, with links as the site needs them; the search prefers pages for looking up to long reports."""
    folder, _, name = page.file.src_uri.rpartition("/")
    boost = 2 if folder.startswith("reference") else 0.5 if name in SEARCHED_LAST else 1
    page.meta.setdefault("search", {"boost": boost})
    return pipes(as_on_github(relinked(markdown, page.file.src_uri)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Within an element by which docs/stylesheets/site.css knows the page."""
    return f'<div class="page-{Path(page.file.src_uri).stem}">{html}</div>'


def on_serve(server: object, config: MkDocsConfig, builder: object) -> object:
    """While writing: the pages above `docs/` are watched, too."""
    for path in ABOVE:
        server.watch(str(ROOT / path))  # type: ignore[attr-defined]
    return server
