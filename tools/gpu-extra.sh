#!/bin/sh
# Prints the extra that gives this machine CuPy, or nothing where there is no NVIDIA driver.
command -v nvidia-smi >/dev/null 2>&1 || exit 0
major=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\).*/\1/p' | head -n 1)
case "$major" in
  1[3-9]) printf '%s\n' '.[cuda13]' ;;
  12) printf '%s\n' '.[cuda12]' ;;
esac
