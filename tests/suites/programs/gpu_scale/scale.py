"""FACTOR * x, one multiplication an element."""


def scaled(arrays, context):
    x = arrays["x"]
    return x * x.dtype.type(context.defines["FACTOR"])
