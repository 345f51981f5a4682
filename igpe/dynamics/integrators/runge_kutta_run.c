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
  double h = size > 1e-5 && d1 > 1e-5 ? 0.01 * size / d1 : 1e-6;
  h = h < 1 ? h : 1;
  for (long i = 0; i < r->N; i++) y[i] = r->x[i] + h * span * r->k[0][i];
  slopes(r, t + h * span, y, k);
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
  long long steps, since; /* in all, and since the last output or jump of an input */
  long long next, told[4];  /* next: the first time not yet told; told: as in Batch */
  double t, h;                    /* h = 0 where nothing is known of the step */
  int implicit;
  int suspect, patience; /* looks at which steps seemed stiff, and how many make for a trial */
} Course;

static int too_large(const Run *r, const double *x) {
  for (int i = 0; i < N_X; i++)
    if (fabs(x[i * r->columns]) > r->plan->most[i]) return i + 1;
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
  const double *size = r->plan->size;
  double rate = 0;
  for (int n = 0; n < 2; n++) {
    double v[N_X] = {0};
    rate = 0;
    for (int m = 0; m < FX_N; m++) v[FX_ROW[m]] += r->fx[m] * r->fast[FX_COL[m]];
    for (int i = 0; i < N_X; i++) rate = fabs(v[i]) > rate * size[i] ? fabs(v[i]) / size[i] : rate;
    int usable = rate > 0 && rate < HUGE_VAL && finite_all(v, N_X);
    for (int i = 0; i < N_X; i++) r->fast[i] = usable ? v[i] / rate : size[i];
  }
  return rate;
}

/* Whether to try the implicit pair after an explicit step of h to t. */
static int seems_stiff(Run *r, Course *c, double t, double h) {
  if (!r->at_x) gather(r, r->x, r->point), slopes_at(r, t, r->point);
  r->at_x = 1;
  c->suspect += h * fastest(r) > FAST ? 1 : c->suspect > 0 ? -1 : 0;
  if (c->suspect < c->patience) return 0;
  c->suspect = 0;
  return 1;
}

/* A step of h that was taken, and told the times from `told`. The next one's first slope is the last
   of this one, with its Jacobian. */
static void record(Run *r, Tape *tape, const Course *c, double h, long long told) {
  const long long n = tape->count++;
  if (n < tape->room) {
    const long long kind[4] = {c->implicit, r->piece, told, c->next};
    double *step = tape->steps + n * (2 + STAGES * N_X);
    memcpy(tape->kinds + 4 * n, kind, sizeof kind);
    step[0] = c->t, step[1] = h;
    memcpy(step + 2, r->seen, sizeof r->seen);
  }
  const int last = (c->implicit ? KC_STAGES : DP_STAGES) - 1;
  memcpy(r->seen, r->seen + last * N_X, sizeof(double) * N_X);
}

/* From c->t to `end` without a jump between. */
static int piece(Run *r, const Batch *b, Course *c, double end, long long rows) {
  const Plan *p = r->plan;
  const double least = 1e-300 + 4e-16 * (end - c->t);
  double before = 1e-4;
  int rejected = 0, trial = 0;
  double explicit_h = 0;
  if (end <= c->t) return DONE; /* nothing but the start is asked for */
  slopes(r, c->t, r->x, r->k[0]), keep(r, 0);
  r->at_x = 0;
  if (!c->h) c->h = first_step(r, c->t, end - c->t, c->implicit ? 4 : 5);
  while (c->t < end) {
    if (c->since++ >= p->max_steps || c->steps++ >= p->most_steps) return STEPS;
    if (c->steps % LISTEN == 0 && p->stopped()) return STOPPED;
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
    if ((c->told[1] = too_large(r, r->end))) {
      c->t = t;
      return LARGE;
    }
    const long long told = c->next;
    for (; c->next < rows && p->times[c->next] <= t; c->next++, c->since = 0) {
      between(r, h, (p->times[c->next] - c->t) / h, c->implicit, r->stage);
      tell(r, b, c->next, r->stage);
    }
    if (b->tape) record(r, b->tape, c, h, told);
    c->told[2 + c->implicit]++;
    c->t = t;
    r->at_x = r->columns > 1 && (c->implicit || !r->few);
    memcpy(r->x, r->end, sizeof(double) * r->N);
    double wanted = 0.9 * pow(before, 0.2 * order) / pow(error > 1e-10 ? error : 1e-10, expo);
    wanted = wanted > 10 ? 10 : wanted < 0.2 ? 0.2 : wanted;
    double next = h * (rejected && wanted > 1 ? 1 : wanted);
    c->h = ends && next < c->h ? c->h : next; /* a step cut by the end says little */
    before = error > 1e-4 ? error : 1e-4;
    rejected = 0;
    double *slope = r->k[c->implicit ? KC_STAGES - 1 : DP_STAGES - 1];
    memcpy(r->k[0], slope, sizeof(double) * r->N);
    if (!c->implicit && p->pair == BY_STIFFNESS && c->told[2] % EVERY == 0 && end - t > WORTH * h)
      trial = seems_stiff(r, c, t, h);
  }
  return DONE;
}

/* The state at the start, its directions, and how large each number counts. */
static void begin(Run *r, const Batch *b, long long k) {
  const long c = r->columns, n_d = c - 1, n_q = moving(r->plan, b);
  const double *start = b->starts + k * N_X, *size = r->plan->size;
  const double *along = b->chained ? r->carried : b->along;
  if (along && !b->chained) along += k * (N_X + n_q) * n_d;
  r->along = along ? along + N_X * n_d : 0;
  for (long i = 0; i < r->N; i++) r->x[i] = 0;
  for (int i = 0; i < N_X; i++) r->x[i * c] = start[i], r->unit[i * c] = size[i];
  for (long d = 0; d < n_d; d++) {
    double most = 0; /* of the direction, measured by the sizes of states and unknowns */
    for (int i = 0; i < N_X; i++) {
      double v = along ? along[i * n_d + d] : i == d;
      r->x[i * c + 1 + d] = v;
      most = fabs(v) / size[i] > most ? fabs(v) / size[i] : most;
    }
    for (long j = 0; j < n_q; j++) {
      double v = fabs(along ? r->along[j * n_d + d] : N_X + j == d);
      double q = fabs(r->q[j]), nearest = r->plan->nearest[j];
      double relative = v / (q > nearest ? q : nearest);
      most = relative > most ? relative : most;
    }
    for (int i = 0; i < N_X; i++) r->unit[i * c + 1 + d] = size[i] * (most > 0 ? most : 1);
  }
}

static int interval(Run *r, const Batch *b, Course *c, long long k) {
  const Plan *p = r->plan;
  const long n_d = r->columns - 1;
  begin(r, b, k);
  memcpy(r->fast, p->size, sizeof r->fast);
  r->rate = 1;
  if (!finite_all(r->x, r->N)) return START;
  for (; c->next < p->rows[k + 1] && p->times[c->next] <= c->t; c->next++)
    tell(r, b, c->next, r->x);
  for (long long i = p->first[k]; i < p->first[k + 1]; i++) {
    r->ab = p->inputs + i * 2 * N_U, r->piece = i, c->since = 0;
    int ended = piece(r, b, c, p->edges[2 * i + 1], p->rows[k + 1]);
    if (ended != DONE) return ended;
  }
  for (int i = 0; i < N_X; i++) {
    b->ends[k * N_X + i] = r->x[i * r->columns];
    memcpy(b->ends_by + (k * N_X + i) * n_d, r->x + i * r->columns + 1, sizeof(double) * n_d);
  }
  return DONE;
}

/* The directions of the next interval: where those of interval k ended, the gap, and the probe. */
static void carry(Run *r, const Batch *b, long long k) {
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
  const long long n_d = b->directions, n_h = p->told->size, rows[2] = {next, p->rows[k + 1]};
  const long long width = n_d + (b->rest ? p->told->unknowns - N_Q : 0);
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
CASADI_SYMBOL_EXPORT int igpe_intervals(const Plan *p, const Batch *b) {
  const long columns = 1 + (long)b->directions, N = columns * N_X;
  const size_t many = (size_t)(N_X + moving(p, b)) * (size_t)b->directions; /* numbers of the directions */
  Run *r = calloc(1, sizeof(Run));
  double *numbers = malloc(sizeof(double) * ((size_t)N * (6 + STAGES) + many));
  int ok = r && numbers && made_room(r, p->told);
  if (ok) {
    r->plan = p, r->q = b->q, r->columns = columns, r->N = N;
    r->few = b->along && b->directions >= 4 && b->directions <= FEW;
    r->probed = b->probed != 0, r->recording = b->tape != 0;
    double **places[6] = {&r->x, &r->end, &r->stage, &r->last, &r->unit, &r->ratio};
    for (int i = 0; i < 6; i++) *places[i] = numbers + i * N;
    for (int i = 0; i < STAGES; i++) r->k[i] = numbers + (6 + i) * N;
    r->carried = numbers + (6 + STAGES) * N;
    if (b->chained) memcpy(r->carried, b->along, sizeof(double) * many);
  }
  int broken = 0;
  for (long long k = 0; k < p->intervals; k++) {
    Course c = {0, 0, p->rows[k], {MEMORY}, p->edges[2 * p->first[k]], 0, p->pair == IMPLICIT, 0,
                SURE};
    if (b->tape) b->tape->first[k] = b->tape->count;
    if (ok) c.told[0] = broken ? BEFORE : interval(r, b, &c, k);
    if (c.told[0] != DONE) nothing(p, b, k, c.next);
    broken = b->chained && c.told[0] != DONE;
    if (b->chained && !broken && k + 1 < p->intervals) carry(r, b, k);
    memcpy(b->told + 4 * k, c.told, sizeof c.told);
    b->reached[k] = c.t;
  }
  if (b->tape) b->tape->first[p->intervals] = b->tape->count;
  free(numbers);
  freed(r);
  return ok ? DONE : MEMORY;
}
