"""Numbers with their nouns, for messages."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "s") -> str:
    """The number and the noun, with its plural's ending where there is not one of it.

    >>> counted(1, "program"), counted(2, "program"), counted(0, "launch", "es")
    ('1 program', '2 programs', '0 launches')
    """
    return f"{count} {noun}{'' if count == 1 else plural}"
