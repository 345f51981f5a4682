/* Fourth part: derivatives of a weighted sum of all that is told, by one sweep back through the steps
   of a recorded run (discrete adjoints; Hairer, Norsett and Wanner, Solving Ordinary Differential
   Equations I, II.6). They are those of the very steps that were taken, as forward ones are: the same
   Jacobians, transposed. A sweep costs the same whatever the number of unknowns. */

typedef struct {
  const double *q;
  const Tape *tape;
  const double *weights; /* (n_times, N_H) */
  double *by_node;       /* (intervals, N_X) by where each interval begins, all later ones included */
  double *by_q;          /* (N_Q) */
} Sweep;

/* to += M' v; what does not count is 0 even times infinity. */
#define TRANSPOSED(M, entries, v, to) \
  for (int m = 0; m < M##_N; m++) \
    if ((v)[M##_ROW[m]] != 0) (to)[M##_COL[m]] += entries[m] * (v)[M##_ROW[m]]

/* Solve with the transpose of what was factorised, in place. */
static void solve_transposed(const Run *r, double *v) {
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

/* to += by the state that was told at time `row`. */
static void untell(Run *r, const Sweep *s, long long row, double *to) {
  const Plan *p = r->plan;
  const double *w = s->weights + row * N_H;
  const double *arg[ARG] = {p->times + row, s->tape->states + row * N_X, r->q,
                            p->row_inputs + row * 2 * N_U, p->numbers};
  double *res[RES] = {r->h, r->hx, r->hq};
  igpe_tolds(arg, res, r->iw, r->w, 0);
  TRANSPOSED(HX, r->hx, w, to);
  TRANSPOSED(HQ, r->hq, w, s->by_q);
}

/* Step n: from the derivative by the state where it ends to that by the one where it begins.

   Backwards through X_i = x + h sum_j a_ij k_j, k_i = f(X_i), the last X_i being the end. `k` are the
   derivatives by the slopes, `x` by the beginning, `stage` by X_i. */
static int step_back(Run *r, const Sweep *s, long long n, double *by_state) {
  const double *step = s->tape->steps + n * (2 + STAGES * N_X), t = step[0], h = step[1];
  const long long *kind = s->tape->kinds + 4 * n;
  const int implicit = (int)kind[0], stages = implicit ? KC_STAGES : DP_STAGES;
  double k[STAGES][N_X] = {{0}}, x[N_X] = {0}, stage[N_X];
  r->ab = r->plan->inputs + kind[1] * 2 * N_U;
  for (long long row = kind[2]; row < kind[3]; row++) {
    double told[N_X] = {0}, share = (r->plan->times[row] - t) / h;
    untell(r, s, row, told);
    for (int i = 0; i < N_X; i++) x[i] += told[i];
    for (int j = 0; j < stages; j++) {
      const double *d = implicit ? KC_D[j] : DP_D[j];
      double w = h * share * (d[0] + share * (d[1] + share * (d[2] + share * d[3])));
      for (int i = 0; i < N_X; i++) k[j][i] += w * told[i];
    }
  }
  for (int j = stages - 1; j >= 0; j--) {
    const double *a = implicit ? KC_A[j] : DP_A[j];
    for (int i = 0; i < N_X; i++) stage[i] = j == stages - 1 ? by_state[i] : 0;
    if (a[j] != 0)
      for (int i = 0; i < N_X; i++) k[j][i] += h * a[j] * stage[i];
    int counts = 0;
    for (int i = 0; i < N_X; i++) counts |= k[j][i] != 0;
    if (counts) {
      slopes_at(r, t + (implicit ? KC_C[j] : DP_C[j]) * h, step + 2 + j * N_X);
      if (a[j] != 0) {
        if (!factorise(r, h * a[j])) return 0;
        solve_transposed(r, k[j]);
      }
      TRANSPOSED(FX, r->fx, k[j], stage);
      TRANSPOSED(FQ, r->fq, k[j], s->by_q);
    }
    for (int i = 0; i < N_X; i++) x[i] += stage[i];
    for (int l = 0; l < j; l++)
      for (int i = 0; i < N_X; i++) k[l][i] += h * a[l] * stage[i];
  }
  memcpy(by_state, x, sizeof x);
  return 1;
}

/* The sweep, from the last interval to the first; nodes hand on what comes to them. */
CASADI_SYMBOL_EXPORT int igpe_back(const Plan *p, const Sweep *s) {
  Run *r = malloc(sizeof(Run));
  if (!r) return MEMORY;
  double by_state[N_X] = {0};
  int ok = 1;
  r->plan = p, r->q = s->q;
  for (int j = 0; j < N_Q; j++) s->by_q[j] = 0;
  for (long long k = p->intervals - 1; ok && k >= 0; k--) {
    const long long first = s->tape->first[k];
    for (long long n = s->tape->first[k + 1] - 1; ok && n >= first; n--)
      ok = step_back(r, s, n, by_state);
    for (long long row = p->rows[k]; row < s->tape->kinds[4 * first + 2]; row++)
      untell(r, s, row, by_state);
    memcpy(s->by_node + k * N_X, by_state, sizeof by_state);
  }
  free(r);
  return ok ? DONE : NO_NUMBER;
}
