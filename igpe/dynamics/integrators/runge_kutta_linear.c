/* Second part: the linear equations of implicit stages, (1 - factor f_x) v = w, f_x and factors being
   those of stage s.

   Where most of the factors are zeros, their places are known beforehand (SPARSE, lu_n > 0; see
   `igpe/dynamics/integrators/runge_kutta_source.py`): rows and columns in the order LU_ORDER, LU_PLACE its inverse; row i has entries
   from LU_FIRST[i] on in columns LU_COL, LU_DIAGONAL[i] the one on the diagonal, lower ones before it.
   Pivots then stand on the diagonal. One that is a small difference of large numbers would lose
   digits: dense factors with row exchanges take their place. Both sparse factors, L D U, have ones on their
   diagonals, so that a row waits for no division by a pivot of the one before. */

#define SMALL 8         /* states up to which zeros of dense factors are not looked for */
#define KEPT 0.1        /* of the largest pivot: then rows stay, so that a state which is and stays 0 does */
#define CANCELLED 1e-6  /* a pivot relative to what it is the sum of */

#if SPARSE
#define LU_PLACES(r) \
  const int *LU_ORDER = (r)->model->lu_order, *LU_FIRST = (r)->model->lu_first; \
  const int *LU_COL = (r)->model->lu_col, *LU_DIAGONAL = (r)->model->lu_diagonal

/* Sparse factors L D U, the inverses of D in their places; 0 where a pivot is lost. */
HOT static int factorise_sparsely(Run *r, int s, double factor) {
  SIZED(r);
  LU_PLACES(r);
  const int *FX_FIRST = r->model->fx_first, *FX_COL = r->model->fx_col;
  const int *LU_PLACE = r->model->lu_place;
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
  SIZED(r);
  LU_PLACES(r);
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
  SIZED(r);
  LU_PLACES(r);
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

#define SPARSELY(function) if (r->is_sparse[s]) return function;
#else /* a driver of few states, which is compiled faster */
#define SPARSELY(function)
#endif

/* LU factors, with row exchanges, of 1 - factor f_x, the inverses of the pivots in their places;
   0 if it is singular, or if there is no memory. */
HOT static int factorise_densely(Run *r, int s, double factor) {
  SIZED(r);
  const int *FX_ROW = r->model->fx_row, *FX_COL = r->model->fx_col, FX_N = (int)r->model->fx_n;
  const double *fx = r->fx[s];
  int *order = r->order[s];
  if (!r->dense[s]) r->dense[s] = malloc(sizeof(double) * (size_t)N_X * N_X);
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
    if (fabs(lu[j * N_X + j]) >= KEPT * fabs(lu[best * N_X + j])) best = j;
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
#if SPARSE
  if ((r->is_sparse[s] = factorise_sparsely(r, s, factor))) return 1;
#endif
  return factorise_densely(r, s, factor);
}

/* Solutions for four right-hand sides of a panel, by dense factors. */
INLINE void solve_four(const double *lu, const int *order, double *v, const long w, Four *x, const int n) {
  for (int i = 0; i < n; i++) x[i] = *(const Four *)(v + order[i] * w);
  for (int i = 1; i < n; i++)
    for (int j = 0; j < i; j++)
      if (n <= SMALL || lu[i * n + j] != 0) x[i] -= lu[i * n + j] * x[j];
  for (int i = n - 1; i >= 0; i--) {
    for (int j = i + 1; j < n; j++)
      if (n <= SMALL || lu[i * n + j] != 0) x[i] -= lu[i * n + j] * x[j];
    x[i] *= lu[i * n + i];
  }
  for (int i = 0; i < n; i++) *(Four *)(v + i * w) = x[i];
}

/* The solution for one right-hand side. */
INLINE void solve_single(const double *lu, const int *order, const double *from, double *v, const int n) {
  for (int i = 0; i < n; i++) v[i] = from[order[i]];
  for (int i = 1; i < n; i++)
    for (int j = 0; j < i; j++) v[i] -= lu[i * n + j] * v[j];
  for (int i = n - 1; i >= 0; i--) {
    for (int j = i + 1; j < n; j++) v[i] -= lu[i * n + j] * v[j];
    v[i] *= lu[i * n + i];
  }
}

/* What is done for n states; very few are constants, whose loops compilers write out. */
#define BY_SIZE(n, DO) \
  switch (n) { \
    case 2: DO(2); break; \
    case 3: DO(3); break; \
    case 4: DO(4); break; \
    default: DO(n); \
  }

/* Solve for all right-hand sides of a panel with rows of w numbers. */
HOT static void solve(const Run *r, int s, double *panel, long w) {
  SIZED(r);
  SPARSELY(solve_sparsely(r, s, panel, w))
  Four x[N_X];
#define ALL_OF(n) for (long l = 0; l < w; l += 4) solve_four(r->dense[s], r->order[s], panel + l, w, x, n)
  BY_SIZE(N_X, ALL_OF)
}

/* The same for one right-hand side. */
HOT static void solve_one(const Run *r, int s, const double *from, double *v) {
  SIZED(r);
  SPARSELY(solve_one_sparsely(r, s, from, v))
#define ONE_OF(n) solve_single(r->dense[s], r->order[s], from, v, n)
  BY_SIZE(N_X, ONE_OF)
}
