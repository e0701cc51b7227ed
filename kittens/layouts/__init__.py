"""Layouts: where the elements of a tile live, as maps over bits.

One formalism serves every target. Start with :class:`Tiled` (a placement in registers) and
:class:`Shared` (one in shared memory); the rest are questions about them.

=====================  =====================================================================
``linear``             maps over bits: compose, invert, quotient, kernel; ``fragment`` notation
``tiled``              placements of tiles: fragments on a grid; slots, vectors, blocked layouts
``reduce``             what a reduction combines, and the layout of its result
``convert``            from one placement to another; chained products without moving anything
``shared``             placements in shared memory, swizzles and padding
``expressions``        index arithmetic as text for the emitters
``analysis``           bank conflicts, coalescing, registers, a search for swizzles
``products``           a matrix instruction as data (backends hold the tables)
``show``               pictures in text
=====================  =====================================================================
"""

from . import linear
from .analysis import (
    Access,
    Cost,
    bank_cost,
    find_swizzle,
    global_cost,
    phase_lanes,
    registers_per_lane,
    shared_cost,
    total,
)
from .convert import (
    Conversion,
    Exchange,
    InnerOrder,
    LaneForm,
    Step,
    apply,
    apply_exchange,
    conversion,
    exchanges,
    feeds,
    renaming,
    reorder,
)
from .expressions import (
    base_expression,
    bits_expression,
    coordinate_expression,
    element_expressions,
    lane_expression,
    offset_expression,
    register_offsets,
)
from .linear import Linear, compose, fragment, identity, invert, kernel, quotient, spell
from .products import Product, Shape
from .reduce import Reduction, reduction
from .shared import Shared, Xor, element_at, offset, panels, shared_tile, swizzle
from .show import picture, picture_shared
from .tiled import (
    Digit,
    Tiled,
    absorb,
    addresses,
    blocked,
    coordinates,
    distribute,
    elements,
    every_other,
    flip,
    holder,
    runs,
    same,
    table,
    transpose,
    vector_width,
    with_axes,
)

__all__ = [
    "Access",
    "Conversion",
    "Cost",
    "Digit",
    "Exchange",
    "InnerOrder",
    "LaneForm",
    "Linear",
    "Product",
    "Reduction",
    "Shape",
    "Shared",
    "Step",
    "Tiled",
    "Xor",
    "absorb",
    "addresses",
    "apply",
    "apply_exchange",
    "bank_cost",
    "base_expression",
    "bits_expression",
    "blocked",
    "compose",
    "conversion",
    "coordinate_expression",
    "coordinates",
    "distribute",
    "element_at",
    "element_expressions",
    "elements",
    "every_other",
    "exchanges",
    "feeds",
    "find_swizzle",
    "flip",
    "fragment",
    "global_cost",
    "holder",
    "identity",
    "invert",
    "kernel",
    "lane_expression",
    "linear",
    "offset",
    "offset_expression",
    "panels",
    "phase_lanes",
    "picture",
    "picture_shared",
    "quotient",
    "reduction",
    "register_offsets",
    "registers_per_lane",
    "renaming",
    "reorder",
    "runs",
    "same",
    "shared_cost",
    "shared_tile",
    "spell",
    "swizzle",
    "table",
    "total",
    "transpose",
    "vector_width",
    "with_axes",
]
