"""Mistakes in tensor descriptors: tensors, blocks and layouts that TMA cannot copy.

What a layout and a block say about each other is checked by `weft.layout.shared.tma` (`layout-tma-*`).
"""

from __future__ import annotations

from weft.errors.base import CompilationError, LaunchError, row

# The tensor

TENSOR = row(
    "descriptor-tensor",
    LaunchError,
    "a descriptor describes a tensor with a shape, and got {value}",
    "pass a PyTorch, NumPy or CuPy array; for kernel.warmup, give MockTensor(dtype) its shape and strides: "
    "TensorDescriptor(MockTensor('fp32'), shape, strides, block_shape, layout)",
)
DTYPE = row(
    "descriptor-dtype",
    LaunchError,
    "TMA moves numbers of 8 to 64 bits, but the tensor holds {dtype}",
    "describe the same memory as uint8: tensor.view(torch.uint8)",
)
RANK = row(
    "descriptor-rank",
    LaunchError,
    "a descriptor has 1 to 5 dimensions, but the tensor has shape {shape}",
    "merge dimensions with reshape, or describe one slice of the tensor",
)
STRIDES = row(
    "descriptor-strides",
    LaunchError,
    "strides {strides} and shape {shape} differ in length",
    "give one stride in elements for each dimension, outermost first",
)
EXTENT = row(
    "descriptor-extent",
    LaunchError,
    "dimension {dim} of a tensor of shape {shape} has {size} elements, and a descriptor takes 1 to 2147483647",
    "launch nothing for an empty tensor; describe a longer one in parts",
)
BASE = row(
    "descriptor-base",
    LaunchError,
    "the tensor starts {over} bytes after a multiple of 16 bytes, where TMA cannot start",
    "begin the slice at a multiple of {count} elements, or copy it first: tensor.clone()",
)
INNER_STRIDE = row(
    "descriptor-inner-stride",
    LaunchError,
    "the last dimension of the tensor has stride {stride}, but TMA needs elements that follow one another",
    "describe the tensor with its contiguous dimension last (tensor.T), or copy it first: tensor.contiguous()",
)
OUTER_STRIDE = row(
    "descriptor-stride",
    LaunchError,
    "dimension {dim} of the tensor has a stride of {nbytes} bytes, but TMA takes positive multiples of 16 below 2**40",
    "allocate rows of a multiple of {count} elements and describe a slice of them",
)

# The block

BLOCK_RANK = row(
    "descriptor-block-rank",
    LaunchError,
    "block_shape {block} has {got} dimensions, but the tensor of shape {shape} has {rank}",
    "give one size for each dimension of the tensor, 1 where a block does not extend",
)
LAYOUT = row(
    "descriptor-layout",
    LaunchError,
    "TMA copies blocks in an NVMMASharedLayout, and got {layout}",
    "write gl.NVMMASharedLayout.get_default_for({block}, gl.{dtype})",
)
FP4 = row(
    "descriptor-fp4",
    LaunchError,
    "{layout} spreads packed fp4 over padded bytes, but the descriptor is of {what}",
    "describe fp4 as uint8, two to a byte, with TensorDescriptor; without fp4_padded, any bytes are copied as they are",
)
FP4_STEP = row(
    "descriptor-fp4-step",
    LaunchError,
    "TMA spreads packed fp4 by {step} bytes, but {what} is {got}",
    "{fix}",
)
PADDING = row(
    "descriptor-padding",
    LaunchError,
    "padding={padding!r} is not what TMA reads outside of a tensor",
    "write padding='zero' or padding='nan'",
)
PADDING_NAN = row(
    "descriptor-padding-nan",
    LaunchError,
    "padding='nan' needs floats of 16 bits or more, but the tensor holds {dtype}",
    "write padding='zero'",
)

# im2col

IM2COL_RANK = row(
    "descriptor-im2col-rank",
    LaunchError,
    "an im2col descriptor takes a tensor of N, one to three spatial dimensions and C, but it has shape {shape}",
    "add the missing dimensions with unsqueeze, or use TensorDescriptor",
)
IM2COL_BLOCK = row(
    "descriptor-im2col-block",
    LaunchError,
    "an im2col block is [pixels, channels] with up to 256 pixels, and got {block}",
    "write block_shape=[128, 64], for example",
)
IM2COL_CORNER = row(
    "descriptor-im2col-corner",
    LaunchError,
    "{name}={corner} is not one offset from {low} to {high} for each of the {count} spatial dimensions",
    "write {name}={example}, the default, or offsets in that range",
)
IM2COL_BOX = row(
    "descriptor-im2col-box",
    LaunchError,
    "the corners {lower} and {upper} leave no pixel of spatial dimension {dim}, which has {size}",
    "move pixel_box_lower_corner down, or pixel_box_upper_corner up",
)
IM2COL_STEPS = row(
    "descriptor-im2col-steps",
    LaunchError,
    "element_strides={steps} is not one step from 1 to 8 for each of {rank} dimensions, the last of them 1",
    "write element_strides={example}, the default, or the strides of the convolution for its spatial dimensions",
)

# The target

TARGET = row(
    "descriptor-target",
    CompilationError,
    "argument {parameter} of {name} is a tensor descriptor, but {target} has no TMA",
    "{instead}",
)
PICKLE = row(
    "descriptor-pickle",
    LaunchError,
    "{got} cannot be pickled or deep-copied: it holds an address of this process's memory",
    "hand the array on, and make the descriptor of it there: TensorDescriptor.from_tensor(array, block_shape, layout)",
)
