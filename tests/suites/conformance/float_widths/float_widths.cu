// float to double and back in every rounding; NaN is left out, whose payload PTX does not pin here.
extern "C" __global__ void floatWidths(const double* x, unsigned long long n, float* out, double* wide)
{
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    const unsigned all = BLOCKS * THREADS;
    const double raw = x[i % n];
    // The exponent is drawn in, so that results meet float's whole range and its subnormals.
    const unsigned high = (unsigned)__double2hiint(raw);
    const double near = __hiloint2double((int)((high & 0x800fffffu) | ((0x360u + (high >> 20 & 0x1ffu)) << 20)), __double2loint(raw));
    const double d = raw != raw || (i & 1) ? near : raw;
    out[i] = __double2float_rn(d);
    out[all + i] = __double2float_rz(d);
    out[2 * all + i] = __double2float_rd(d);
    out[3 * all + i] = __double2float_ru(d);
    wide[i] = (double)out[i] - d * 0.5;
    wide[all + i] = (double)__double2float_rd(d) * 3.0;
}
