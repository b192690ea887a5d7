"""How far apart two stacks may lie, by dtype: one table, stated in every report, never widened to pass.

The unit in the last place u is 2^-24, 2^-11, 2^-8 for float32, float16, bfloat16. A sum of rounded terms strays by a
few tens of u; a logit of magnitude 20 by 20 u and what the layers before it add.
"""

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}

# Relative L2 difference of features (tower, deepstack) between two stacks at the same dtype.
FEATURES = {"float64": 1e-6, "float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
# Nats. Two candidates closer than this are a near tie: either may win without anything being wrong.
NEAR_TIE = {"float64": 1e-6, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2.5e-1}
# Nats. Difference of one token's log probability between two stacks.
LOGPROB = {"float64": 1e-6, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2.5e-1}


def floor(dtype: str) -> float:
    """What a place inside the model may stray beyond twice the reference's own error, relative in L2.

    Four units in the last place: each side rounds its result, and distances by summaries are estimates. In float32 a
    tenth of the table's figure: the pixel values of the two sides differ by units already, and that grows on the way.
    """
    return max(4 * UNIT[dtype], FEATURES[dtype] / 10)


def coarser(*dtypes: str | None) -> str:
    """The dtype with the largest rounding among those given; float32 when none is known."""
    known = [dtype for dtype in dtypes if dtype in UNIT]
    return max(known, key=lambda dtype: UNIT[dtype]) if known else "float32"
