/* Fifth part: derivatives of a weighted sum of all outputs, by one sweep back through the steps
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
static void transposed(long n, const int *rows, const int *columns, const double *m, const double *v,
                       double *to) {
  for (long i = 0; i < n; i++) add_transposed(i, rows[i], columns[i], m, v, to);
}

/* to += by the state at time `row`, of which outputs are. */
static void outputs_back(Run *r, const Sweep *s, long long row, double *to) {
  SIZED(r);
  const Plan *p = r->plan;
  const Map *outputs = p->outputs;
  const long n_y = (long)r->model->implicit;
  const double *w = s->weights + row * outputs->size, *x = s->tape->states + row * (N_X + n_y);
  const double *inputs = p->row_inputs + row * 2 * r->model->inputs;
  const double *arg[6] = {p->times + row, x, r->q, inputs, outputs->numbers, r->near_outputs};
  double *res[3] = {r->map_h, r->hx, r->hq};
  if (n_y) began_near(r->near_outputs, x + N_X, n_y);
  outputs->both(arg, res, r->map_iw, r->map_w, 0);
  for (long m = 0; m < outputs->x_entries; m++)
    add_transposed(m, (long)outputs->x_row[m], (long)outputs->x_col[m], r->hx, w, to);
  for (long m = 0; m < outputs->q_entries; m++)
    add_transposed(m, (long)outputs->q_row[m], (long)outputs->q_col[m], r->hq, w, s->by_q);
}

/* Step n: from the derivative by the state where it ends to that by the one where it begins.

   Backwards through X_i = x + h sum_j a_ij k_j, k_i = f(X_i), the last X_i being the end. `k` are the
   derivatives by the slopes, `x` by the beginning, `stage` by X_i. */
static int step_back(Run *r, const Sweep *s, long long n, double *by_state) {
  SIZED(r);
  const Model *m = r->model;
  const long n_y = (long)m->implicit, length = 2 + STAGES * N_X + n_y;
  const double *step = s->tape->steps + n * length, t = step[0], h = step[1];
  const long long *kind = s->tape->kinds + 4 * n;
  const int implicit = (int)kind[0], stages = implicit ? KC_STAGES : DP_STAGES;
  double k[STAGES][N_X], x[N_X], stage[N_X], by_outputs[N_X];
  memset(k, 0, sizeof k), memset(x, 0, sizeof x);
  r->ab = r->plan->inputs + kind[1] * 2 * m->inputs;
  for (long long row = kind[2]; row < kind[3]; row++) {
    const double share = (r->plan->times[row] - t) / h;
    memset(by_outputs, 0, sizeof by_outputs);
    outputs_back(r, s, row, by_outputs);
    for (int i = 0; i < N_X; i++) x[i] += by_outputs[i];
    for (int j = 0; j < stages; j++) {
      const double *d = implicit ? KC_D[j] : DP_D[j];
      double w = h * share * (d[0] + share * (d[1] + share * (d[2] + share * d[3])));
      axpy(k[j], w, by_outputs, N_X);
    }
  }
  for (int j = stages - 1; j >= 0; j--) {
    const double *a = implicit ? KC_A[j] : DP_A[j];
    for (int i = 0; i < N_X; i++) stage[i] = j == stages - 1 ? by_state[i] : 0;
    if (a[j] != 0) axpy(k[j], h * a[j], stage, N_X);
    int counts = 0;
    for (int i = 0; i < N_X; i++) counts |= k[j][i] != 0;
    if (counts) {
      if (n_y) began_near(r->near, step + length - n_y, n_y);
      slopes_at(r, t + (implicit ? KC_C[j] : DP_C[j]) * h, step + 2 + j * N_X, 0);
      if (a[j] != 0) {
        if (!factorise(r, 0, h * a[j])) return 0;
        solve_transposed(r, 0, k[j]);
      }
      transposed(m->fx_n, m->fx_row, m->fx_col, r->fx[0], k[j], stage);
      transposed(m->fq_n, m->fq_row, m->fq_col, r->fq[0], k[j], s->by_q);
    }
    for (int i = 0; i < N_X; i++) x[i] += stage[i];
    for (int l = 0; l < j; l++) axpy(k[l], h * a[l], stage, N_X);
  }
  memcpy(by_state, x, sizeof x);
  return 1;
}

/* The break where piece i begins: from the derivative by the state after it to that by the one before. */
static void jump_back(Run *r, const Sweep *s, long long i, double *by_state) {
  SIZED(r);
  const Map *h = r->plan->breaks[i];
  const double *x = s->tape->jumped + i * N_X, t = r->plan->edges[2 * i];
  const double *ab = r->plan->inputs + i * 2 * r->model->inputs;
  const double *arg[5] = {&t, x, r->q, ab, h->numbers};
  double *res[3] = {r->map_h, r->hx, r->hq};
  double by[N_X + 1], before[N_X]; /* by: of what the break gives, its time last */
  int moves = 0;
  h->both(arg, res, r->map_iw, r->map_w, 0);
  memset(before, 0, sizeof before);
  copy(by, by_state, N_X), by[N_X] = 0;
  for (long m = 0; m < h->x_entries; m++)
    add_transposed(m, (long)h->x_row[m], (long)h->x_col[m], r->hx, by, before);
  for (long m = 0; m < h->q_entries; m++) moves |= h->q_row[m] == N_X && r->hq[m] != 0;
  if (moves) {
    r->ab = ab - 2 * r->model->inputs, slope_at(r, t, x);
    for (int j = 0; j < N_X; j++) by[N_X] += before[j] * r->f[j];
    r->ab = ab, slope_at(r, t, r->map_h);
    for (int j = 0; j < N_X; j++) by[N_X] -= by_state[j] * r->f[j];
  }
  for (long m = 0; m < h->q_entries; m++)
    add_transposed(m, (long)h->q_row[m], (long)h->q_col[m], r->hq, by, s->by_q);
  copy(by_state, before, N_X);
}

/* The sweep, from the last interval to the first; nodes hand on what comes to them. */
int igpe_back(const Plan *p, const Sweep *s) {
  SIZED(p);
  const Batch none = {.q = s->q};
  Run *r = calloc(1, sizeof(Run));
  if (!r || !ready(r, p, &none)) {
    freed(r);
    return MEMORY;
  }
  double by_state[N_X];
  int ok = 1;
  memset(by_state, 0, sizeof by_state);
  for (long j = 0; j < p->outputs->unknowns; j++) s->by_q[j] = 0;
  for (long long k = p->intervals - 1; ok && k >= 0; k--) {
    const long long *kind = s->tape->kinds;
    long long n = s->tape->first[k + 1] - 1;
    for (long long i = p->first[k + 1] - 1; ok && i >= p->first[k]; i--) {
      long long row = i > p->first[k] ? p->until[i - 1] : p->rows[k], end = p->until[i];
      for (; ok && n >= s->tape->first[k] && kind[4 * n + 1] == i; n--)
        ok = step_back(r, s, n, by_state), end = kind[4 * n + 2];
      for (; row < end; row++) outputs_back(r, s, row, by_state);
      if (ok && p->breaks[i]) jump_back(r, s, i, by_state);
    }
    memcpy(s->by_node + k * N_X, by_state, sizeof by_state);
  }
  freed(r);
  return ok ? DONE : NO_NUMBER;
}
