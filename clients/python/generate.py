"""Writes the client for threads from the one for asyncio, which differs in these words alone.

    python3 generate.py           writes mooring_client/_client.py
    python3 generate.py --check   fails if that file is not what would be written
"""

import pathlib
import re
import sys

WORDS = {
    "AsyncClient": "Client",
    "AsyncCollection": "Collection",
    "AsyncDatabase": "Database",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "asyncio": "time",
}
ABOUT = "The client for asyncio: calls, pages and streams. _client.py is generated from this file."
GENERATED = "The client for threads: calls, pages, streams. Generated from _async.py: do not edit."


def threads(text: str) -> str:
    text = text.replace(ABOUT, GENERATED)
    text = text.replace("Awaitable[Any]", "Any").replace("    Awaitable,\n", "")
    text = re.sub(r"\(await ([^\n]*?\))\)\[", r"\1[", text)
    text = re.sub(r"\b(async|await) ", "", text)
    return re.sub(r"\b\w+\b", lambda word: WORDS.get(word[0], word[0]), text)


def main() -> None:
    package = pathlib.Path(__file__).parent / "mooring_client"
    text = threads((package / "_async.py").read_text())
    target = package / "_client.py"
    if "--check" not in sys.argv[1:]:
        target.write_text(text)
    elif target.read_text() != text:
        sys.exit("mooring_client/_client.py is out of date: python3 generate.py")


if __name__ == "__main__":
    main()
