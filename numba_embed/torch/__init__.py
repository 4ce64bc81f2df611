"""PyTorch on the CPU: the gradients of embeddings from this library's kernels.

`enable` (or the context manager `enabled`) replaces torch's own kernel of
``aten::embedding_dense_backward``, so that every ``nn.Embedding`` and ``F.embedding`` trains on
this library's. `embedding` and `EmbeddingBag` use it without any switch.
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "numba_embed.torch needs PyTorch, which is not installed "
        "(pip install 'numba-embed[torch]')",
        name="torch",
    ) from error

from numba_embed.torch.backend import disable, enable, enabled, is_enabled
from numba_embed.torch.bag import EmbeddingBag
from numba_embed.torch.function import embedding
from numba_embed.torch.sparse import to_sparse

__all__ = [
    "EmbeddingBag",
    "disable",
    "embedding",
    "enable",
    "enabled",
    "is_enabled",
    "to_sparse",
]
