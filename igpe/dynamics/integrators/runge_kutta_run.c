/* Fourth part: step control, and the run over all intervals.

   Step control and first step are those of Hairer, Norsett and Wanner, Solving Ordinary Differential
   Equations I (II.4, II.6) and II (IV.2). The error is the largest of all states and derivatives: on
   the slow manifold of stiff equations the states alone do not see that the derivatives explode. */

#define CONSTANT 1e-3 /* of the error: a step h has about CONSTANT h d1 (h d2 / d1)^(order - 1) */

/* A first step, whose error should be about a tolerance if slopes of d1 go on changing at the rate
   d2 / d1; at least what a few orders less would allow, for starts where all is at rest. */
static double first_step(Run *r, double t, double span, double order) {
  double *y = r->stage, *k = r->k[1];
  double size = in_tolerances(r, r->x, r->x, r->x);
  double d1 = span * in_tolerances(r, r->k[0], r->x, r->x);
  double h = 0.01 * size / d1;
  h = size > 1e-5 && h < 1 ? h : 1e-6; /* next to a rest slopes tell no time: not beyond what comes */
  for (long i = 0; i < r->N; i++) y[i] = r->x[i] + h * span * r->k[0][i];
  slopes(r, 1, t + h * span, y);
  for (long i = 0; i < r->N; i++) y[i] = k[i] - r->k[0][i];
  double d2 = span * in_tolerances(r, y, r->x, r->x) / h;
  if (!(d2 < HUGE_VAL)) return 1e-3 * h * span;
  if (!(d2 > 0)) return span;
  double least = pow(0.01 / (d1 > d2 ? d1 : d2), 1 / order);
  h = d1 > 0 ? d1 / d2 * pow(d2 / d1 / d1 / CONSTANT, 1 / order) : 0;
  h = h > least ? h : least;
  return (h < 1 ? h : 1) * span;
}

#define LISTEN 256 /* steps between questions whether to stop, which cost some microseconds */

/* What an interval has come to. */

typedef struct {
  long long steps, since; /* since the last jump of a state; and since an output, or jump of an input */
  long long next, outcome[4];  /* next: the next time of measurement; outcome: as in Batch */
  double t, h;                    /* h = 0 where nothing is known of the step */
  int implicit;
  int suspect, patience; /* looks at which steps seemed stiff, and how many make for a trial */
} Course;

static int too_large(const Run *r, const double *x) {
  for (int i = 0; i < r->model->states; i++)
    if (fabs(x[i]) > r->plan->most[i]) return i + 1;
  return 0;
}

/* When the implicit pair is worth a trial: a step of it, LONGER times the explicit one, that replaces
   the explicit pair if its error allows. What is tried is what counts: at tight tolerances stiffness
   makes explicit steps short by their errors, well before they are unstable. */
#define EVERY 4     /* explicit steps from one look to the next */
#define FAST 0.5    /* |h lambda| of the fastest mode from which a step seems stiff */
#define SURE 2      /* so many more looks that seem stiff than others make for the first trial; a */
                    /* trial that fails doubles them */
#define LONGER 3.0  /* an implicit step costs about two or three explicit ones */
#define WORTH 8     /* explicit steps that must be left for a change to pay */

/* The rate of the fastest mode, about: a power iteration that goes on where it stopped. */
static double fastest(Run *r) {
  SIZED(r);
  const Model *m = r->model;
  const double *size = r->plan->size;
  double rate = 0, v[N_X];
  for (int n = 0; n < 2; n++) {
    for (int i = 0; i < N_X; i++) v[i] = 0;
    rate = 0;
    for (int l = 0; l < m->fx_n; l++) v[m->fx_row[l]] += r->fx[0][l] * r->fast[m->fx_col[l]];
    for (int i = 0; i < N_X; i++) rate = fabs(v[i]) > rate * size[i] ? fabs(v[i]) / size[i] : rate;
    int usable = rate > 0 && rate < HUGE_VAL && finite_all(v, N_X);
    for (int i = 0; i < N_X; i++) r->fast[i] = usable ? v[i] / rate : size[i];
  }
  return rate;
}

/* Whether to try the implicit pair after an explicit step of h to t. */
static int seems_stiff(Run *r, Course *c, double t, double h) {
  if (!r->at_x) slopes_at(r, t, r->x, 0);
  r->at_x = 1;
  c->suspect += h * fastest(r) > FAST ? 1 : c->suspect > 0 ? -1 : 0;
  if (c->suspect < c->patience) return 0;
  c->suspect = 0;
  return 1;
}

/* A step of h that was taken, and its times from row `first` on. */
static void record(Run *r, Tape *tape, const Course *c, double h, long long first) {
  SIZED(r);
  const long long n = tape->count++;
  if (n < tape->room) {
    const long long kind[4] = {c->implicit, r->piece, first, c->next};
    const long n_y = (long)r->model->implicit;
    double *step = tape->steps + n * (2 + STAGES * N_X + n_y);
    memcpy(tape->kinds + 4 * n, kind, sizeof kind);
    step[0] = c->t, step[1] = h;
    memcpy(step + 2, r->seen, sizeof(double) * STAGES * N_X);
    copy(step + 2 + STAGES * N_X, r->near_x, n_y);
  }
}

/* The next step begins where this one ended: its first slope is the last of this one, with its Jacobian. */
static void advance(Run *r, int implicit) {
  SIZED(r);
  const int last = (implicit ? KC_STAGES : DP_STAGES) - 1;
  double *slope = r->k[0], *fx = r->fx[0], *fq = r->fq[0], *x = r->x;
  r->k[0] = r->k[last], r->k[last] = slope;
  r->x = r->end, r->end = x;
  r->at_x = r->lanes && (implicit || !r->few);
  if (r->at_x) {
    r->fx[0] = r->fx[last], r->fx[last] = fx;
    r->fq[0] = r->fq[last], r->fq[last] = fq;
  }
  copy(r->seen, r->seen + last * N_X, N_X);
}

/* From c->t to `end` without a jump between, telling the times before row `rows`. */
static int piece(Run *r, const Batch *b, Course *c, double end, long long rows) {
  const Plan *p = r->plan;
  const double least = 1e-300 + 4e-16 * (end - c->t);
  double before = 1e-4;
  int rejected = 0, trial = 0;
  double explicit_h = 0;
  if (end <= c->t) return DONE; /* nothing but the start is asked for */
  slopes(r, 0, c->t, r->x), copy(r->seen, r->x, r->model->states);
  r->at_x = r->lanes && !r->few;
  copy(r->near_x, r->near, nearby(r->model));
  for (int i = 0; i < r->model->implicit; i++) { /* inputs may have jumped to where another root is meant */
    const double z = r->near[i], slack = SLACK * (fabs(z) > 1 ? fabs(z) : 1);
    if (z < p->lower[i] - slack || z > p->upper[i] + slack) return NO_NUMBER;
  }
  if (!c->h) c->h = first_step(r, c->t, end - c->t, c->implicit ? 4 : 5);
  while (c->t < end) {
    if (c->since++ >= p->max_steps || c->steps++ >= p->most_steps) return STEPS;
    if (++r->tried % LISTEN == 0 && p->stopped()) return STOPPED;
    copy(r->near, r->near_x, nearby(r->model));
    if (trial) c->implicit = 1, explicit_h = c->h, c->h *= LONGER;
    int ends = c->t + 1.01 * c->h >= end;
    double h = ends ? end - c->t : c->h, t = ends ? end : c->t + h;
    double order = c->implicit ? 0.25 : 0.2, expo = 0.85 * order;
    double error = c->implicit ? implicit_step(r, c->t, h, t) : explicit_step(r, c->t, h, t);
    if (trial && !(error <= 1)) {
      c->implicit = trial = 0, c->h = explicit_h, c->patience *= 2;
      continue;
    }
    trial = 0;
    if (!(error <= 1)) {
      double less = error < HUGE_VAL ? 0.9 / pow(error, expo) : 0.2;
      c->h = h * (less > 0.2 ? less : 0.2);
      rejected = 1;
      if (c->t + 0.1 * c->h <= c->t || c->h < least)
        return error < HUGE_VAL ? TOO_SMALL : NO_NUMBER;
      continue;
    }
    if ((c->outcome[1] = too_large(r, r->end))) {
      c->t = t;
      return LARGE;
    }
    const long long first = c->next;
    for (; c->next < rows && p->times[c->next] <= t; c->next++, c->since = 0) {
      between(r, h, (p->times[c->next] - c->t) / h, c->implicit, r->stage);
      write_outputs(r, b, c->next, r->stage);
    }
    if (b->tape) record(r, b->tape, c, h, first);
    c->outcome[2 + c->implicit]++;
    c->t = t;
    copy(r->near_x, r->near, nearby(r->model));
    advance(r, c->implicit);
    double wanted = 0.9 * pow(before, 0.2 * order) / pow(error > 1e-10 ? error : 1e-10, expo);
    wanted = wanted > 10 ? 10 : wanted < 0.2 ? 0.2 : wanted;
    double next = h * (rejected && wanted > 1 ? 1 : wanted);
    c->h = ends && next < c->h ? c->h : next; /* a step cut by the end says little */
    before = error > 1e-4 ? error : 1e-4;
    rejected = 0;
    if (!c->implicit && p->pair == BY_STIFFNESS && c->outcome[2] % EVERY == 0 && end - t > WORTH * h)
      trial = seems_stiff(r, c, t, h);
  }
  return DONE;
}

/* Which rows of q are not 0 in a panel, if they are few: others move nothing. */
static void list_rows(Run *r, long p) {
  SIZED(r);
  const int *FQ_BEGIN = r->model->fq_begin;
  const long w = width(r, p);
  const double *by = r->by + 8 * N_Q * p;
  long count = 0, entries = 0;
  for (int j = 0; j < N_Q; j++) {
    int moves = 0;
    for (long l = 0; l < w; l++) moves |= by[j * w + l] != 0;
    if (moves) r->moves[N_Q * p + count++] = j, entries += FQ_BEGIN[j + 1] - FQ_BEGIN[j];
  }
  r->count[p] = 2 * entries > r->model->fq_n ? -1 : (int)count;
}

/* The state at the start, its directions, and how large each number counts. */
static void begin(Run *r, const Batch *b, long long k) {
  SIZED(r);
  const long n_d = r->directions, n_q = moving(r->plan, b);
  const double *start = b->starts + k * N_X, *size = r->plan->size;
  const double *along = b->chained ? r->carried : b->along;
  if (along && !b->chained) along += k * (N_X + n_q) * n_d;
  r->along = along ? along + N_X * n_d : 0;
  const long n_y = (long)r->model->implicit;
  if (n_y) began_near(r->near, b->implicit + k * n_y, n_y);
  for (long i = 0; i < r->N; i++) r->x[i] = 0;
  for (int i = 0; i < N_X; i++) r->x[i] = start[i];
  for (long lane = 0; lane < r->lanes; lane++) {
    const long p = lane / 8, w = width(r, p), l = lane % 8, d = lane < r->pad ? 0 : lane - r->pad;
    double *x = r->x + place(r, p) + l, *by = r->by + 8 * N_Q * p + l;
    double most = 0; /* of the direction, measured by the sizes of states and unknowns */
    for (int i = 0; i < N_X; i++) {
      double v = along ? along[i * n_d + d] : i == d;
      x[i * w] = v;
      most = fabs(v) / size[i] > most ? fabs(v) / size[i] : most;
    }
    for (long j = 0; j < n_q; j++) {
      double v = along ? r->along[j * n_d + d] : N_X + j == d;
      double q = fabs(r->q[j]), nearest = r->plan->nearest[j];
      double relative = fabs(v) / (q > nearest ? q : nearest);
      if (j < N_Q) by[j * w] = v;
      most = relative > most ? relative : most;
    }
    r->most[lane] = most > 0 ? most : 1;
  }
  for (long p = 0; p < panels(r); p++) list_rows(r, p);
}

static int interval(Run *r, const Batch *b, Course *c, long long k) {
  SIZED(r);
  const Plan *p = r->plan;
  begin(r, b, k);
  if (!finite_all(r->x, r->N)) return START;
  for (long long i = p->first[k]; i < p->first[k + 1]; i++) {
    const double *ab = p->inputs + i * 2 * r->model->inputs;
    if (i == p->first[k] || p->breaks[i]) { /* nothing is known of the steps to come */
      c->h = 0, c->implicit = p->pair == IMPLICIT, c->suspect = 0, c->patience = SURE, c->steps = 0;
      copy(r->fast, p->size, N_X);
      r->rate = 1;
    }
    if (b->tape) copy(b->tape->jumped + i * N_X, r->x, N_X);
    if (p->breaks[i] && !jump(r, p->breaks[i], c->t, ab)) return JUMPED;
    r->ab = ab, r->piece = i, c->since = 0;
    for (; c->next < p->until[i] && p->times[c->next] <= c->t; c->next++) write_outputs(r, b, c->next, r->x);
    int ended = piece(r, b, c, p->edges[2 * i + 1], p->until[i]);
    if (ended != DONE) return ended;
  }
  copy(b->ends + k * N_X, r->x, N_X);
  unfold(r, r->x, b->ends_by + k * N_X * r->directions);
  return DONE;
}

/* The directions of the next interval: where those of interval k ended, the gap, and the probe. */
static void carry(Run *r, const Batch *b, long long k) {
  SIZED(r);
  const long long n_d = b->directions, last = n_d - 1 - b->probed;
  memcpy(r->carried, b->ends_by + k * N_X * n_d, sizeof(double) * N_X * (size_t)n_d);
  for (int i = 0; i < N_X; i++) {
    const long long next = (k + 1) * N_X + i;
    const double gap = b->gaps ? b->gaps[next] : b->ends[k * N_X + i] - b->starts[next];
    if (last >= 0) r->carried[i * n_d + last] += gap;
    if (b->probed) r->carried[i * n_d + n_d - 1] = b->along[i * n_d + n_d - 1];
  }
}

/* No number at the end of an interval, and at times from `next`. */
static void nothing(const Plan *p, const Batch *b, long long k, long long next) {
  SIZED(p);
  const long long n_d = b->directions, n_h = p->outputs->size, rows[2] = {next, p->rows[k + 1]};
  const long long width = n_d + (b->rest ? p->outputs->unknowns - N_Q : 0);
  for (long long i = k * N_X; i < (k + 1) * N_X; i++) b->ends[i] = NAN;
  for (long long i = k * N_X * n_d; i < (k + 1) * N_X * n_d; i++) b->ends_by[i] = NAN;
  for (long long i = rows[0] * n_h; i < rows[1] * n_h; i++) b->measured[i] = NAN;
  for (long long i = rows[0] * n_h * width; n_d && i < rows[1] * n_h * width; i++)
    b->measured_by[i] = NAN;
  if (!b->states) return;
  for (long long i = rows[0] * N_X; i < rows[1] * N_X; i++) b->states[i] = NAN;
  for (long long i = rows[0] * N_X * n_d; i < rows[1] * N_X * n_d; i++) b->states_by[i] = NAN;
}

/* Integrate all intervals; what one that broke down did not reach is not a number. */
int igpe_intervals(const Plan *p, const Batch *b) {
  Run *r = calloc(1, sizeof(Run));
  const int ok = r && ready(r, p, b);
  int broken = 0;
  for (long long k = 0; k < p->intervals; k++) {
    Course c = {0, 0, p->rows[k], {MEMORY}, p->edges[2 * p->first[k]], 0, 0, 0, 0};
    if (b->tape) b->tape->first[k] = b->tape->count;
    if (ok) c.outcome[0] = broken ? BEFORE : interval(r, b, &c, k);
    if (c.outcome[0] != DONE) nothing(p, b, k, c.next);
    broken = b->chained && c.outcome[0] != DONE;
    if (b->chained && !broken && k + 1 < p->intervals) carry(r, b, k);
    memcpy(b->outcome + 4 * k, c.outcome, sizeof c.outcome);
    b->reached[k] = c.t;
  }
  if (b->tape) b->tape->first[p->intervals] = b->tape->count;
  freed(r);
  return ok ? DONE : MEMORY;
}
