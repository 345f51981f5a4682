/* What the driver needs of a model beside f and its Jacobians: products of these with directions, and
   slopes of directions without them. Written by `runge_kutta_source.py` as PRODUCTS and ALONG, and
   compiled for each model with CasADi's text, which stands above. */

#define INLINE static inline __attribute__((always_inline))

/* Four numbers anywhere in memory; compilers make of them what the machine has. */
typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));

/* Rows of f_x S + f_q D, PRODUCTS being made of these: row i begins, an entry m of f_x in column j,
   one of f_q, the row ends. It is four columns of a panel and, if there are `two`, the four beside them.
   LOOPED is what PRODUCTS is where it would be too long to be written out. */
#define ROW(i) { Four one = {0, 0, 0, 0}, other = {0, 0, 0, 0};
#define BY_X(m, j) ADD(fx[m], s + (j) * w)
#define BY_Q(m, j) if (by) ADD(fq[m], by + (j) * w)
#define ADD(v, from) { \
    one += v * *(const Four *)(from); \
    if (two) other += v * *(const Four *)((from) + 4); \
  }
#define ENDS(i) *(Four *)(k + (i) * w) = one; if (two) *(Four *)(k + (i) * w + 4) = other; }

#define LOOPED \
  for (int i = 0; i < N_X; i++) { \
    ROW(i) \
    for (int m = fx_first[i]; m < fx_first[i + 1]; m++) BY_X(m, fx_col[m]) \
    for (int m = fq_first[i]; m < fq_first[i + 1]; m++) BY_Q(m, fq_col[m]) \
    ENDS(i) \
  }

INLINE void products(const double *fx, const double *fq, const double *restrict s,
                     const double *restrict by, double *restrict k, const long w, const int two) {
  PRODUCTS
}

CASADI_SYMBOL_EXPORT void igpe_products(const double *fx, const double *fq, const double *s,
                                        const double *by, double *k, long w, int two) {
  if (two && by) products(fx, fq, s, by, k, 8, 1);
  else if (two) products(fx, fq, s, 0, k, 8, 1);
  else if (by) products(fx, fq, s, by, k, w, 0);
  else products(fx, fq, s, 0, k, w, 0);
}

#ifdef ALONG
/* The slopes of the state x and of four directions, and of four more e columns on, without Jacobians:
   ALONG is written for that, line by line, where it is faster. Rows of panels have w numbers. */
INLINE void along(const double t, const double *x, const double *q, const double *ab,
                  const double *number, double *restrict k, const double *s, const double *by,
                  double *restrict to, const long w, const long e) {
  ALONG
}

CASADI_SYMBOL_EXPORT void igpe_along(double t, const double *x, const double *q, const double *ab,
                                     const double *number, double *k, const double *s,
                                     const double *by, double *to, long w, int two) {
  if (two) along(t, x, q, ab, number, k, s, by, to, 8, 4);
  else along(t, x, q, ab, number, k, s, by, to, w, 0);
}
#endif
