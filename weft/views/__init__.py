"""LayoutTensor: views of memory with nested layouts, on the host and in kernels. The public interface of the package."""

from weft.views.arguments import ViewArgument, ViewKey
from weft.views.free import All, Idx, col_major, coord, row_major, stack_allocation, stack_allocation_like
from weft.views.partition import ViewType
from weft.views.storage import ALLOCATORS, OPENERS, AddressSpace, Index, Opened, Places, Storage
from weft.views.tensor import LayoutTensor, LayoutTensorIter

__all__ = [
    "ALLOCATORS",
    "OPENERS",
    "AddressSpace",
    "All",
    "Idx",
    "Index",
    "LayoutTensor",
    "LayoutTensorIter",
    "Opened",
    "Places",
    "Storage",
    "ViewArgument",
    "ViewKey",
    "ViewType",
    "col_major",
    "coord",
    "row_major",
    "stack_allocation",
    "stack_allocation_like",
]
