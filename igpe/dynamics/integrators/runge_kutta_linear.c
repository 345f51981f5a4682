/* Second part: the linear equations of implicit stages, (1 - factor f_x) v = w, f_x and factors being
   those of stage s.

   Where most of the factors are zeros, their places are known beforehand (LU_N > 0; see
   `igpe/dynamics/integrators/runge_kutta_source.py`): rows and columns in the order LU_ORDER, LU_PLACE its inverse; row i has entries
   from LU_FIRST[i] on in columns LU_COL, LU_DIAGONAL[i] the one on the diagonal, lower ones before it.
   Pivots then stand on the diagonal. One that is a small difference of large numbers would lose
   digits: dense factors with row exchanges take their place. Both sparse factors, L D U, have ones on their
   diagonals, so that a row waits for no division by a pivot of the one before. */

#define SMALL 8         /* states up to which zeros of dense factors are not looked for */
#define CANCELLED 1e-6  /* a pivot relative to what it is the sum of */

#if LU_N
/* Sparse factors L D U, the inverses of D in their places; 0 where a pivot is lost. */
HOT static int factorise_sparsely(Run *r, int s, double factor) {
  const double *fx = r->fx[s];
  double *lu = r->sparse[s], w[N_X];
  for (int i = 0; i < N_X; i++) {
    const int row = LU_ORDER[i], diagonal = LU_DIAGONAL[i];
    for (int m = LU_FIRST[i]; m < LU_FIRST[i + 1]; m++) w[LU_COL[m]] = 0;
    w[i] = 1;
    for (int m = FX_FIRST[row]; m < FX_FIRST[row + 1]; m++)
      w[LU_PLACE[FX_COL[m]]] -= factor * fx[m];
    double terms = 1 + fabs(w[i] - 1);
    for (int m = LU_FIRST[i]; m < diagonal; m++) {
      const int k = LU_COL[m];
      const double before = w[i], v = w[k];
      lu[m] = v * lu[LU_DIAGONAL[k]];
      if (v == 0) continue;
      for (int n = LU_DIAGONAL[k] + 1; n < LU_FIRST[k + 1]; n++) w[LU_COL[n]] -= v * lu[n];
      terms += fabs(w[i] - before);
    }
    if (!(fabs(w[i]) > CANCELLED * terms)) return 0;
    const double inverse = lu[diagonal] = 1 / w[i];
    for (int m = diagonal + 1; m < LU_FIRST[i + 1]; m++) lu[m] = inverse * w[LU_COL[m]];
  }
  return 1;
}

/* Solve for four right-hand sides of a panel and, if there are `two`, the four beside them. */
INLINE void solve_some_sparsely(const Run *r, int s, double *v, const long w, const int two) {
  const double *lu = r->sparse[s];
  Four x[N_X], y[N_X];
  for (int i = 0; i < N_X; i++) {
    const double *from = v + LU_ORDER[i] * w;
    Four one = *(const Four *)from, other = two ? *(const Four *)(from + 4) : one;
    for (int m = LU_FIRST[i]; m < LU_DIAGONAL[i]; m++) {
      one -= lu[m] * x[LU_COL[m]];
      if (two) other -= lu[m] * y[LU_COL[m]];
    }
    x[i] = one, y[i] = other;
  }
  for (int i = N_X - 1; i >= 0; i--) {
    double *to = v + LU_ORDER[i] * w;
    Four one = x[i] * lu[LU_DIAGONAL[i]], other = y[i] * lu[LU_DIAGONAL[i]];
    for (int m = LU_DIAGONAL[i] + 1; m < LU_FIRST[i + 1]; m++) {
      one -= lu[m] * x[LU_COL[m]];
      if (two) other -= lu[m] * y[LU_COL[m]];
    }
    *(Four *)to = x[i] = one, y[i] = other;
    if (two) *(Four *)(to + 4) = other;
  }
}

HOT static void solve_sparsely(const Run *r, int s, double *v, long w) {
  if (w == 8) solve_some_sparsely(r, s, v, 8, 1);
  else solve_some_sparsely(r, s, v, 4, 0);
}

static void solve_one_sparsely(const Run *r, int s, const double *from, double *v) {
  const double *lu = r->sparse[s];
  double x[N_X];
  for (int i = 0; i < N_X; i++) {
    double sum = from[LU_ORDER[i]];
    for (int m = LU_FIRST[i]; m < LU_DIAGONAL[i]; m++) sum -= lu[m] * x[LU_COL[m]];
    x[i] = sum;
  }
  for (int i = N_X - 1; i >= 0; i--) {
    double sum = x[i] * lu[LU_DIAGONAL[i]];
    for (int m = LU_DIAGONAL[i] + 1; m < LU_FIRST[i + 1]; m++) sum -= lu[m] * x[LU_COL[m]];
    v[LU_ORDER[i]] = x[i] = sum;
  }
}

static void solve_transposed_sparsely(const Run *r, int s, double *v) {
  const double *lu = r->sparse[s];
  double u[N_X];
  for (int i = 0; i < N_X; i++) u[i] = v[LU_ORDER[i]];
  for (int i = 0; i < N_X; i++) {
    for (int m = LU_DIAGONAL[i] + 1; m < LU_FIRST[i + 1]; m++) u[LU_COL[m]] -= lu[m] * u[i];
    u[i] *= lu[LU_DIAGONAL[i]];
  }
  for (int i = N_X - 1; i >= 0; i--) {
    for (int m = LU_FIRST[i]; m < LU_DIAGONAL[i]; m++) u[LU_COL[m]] -= lu[m] * u[i];
    v[LU_ORDER[i]] = u[i];
  }
}
#define SPARSELY(function) if (r->is_sparse[s]) return function;
#else
#define SPARSELY(function)
#endif

/* LU factors, with row exchanges, of 1 - factor f_x, the inverses of the pivots in their places;
   0 if it is singular, or if there is no memory. */
HOT static int factorise_densely(Run *r, int s, double factor) {
  const double *fx = r->fx[s];
  int *order = r->order[s];
  if (!r->dense[s]) r->dense[s] = malloc(sizeof(double) * N_X * N_X);
  double *lu = r->dense[s];
  if (!lu) return 0;
  for (int i = 0; i < N_X; i++) order[i] = i;
  for (int i = 0; i < N_X * N_X; i++) lu[i] = 0;
  for (int i = 0; i < N_X; i++) lu[i * N_X + i] = 1;
  for (int m = 0; m < FX_N; m++) lu[FX_ROW[m] * N_X + FX_COL[m]] -= factor * fx[m];
  for (int j = 0; j < N_X; j++) {
    int best = j;
    for (int i = j + 1; i < N_X; i++)
      if (fabs(lu[i * N_X + j]) > fabs(lu[best * N_X + j])) best = i;
    int row = order[j];
    order[j] = order[best], order[best] = row;
    if (!(fabs(lu[best * N_X + j]) > 0)) return 0;
    for (int i = 0; best != j && i < N_X; i++) {
      double held = lu[j * N_X + i];
      lu[j * N_X + i] = lu[best * N_X + i], lu[best * N_X + i] = held;
    }
    double inverse = lu[j * N_X + j] = 1 / lu[j * N_X + j];
    for (int i = j + 1; i < N_X; i++) {
      if (lu[i * N_X + j] == 0) continue;
      double l = lu[i * N_X + j] *= inverse;
      axpy(lu + i * N_X + j + 1, -l, lu + j * N_X + j + 1, N_X - j - 1);
    }
  }
  return 1;
}

static int factorise(Run *r, int s, double factor) {
#if LU_N
  if ((r->is_sparse[s] = factorise_sparsely(r, s, factor))) return 1;
#endif
  return factorise_densely(r, s, factor);
}

/* Solve for all right-hand sides of a panel with rows of w numbers. */
HOT static void solve(const Run *r, int s, double *panel, long w) {
  SPARSELY(solve_sparsely(r, s, panel, w))
  const double *lu = r->dense[s];
  for (double *v = panel; v < panel + w; v += 4) {
    Four x[N_X];
    for (int i = 0; i < N_X; i++) x[i] = *(const Four *)(v + r->order[s][i] * w);
    for (int i = 1; i < N_X; i++)
      for (int j = 0; j < i; j++)
        if (N_X <= SMALL || lu[i * N_X + j] != 0) x[i] -= lu[i * N_X + j] * x[j];
    for (int i = N_X - 1; i >= 0; i--) {
      for (int j = i + 1; j < N_X; j++)
        if (N_X <= SMALL || lu[i * N_X + j] != 0) x[i] -= lu[i * N_X + j] * x[j];
      x[i] *= lu[i * N_X + i];
    }
    for (int i = 0; i < N_X; i++) *(Four *)(v + i * w) = x[i];
  }
}

/* The same for one right-hand side. */
HOT static void solve_one(const Run *r, int s, const double *from, double *v) {
  SPARSELY(solve_one_sparsely(r, s, from, v))
  const double *lu = r->dense[s];
  for (int i = 0; i < N_X; i++) v[i] = from[r->order[s][i]];
  for (int i = 1; i < N_X; i++)
    for (int j = 0; j < i; j++) v[i] -= lu[i * N_X + j] * v[j];
  for (int i = N_X - 1; i >= 0; i--) {
    for (int j = i + 1; j < N_X; j++) v[i] -= lu[i * N_X + j] * v[j];
    v[i] *= lu[i * N_X + i];
  }
}

/* Solve with the transpose of what was factorised, in place. */
static void solve_transposed(const Run *r, int s, double *v) {
  SPARSELY(solve_transposed_sparsely(r, s, v))
  const double *lu = r->dense[s];
  double u[N_X];
  for (int i = 0; i < N_X; i++) {
    u[i] = v[i];
    for (int j = 0; j < i; j++) u[i] -= lu[j * N_X + i] * u[j];
    u[i] *= lu[i * N_X + i];
  }
  for (int i = N_X - 1; i >= 0; i--)
    for (int j = i + 1; j < N_X; j++) u[i] -= lu[j * N_X + i] * u[j];
  for (int i = 0; i < N_X; i++) v[r->order[s][i]] = u[i];
}
