"""The model: PTX executed on the CPU, bit for bit."""
