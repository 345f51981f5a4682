/* Fifth part: derivatives of a weighted sum of all that is told, by one sweep back through the steps
   of a recorded run (discrete adjoints; Hairer, Norsett and Wanner, Solving Ordinary Differential
   Equations I, II.6). They are those of the very steps that were taken, as forward ones are: the same
   Jacobians, transposed. A sweep costs the same whatever the number of unknowns. */

typedef struct {
  const double *q;
  const Tape *tape;
  const double *weights; /* (n_times, size) of what is measured */
  double *by_node;       /* (intervals, N_X) by where each interval begins, all later ones included */
  double *by_q;          /* (unknowns) */
} Sweep;

/* to += M' v; what does not count is 0 even times infinity. */
INLINE void add_transposed(long entry, long row, long col, const double *m, const double *v,
                           double *to) {
  if (v[row] != 0) to[col] += m[entry] * v[row];
}
#define TRANSPOSED(M, entries, v, to) \
  for (int m = 0; m < M##_N; m++) add_transposed(m, M##_ROW[m], M##_COL[m], entries, v, to)

/* to += by the state that was told at time `row`. */
static void untell(Run *r, const Sweep *s, long long row, double *to) {
  const Plan *p = r->plan;
  const Told *told = p->told;
  const double *w = s->weights + row * told->size;
  const double *arg[5] = {p->times + row, s->tape->states + row * N_X, r->q,
                          p->row_inputs + row * 2 * N_U, told->numbers};
  double *res[3] = {r->told_h, r->hx, r->hq};
  told->both(arg, res, r->told_iw, r->told_w, 0);
  for (long m = 0; m < told->x_entries; m++)
    add_transposed(m, (long)told->x_row[m], (long)told->x_col[m], r->hx, w, to);
  for (long m = 0; m < told->q_entries; m++)
    add_transposed(m, (long)told->q_row[m], (long)told->q_col[m], r->hq, w, s->by_q);
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
      slopes_at(r, t + (implicit ? KC_C[j] : DP_C[j]) * h, step + 2 + j * N_X, 0);
      if (a[j] != 0) {
        if (!factorise(r, 0, h * a[j])) return 0;
        solve_transposed(r, 0, k[j]);
      }
      TRANSPOSED(FX, r->fx[0], k[j], stage);
      TRANSPOSED(FQ, r->fq[0], k[j], s->by_q);
    }
    for (int i = 0; i < N_X; i++) x[i] += stage[i];
    for (int l = 0; l < j; l++)
      for (int i = 0; i < N_X; i++) k[l][i] += h * a[l] * stage[i];
  }
  memcpy(by_state, x, sizeof x);
  return 1;
}

/* The break where piece i begins: from the derivative by the state after it to that by the one before. */
static void jump_back(Run *r, const Sweep *s, long long i, double *by_state) {
  const Told *h = r->plan->breaks[i];
  const double *x = s->tape->jumped + i * N_X, t = r->plan->edges[2 * i];
  const double *ab = r->plan->inputs + i * 2 * N_U;
  const double *arg[5] = {&t, x, r->q, ab, h->numbers};
  double *res[3] = {r->told_h, r->hx, r->hq};
  double by[N_X + 1] = {0}, before[N_X] = {0}; /* by: of what the break gives, its time last */
  int moves = 0;
  h->both(arg, res, r->told_iw, r->told_w, 0);
  memcpy(by, by_state, sizeof(double) * N_X);
  for (long m = 0; m < h->x_entries; m++)
    add_transposed(m, (long)h->x_row[m], (long)h->x_col[m], r->hx, by, before);
  for (long m = 0; m < h->q_entries; m++) moves |= h->q_row[m] == N_X && r->hq[m] != 0;
  if (moves) {
    r->ab = ab - 2 * N_U, slope_at(r, t, x);
    for (int j = 0; j < N_X; j++) by[N_X] += before[j] * r->f[j];
    r->ab = ab, slope_at(r, t, r->told_h);
    for (int j = 0; j < N_X; j++) by[N_X] -= by_state[j] * r->f[j];
  }
  for (long m = 0; m < h->q_entries; m++)
    add_transposed(m, (long)h->q_row[m], (long)h->q_col[m], r->hq, by, s->by_q);
  memcpy(by_state, before, sizeof before);
}

/* The sweep, from the last interval to the first; nodes hand on what comes to them. */
CASADI_SYMBOL_EXPORT int igpe_back(const Plan *p, const Sweep *s) {
  Run *r = calloc(1, sizeof(Run));
  if (!r || !made_room(r, p) || !(r->memory = malloc(sizeof(double) * (FX_N + FQ_N + 2)))) {
    freed(r);
    return MEMORY;
  }
  double by_state[N_X] = {0};
  int ok = 1;
  r->plan = p, r->q = s->q;
  r->fx[0] = r->memory, r->fq[0] = r->memory + FX_N + 1;
  for (long j = 0; j < p->told->unknowns; j++) s->by_q[j] = 0;
  for (long long k = p->intervals - 1; ok && k >= 0; k--) {
    const long long *kind = s->tape->kinds;
    long long n = s->tape->first[k + 1] - 1;
    for (long long i = p->first[k + 1] - 1; ok && i >= p->first[k]; i--) {
      long long row = i > p->first[k] ? p->until[i - 1] : p->rows[k], end = p->until[i];
      for (; ok && n >= s->tape->first[k] && kind[4 * n + 1] == i; n--)
        ok = step_back(r, s, n, by_state), end = kind[4 * n + 2];
      for (; row < end; row++) untell(r, s, row, by_state);
      if (ok && p->breaks[i]) jump_back(r, s, i, by_state);
    }
    memcpy(s->by_node + k * N_X, by_state, sizeof by_state);
  }
  freed(r);
  return ok ? DONE : NO_NUMBER;
}
