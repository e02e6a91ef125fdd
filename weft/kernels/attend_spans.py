"""`document_spans`: where the document of each position begins and ends, for attention and its gradients."""

from __future__ import annotations

from typing import Any

from weft.kernels.device.attend import SEARCHES, find_spans
from weft.kernels.memory import empty_like


def document_spans(documents: Any, like: Any, stream: Any) -> Any:
    """The first position of each position's document, and the one behind its last, [batch, 2, length]. `documents` [batch,
    length] never decrease along a row; the array is made as those of `like` are."""
    batch, length = documents.shape
    spans = empty_like(like, (batch, 2, length), "int32")
    grid = (-(-length // SEARCHES), batch)
    find_spans[grid](documents, spans, length, length.bit_length(), num_warps=1, stream=stream)
    return spans
