"""The math atlas: the CUDA math API, function by function, over the releases of a compiler."""
