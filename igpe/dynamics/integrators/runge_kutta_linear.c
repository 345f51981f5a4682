/* Second part: the linear equations of implicit stages, (1 - factor f_x) v = w.

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
HOT static int factorise_sparsely(Run *r, double factor) {
  double *lu = r->sparse, w[N_X];
  for (int i = 0; i < N_X; i++) {
    const int row = LU_ORDER[i], diagonal = LU_DIAGONAL[i];
    for (int m = LU_FIRST[i]; m < LU_FIRST[i + 1]; m++) w[LU_COL[m]] = 0;
    w[i] = 1;
    for (int m = FX_FIRST[row]; m < FX_FIRST[row + 1]; m++)
      w[LU_PLACE[FX_COL[m]]] -= factor * r->fx[m];
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

/* Solve for four right-hand sides that stand side by side in rows of length c. */
HOT static void solve_four_sparsely(const Run *r, double *v, long c) {
  const double *lu = r->sparse;
  Four x[N_X];
  for (int i = 0; i < N_X; i++) {
    Four sum = *(Four *)(v + LU_ORDER[i] * c);
    for (int m = LU_FIRST[i]; m < LU_DIAGONAL[i]; m++) sum -= lu[m] * x[LU_COL[m]];
    x[i] = sum;
  }
  for (int i = N_X - 1; i >= 0; i--) {
    Four sum = x[i] * lu[LU_DIAGONAL[i]];
    for (int m = LU_DIAGONAL[i] + 1; m < LU_FIRST[i + 1]; m++) sum -= lu[m] * x[LU_COL[m]];
    *(Four *)(v + LU_ORDER[i] * c) = x[i] = sum;
  }
}

static void solve_one_sparsely(const Run *r, const double *from, double *v) {
  const double *lu = r->sparse;
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

static void solve_transposed_sparsely(const Run *r, double *v) {
  const double *lu = r->sparse;
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
#define SPARSELY(function) if (r->is_sparse) return function;
#else
#define SPARSELY(function)
#endif

/* LU factors, with row exchanges, of 1 - factor f_x, the inverses of the pivots in their places;
   0 if it is singular. */
HOT static int factorise_densely(Run *r, double factor) {
  double *lu = r->lu;
  for (int i = 0; i < N_X; i++) r->order[i] = i;
  for (int i = 0; i < N_X * N_X; i++) lu[i] = 0;
  for (int i = 0; i < N_X; i++) lu[i * N_X + i] = 1;
  for (int m = 0; m < FX_N; m++) lu[FX_ROW[m] * N_X + FX_COL[m]] -= factor * r->fx[m];
  for (int j = 0; j < N_X; j++) {
    int best = j;
    for (int i = j + 1; i < N_X; i++)
      if (fabs(lu[i * N_X + j]) > fabs(lu[best * N_X + j])) best = i;
    int row = r->order[j];
    r->order[j] = r->order[best], r->order[best] = row;
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

static int factorise(Run *r, double factor) {
#if LU_N
  if ((r->is_sparse = factorise_sparsely(r, factor))) return 1;
#endif
  return factorise_densely(r, factor);
}

/* Solve for four right-hand sides that stand side by side in rows of length c. */
HOT static void solve_four(const Run *r, double *v, long c) {
  SPARSELY(solve_four_sparsely(r, v, c))
  const double *lu = r->lu;
  Four x[N_X];
  for (int i = 0; i < N_X; i++) x[i] = *(Four *)(v + r->order[i] * c);
  for (int i = 1; i < N_X; i++)
    for (int j = 0; j < i; j++)
      if (N_X <= SMALL || lu[i * N_X + j] != 0) x[i] -= lu[i * N_X + j] * x[j];
  for (int i = N_X - 1; i >= 0; i--) {
    for (int j = i + 1; j < N_X; j++)
      if (N_X <= SMALL || lu[i * N_X + j] != 0) x[i] -= lu[i * N_X + j] * x[j];
    x[i] *= lu[i * N_X + i];
  }
  for (int i = 0; i < N_X; i++) *(Four *)(v + i * c) = x[i];
}

/* Solve for n of them; what is left of fours moves to a place of its own. */
static void solve(const Run *r, double *v, long c, long n) {
  const long fours = n - n % 4, left = n % 4;
  for (long d = 0; d < fours; d += 4) solve_four(r, v + d, c);
  if (!left) return;
  double four[4 * N_X] = {0};
  for (int i = 0; i < N_X; i++)
    for (long d = 0; d < left; d++) four[4 * i + d] = v[i * c + fours + d];
  solve_four(r, four, 4);
  for (int i = 0; i < N_X; i++)
    for (long d = 0; d < left; d++) v[i * c + fours + d] = four[4 * i + d];
}

/* The same for one right-hand side. */
HOT static void solve_one(const Run *r, const double *from, double *v) {
  SPARSELY(solve_one_sparsely(r, from, v))
  const double *lu = r->lu;
  for (int i = 0; i < N_X; i++) v[i] = from[r->order[i]];
  for (int i = 1; i < N_X; i++)
    for (int j = 0; j < i; j++) v[i] -= lu[i * N_X + j] * v[j];
  for (int i = N_X - 1; i >= 0; i--) {
    for (int j = i + 1; j < N_X; j++) v[i] -= lu[i * N_X + j] * v[j];
    v[i] *= lu[i * N_X + i];
  }
}

/* Solve with the transpose of what was factorised, in place. */
static void solve_transposed(const Run *r, double *v) {
  SPARSELY(solve_transposed_sparsely(r, v))
  const double *lu = r->lu;
  double u[N_X];
  for (int i = 0; i < N_X; i++) {
    u[i] = v[i];
    for (int j = 0; j < i; j++) u[i] -= lu[j * N_X + i] * u[j];
    u[i] *= lu[i * N_X + i];
  }
  for (int i = N_X - 1; i >= 0; i--)
    for (int j = i + 1; j < N_X; j++) u[i] -= lu[j * N_X + i] * u[j];
  for (int i = 0; i < N_X; i++) v[r->order[i]] = u[i];
}
