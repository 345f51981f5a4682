/* Fifth part: derivatives of weighted sums of outputs, by one sweep back through the steps of a
   recorded run (discrete adjoints; Hairer, Norsett and Wanner, Solving Ordinary Differential
   Equations I, II.6). They are those of the very steps that were taken, as forward ones are: the same
   Jacobians, transposed. A sweep costs the same whatever the number of unknowns.

   Sums stand in panels, rows of up to eight side by side, one for each state (a single sum: of one).
   Jacobians and factors of a step are made once for all panels. Sums of later times come first, so
   that those which begin at earlier times cost nothing until then. */

#define WIDTH 8   /* sums in a panel */
#define LISTEN 64 /* steps between questions whether to stop */

typedef struct {
  const double *q;
  const Tape *tape;
  long long sums;
  const double *weights;  /* (n_times, size) of what is measured */
  const long long *which; /* (n_times, size) to which sum each counts */
  double *by_node;        /* (intervals, N_X, sums) by where each interval begins, all later included */
  double *by_q;           /* (unknowns, sums) */
} Sweep;

/* Work of a sweep, of one panel at a time.
   live: panels in which a sum has begun; seeds: what outputs inside a step add to the derivatives by the
   slopes of its stages, k; stage: those by the states of these; done: 1 where Jacobians are made, 2 where
   all their numbers are finite; model: with the transposed Jacobian f_x, whose entry n is f_x's at[n] */
typedef struct {
  Run *r;
  const Sweep *s;
  Model model;
  long panels, live;
  double *memory, *state, *by_q, *seeds, *k, *stage, *entries;
  int done[STAGES], *places, *at, *fq_rows; /* fq_rows: rows of f_q's entries by unknowns */
} Back;

INLINE long row_of(const Back *b, long p) {
  return b->s->sums == 1 ? 1 : b->s->sums - WIDTH * p > 4 ? WIDTH : 4;
}

/* to += a v, rows of w numbers; what does not count is 0 even times infinity. */
INLINE void add_row(double *to, double a, const double *v, const long w) {
  for (long l = 0; l < w; l++)
    if (v[l] != 0) to[l] += a * v[l];
}

/* Add rows of M' v, with rows of w numbers. M has entries m; those of its column i, from first[i] on, are
   the at[n]-th ones, in rows[n]. */
INLINE void products_back(const double *m, const int *first, const int *at, const int *rows, const int count,
                          const double *v, double *to, const long w, const int finite) {
  for (int i = 0; i < count; i++, to += w) {
    Four one = {0}, other = {0};
    double single = 0;
    for (int n = first[i]; n < first[i + 1]; n++) {
      const double a = m[at[n]], *row = v + rows[n] * w;
      if (!finite) add_row(to, a, row, w);
      else if (w == 1) single += a * *row;
      else one += a * *(const Four *)row;
      if (finite && w == 8) other += a * *(const Four *)(row + 4);
    }
    if (w == 1) *to += single;
    else *(Four *)to += one;
    if (w == 8) *(Four *)(to + 4) += other;
  }
}

/* Whether all are numbers. */
INLINE int numbers(const double *v, const long n) {
  Four sums = {0};
  long i = 0;
  for (; i + 4 <= n; i += 4) sums += 0 * *(const Four *)(v + i);
  for (; i < n; i++) sums[0] += 0 * v[i];
  return sums[0] + sums[1] + sums[2] + sums[3] == 0;
}

/* Whether one is not 0. */
INLINE int any(const double *v, const long n) {
  for (long i = 0; i < n; i++)
    if (v[i] != 0) return 1;
  return 0;
}

/* Which of its sums panel p has at time `row`: from the first one, how many; notes that they have begun. */
static int counts(Back *b, long long row, long p) {
  const long size = (long)b->r->plan->outputs->size;
  int some = 0;
  for (long long m = row * size; m < (row + 1) * size; m++)
    some |= b->s->weights[m] != 0 && b->s->which[m] / WIDTH == p;
  return some;
}
static void begun(Back *b, long long row) {
  const long size = (long)b->r->plan->outputs->size;
  for (long long m = row * size; m < (row + 1) * size; m++)
    if (b->s->weights[m] != 0 && b->s->which[m] / WIDTH >= b->live) b->live = (long)(b->s->which[m] / WIDTH) + 1;
}

/* Add the outputs at time `row`, in panel p, to derivatives by the state there, `state`, which is that
   at the beginning of a step and `share` of the stages' slopes (`count` of them, with weights d). */
static void outputs_back(Back *b, long long row, long p, double *state, int count, const double *d) {
  Run *r = b->r;
  SIZED(r);
  const Sweep *s = b->s;
  const Plan *plan = r->plan;
  const Map *h = plan->outputs;
  const long n_y = (long)r->model->implicit, w = row_of(b, p);
  const double *x = s->tape->states + row * (N_X + n_y), *inputs = plan->row_inputs + row * 2 * r->model->inputs;
  const double *weights = s->weights + row * h->size;
  const long long *which = s->which + row * h->size;
  const double *arg[6] = {plan->times + row, x, r->q, inputs, h->numbers, r->near_outputs};
  double *res[3] = {r->map_h, r->hx, r->hq}, *by_q = b->by_q + p * WIDTH * h->unknowns;
  if (!counts(b, row, p)) return;
  if (n_y) began_near(r->near_outputs, x + N_X, n_y);
  h->both(arg, res, r->map_iw, r->map_w, 0);
  for (long m = 0; m < h->x_entries; m++) {
    const long long of = h->x_row[m], place = h->x_col[m] * w + which[of] % WIDTH;
    if (weights[of] == 0 || which[of] / WIDTH != p) continue;
    const double v = r->hx[m] * weights[of];
    state[place] += v;
    for (int j = 0; j < count; j++) b->seeds[j * N_X * w + place] += d[j] * v;
  }
  for (long m = 0; m < h->q_entries; m++) {
    const long long of = h->q_row[m];
    if (weights[of] != 0 && which[of] / WIDTH == p)
      by_q[h->q_col[m] * w + which[of] % WIDTH] += r->hq[m] * weights[of];
  }
}

/* The Jacobians at stage j of a step, and the factors for a diagonal entry a; 0 if these are singular. */
static int stage_ready(Back *b, const double *step, int j, double time, double a) {
  Run *r = b->r;
  SIZED(r);
  const Model *m = r->model;
  double *made = r->fx[j];
  if (b->done[j]) return 1;
  if (m->implicit) began_near(r->near, step + 2 + STAGES * N_X, (long)m->implicit);
  slopes_at(r, step[0] + time * step[1], step + 2 + j * N_X, j);
  b->done[j] = 1 + (numbers(made, (long)m->fx_n) && numbers(r->fq[j], (long)m->fq_n));
  if (a == 0) return 1;
  for (long n = 0; n < m->fx_n; n++) b->entries[n] = made[b->at[n]];
  r->fx[j] = b->entries;
  const int ok = factorise(r, j, step[1] * a);
  r->fx[j] = made;
  return ok;
}

/* Step n in panel p: from the derivatives by the state where it ends to those by the one where it begins.

   Backwards through X_i = x + h sum_j a_ij k_j, k_i = f(X_i), the last X_i being the end. */
INLINE int panel_back(Back *b, long long n, long p, const long w) {
  Run *r = b->r;
  SIZED(r);
  const Model *m = r->model;
  const long size = N_X * w, length = 2 + STAGES * N_X + (long)m->implicit;
  const double *step = b->s->tape->steps + n * length, h = step[1];
  const long long *kind = b->s->tape->kinds + 4 * n;
  const int implicit = (int)kind[0], stages = implicit ? KC_STAGES : DP_STAGES;
  double *state = b->state + p * WIDTH * N_X, *by_q = b->by_q + p * WIDTH * r->plan->outputs->unknowns;
  double *k = b->k, by[STAGES];
  const double ones[STAGES] = {1, 1, 1, 1, 1, 1};
  int seeded = 0;
  for (int j = 0; j < stages; j++) r->k[j] = b->stage + j * size;
  copy(r->k[stages - 1], state, size), memset(state, 0, sizeof(double) * (size_t)size);
  for (long long row = kind[2]; row < kind[3]; row++) {
    const double share = (r->plan->times[row] - step[0]) / h;
    if (!counts(b, row, p)) continue;
    if (!seeded) memset(b->seeds, 0, sizeof(double) * (size_t)(stages * size));
    seeded = 1;
    for (int j = 0; j < stages; j++) {
      const double *d = implicit ? KC_D[j] : DP_D[j];
      by[j] = h * share * (d[0] + share * (d[1] + share * (d[2] + share * d[3])));
    }
    outputs_back(b, row, p, state, stages, by);
  }
  for (int j = stages - 1; j >= 0; j--) {
    const int last = j == stages - 1;
    const double diagonal = implicit ? KC_A[j][j] : DP_A[j][j];
    double *stage = r->k[j], of[STAGES];
    for (int l = 0; l < stages; l++) of[l] = l > j || (l == j && last) ? (implicit ? KC_A[l][j] : DP_A[l][j]) : 0;
    combine(r, k, seeded ? b->seeds + j * size : 0, h, of, stages, 0, size);
    if (!last) memset(stage, 0, sizeof(double) * (size_t)size);
    if (!any(k, size)) continue;
    if (!stage_ready(b, step, j, implicit ? KC_C[j] : DP_C[j], diagonal)) return 0;
    if (diagonal != 0 && w == 1) copy(r->point, k, N_X), solve_one(r, j, r->point, k);
    else if (diagonal != 0) solve(r, j, k, w);
#define ALL_BACK(finite) \
    products_back(r->fx[j], m->fx_first, b->at, m->fx_col, N_X, k, stage, w, finite); \
    products_back(r->fq[j], m->fq_begin, m->fq_at, b->fq_rows, N_Q, k, by_q, w, finite)
    if (b->done[j] > 1) { ALL_BACK(1); } else { ALL_BACK(0); }
  }
  combine(r, k, state, 1, ones, stages - 1, 0, size);
  for (long i = 0; i < size; i++) state[i] = k[i] + r->k[stages - 1][i];
  return 1;
}

HOT static int step_back(Back *b, long long n) {
  const long long *kind = b->s->tape->kinds + 4 * n;
  int ok = 1;
  b->r->ab = b->r->plan->inputs + kind[1] * 2 * b->r->model->inputs;
  memset(b->done, 0, sizeof b->done);
  for (long long row = kind[2]; row < kind[3]; row++) begun(b, row);
  for (long p = 0; ok && p < b->live; p++) {
    const long w = row_of(b, p);
    ok = w == WIDTH ? panel_back(b, n, p, WIDTH) : w == 4 ? panel_back(b, n, p, 4) : panel_back(b, n, p, 1);
  }
  return ok;
}

/* The break where piece i begins: from the derivatives by the state after it to those by the one before. */
static void jump_back(Back *b, long long i) {
  Run *r = b->r;
  SIZED(r);
  const Map *h = r->plan->breaks[i];
  const double *x = b->s->tape->jumped + i * N_X, t = r->plan->edges[2 * i];
  const double *ab = r->plan->inputs + i * 2 * r->model->inputs;
  const double *arg[5] = {&t, x, r->q, ab, h->numbers};
  double *res[3] = {r->map_h, r->hx, r->hq};
  double f[N_X]; /* slopes before */
  int moves = 0;
  h->both(arg, res, r->map_iw, r->map_w, 0);
  for (long m = 0; m < h->q_entries; m++) moves |= h->q_row[m] == N_X && r->hq[m] != 0;
  if (moves) {
    r->ab = ab - 2 * r->model->inputs, slope_at(r, t, x), copy(f, r->f, N_X);
    r->ab = ab, slope_at(r, t, r->map_h);
  }
  for (long p = 0; p < b->live; p++) {
    const long w = row_of(b, p);
    double *state = b->state + p * WIDTH * N_X, *by_q = b->by_q + p * WIDTH * r->plan->outputs->unknowns;
    double *after = b->k, *time = after + N_X * w; /* of what the break gives, its time last */
    memcpy(after, state, sizeof(double) * (size_t)(N_X * w));
    memset(time, 0, sizeof(double) * (size_t)w), memset(state, 0, sizeof(double) * (size_t)(N_X * w));
    for (long m = 0; m < h->x_entries; m++)
      add_row(state + h->x_col[m] * w, r->hx[m], after + h->x_row[m] * w, w);
    for (long l = 0; moves && l < N_X * w; l++) time[l % w] += state[l] * f[l / w] - after[l] * r->f[l / w];
    for (long m = 0; m < h->q_entries; m++)
      add_row(by_q + h->q_col[m] * w, r->hq[m], after + h->q_row[m] * w, w);
  }
}

/* Panels to an array with rows of all sums. */
static void told(const Back *b, const double *from, long n, double *to) {
  const long sums = (long)b->s->sums;
  for (long l = 0; l < sums; l++) {
    const double *panel = from + l / WIDTH * WIDTH * n + l % WIDTH;
    for (long i = 0; i < n; i++) to[i * sums + l] = panel[i * row_of(b, l / WIDTH)];
  }
}

static int made_back(Back *b, const Sweep *s, const Plan *p) {
  SIZED(p);
  const Model *m = p->model;
  const size_t some = (size_t)((s->sums + WIDTH - 1) / WIDTH), one = (size_t)(WIDTH * (N_X + 1));
  const size_t states = WIDTH * N_X * some, unknowns = WIDTH * (size_t)p->outputs->unknowns * some;
  const size_t entries = (size_t)m->fx_n;
  b->s = s, b->panels = (long)some, b->model = *m;
  b->memory = calloc(states + unknowns + (2 * STAGES + 1) * one + entries + 1, sizeof(double));
  b->places = calloc((size_t)(N_X + 1 + m->fq_n) + 3 * entries, sizeof(int));
  if (!b->memory || !b->places) return 0;
  b->state = b->memory, b->by_q = b->state + states, b->k = b->by_q + unknowns, b->seeds = b->k + one;
  b->stage = b->seeds + STAGES * one, b->entries = b->stage + STAGES * one;
  int *first = b->places, *row = first + N_X + 1, *col = row + entries;
  b->at = col + entries, b->fq_rows = b->at + entries;
  for (long n = 0; n < m->fq_n; n++) b->fq_rows[n] = m->fq_row[m->fq_at[n]];
  for (size_t n = 0; n < entries; n++) first[m->fx_col[n] + 1]++;
  for (int i = 0; i < N_X; i++) first[i + 1] += first[i];
  for (size_t n = 0; n < entries; n++) {
    const int to = first[m->fx_col[n]]++;
    b->at[to] = (int)n, row[to] = m->fx_col[n], col[to] = m->fx_row[n];
  }
  for (int i = N_X; i > 0; i--) first[i] = first[i - 1];
  first[0] = 0;
  b->model.fx_first = first, b->model.fx_row = row, b->model.fx_col = col;
  b->r->model = &b->model;
  return 1;
}

/* The sweep, from the last interval to the first; nodes hand on what comes to them. */
int igpe_back(const Plan *p, const Sweep *s) {
  SIZED(p);
  const Batch none = {.q = s->q};
  Back b = {.r = calloc(1, sizeof(Run))};
  int ended = b.r && ready(b.r, p, &none) && made_back(&b, s, p) ? DONE : MEMORY;
  for (long long k = p->intervals - 1; !ended && k >= 0; k--) {
    const long long *kind = s->tape->kinds;
    long long n = s->tape->first[k + 1] - 1;
    for (long long i = p->first[k + 1] - 1; !ended && i >= p->first[k]; i--) {
      long long row = i > p->first[k] ? p->until[i - 1] : p->rows[k], end = p->until[i];
      for (; !ended && n >= s->tape->first[k] && kind[4 * n + 1] == i; n--) {
        ended = n % LISTEN == 0 && p->stopped() ? STOPPED : step_back(&b, n) ? DONE : NO_NUMBER;
        end = kind[4 * n + 2];
      }
      for (; !ended && row < end; row++) {
        begun(&b, row);
        for (long l = 0; l < b.live; l++) outputs_back(&b, row, l, b.state + l * WIDTH * N_X, 0, 0);
      }
      if (!ended && p->breaks[i]) jump_back(&b, i);
    }
    if (!ended) told(&b, b.state, N_X, s->by_node + k * N_X * s->sums);
  }
  if (!ended) told(&b, b.by_q, (long)p->outputs->unknowns, s->by_q);
  freed(b.r), free(b.memory), free(b.places);
  return ended;
}
