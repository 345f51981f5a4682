/* Third part: one step of each pair, and what happens between its ends. Both leave the slopes of
   the stages in k, the new state in end; the slope where they begin is in k[0] before. */

#define NEWTONS 8     /* corrections of a stage before the step is shortened */
#define SOLVED 0.05   /* tolerances: what a stage's state may still be wrong by */
#define CLOSE 1.0     /* the same where a last correction follows, with a Jacobian of its own */
#define AT_ONCE 2000  /* numbers of a vector; ten of these are 160 kB */
#define UNSOLVED 1e9  /* tolerances: an error that shortens the step as much as allowed */

#define TERM(j) \
  one += w[j] * *(const Four *)(k[j] + i), other += w[j] * *(const Four *)(k[j] + i + 4);
#define SUM(count, TERMS) \
  case count: \
    for (; i + 8 <= n; i += 8) { \
      Four one = {0}, other = {0}; \
      if (x) one = *(const Four *)(x + i), other = *(const Four *)(x + i + 4); \
      TERMS \
      *(Four *)(to + i) = one, *(Four *)(to + i + 4) = other; \
    } \
    break;

/* to = x + h sum of the first `count` slopes, of n numbers from a place of the vectors on, where x and to
   stand; x may be 0. Each number of terms is written out, as compilers do so at levels that take long. */
APART void combine(const Run *r, double *restrict to, const double *restrict x, double h,
                   const double *weights, const int count, const long from, const long n) {
  double w[STAGES];
  const double *k[STAGES];
  int some = 0;
  long i = 0;
  for (int j = 0; j < count; j++)
    if (weights[j] != 0) w[some] = h * weights[j], k[some++] = r->k[j] + from;
  switch (some) {
    SUM(1, TERM(0))
    SUM(2, TERM(0) TERM(1))
    SUM(3, TERM(0) TERM(1) TERM(2))
    SUM(4, TERM(0) TERM(1) TERM(2) TERM(3))
    SUM(5, TERM(0) TERM(1) TERM(2) TERM(3) TERM(4))
    SUM(6, TERM(0) TERM(1) TERM(2) TERM(3) TERM(4) TERM(5))
  }
  for (; i < n; i++) {
    double sum = x ? x[i] : 0;
    for (int j = 0; j < some; j++) sum += w[j] * k[j][i];
    to[i] = sum;
  }
}

/* A step of all directions goes through its stages panel by panel, after the state went through all of
   them. The one with a probe comes first: where its error is too large, nobody needs the others.
   Returns the error in tolerances. */
#define EACH_PANEL(STAGES_OF, WEIGHTS, COUNT) \
  double derivatives = 0; \
  for (long p = panels(r) - 1; p >= 0; p--) { \
    const long from = place(r, p), w = width(r, p), n = N_X * w; \
    double *y = r->stage + from; \
    STAGES_OF \
    if (r->probed && p != panels(r) - 1) continue; \
    combine(r, y, 0, h, WEIGHTS, COUNT, from, n); \
    derivatives = worse(derivatives, panel_in_tolerances(r, p, y, r->x + from, r->end + from)); \
    if (r->probed && !(in_all(r, state, derivatives) <= 1)) break; \
  } \
  return in_all(r, state, derivatives);

/* The error of the state in tolerances. */
static double state_error(Run *r, double h, const double *weights, int count) {
  combine(r, r->stage, 0, h, weights, count, 0, r->model->states);
  return state_in_tolerances(r, r->stage, r->x, r->end);
}

/* Time of stage i of Dormand and Prince's pair. */
INLINE double time_of(double t, double h, double after, int i) {
  return i < DP_STAGES - 2 ? t + DP_C[i] * h : after;
}

/* Dormand and Prince, stage by stage: where slopes of few directions come with that of the state, and where
   all vectors stay in the cache anyway. */
static double explicit_step_at_once(Run *r, double t, double h, double after) {
  SIZED(r);
  for (int i = 1; i < DP_STAGES; i++) {
    double *y = i < DP_STAGES - 1 ? r->stage : r->end;
    combine(r, y, r->x, h, DP_A[i], i, 0, r->N);
    slopes(r, i, time_of(t, h, after, i), y);
    copy(r->seen + i * N_X, y, N_X);
  }
  combine(r, r->stage, 0, h, DP_E, DP_STAGES, 0, r->N);
  return in_tolerances(r, r->stage, r->x, r->end);
}

/* Dormand and Prince. */
static double explicit_step(Run *r, double t, double h, double after) {
  SIZED(r);
  if (r->few || r->N <= AT_ONCE) return explicit_step_at_once(r, t, h, after);
  for (int i = 1; i < DP_STAGES; i++) {
    double *point = r->seen + i * N_X;
    combine(r, point, r->x, h, DP_A[i], i, 0, N_X);
    slope_of_state(r, i, time_of(t, h, after, i), point);
  }
  copy(r->end, r->seen + (DP_STAGES - 1) * N_X, N_X);
  const double state = state_error(r, h, DP_E, DP_STAGES);
  EACH_PANEL(
    for (int i = 1; i < DP_STAGES; i++) {
      double *to = i < DP_STAGES - 1 ? y : r->end + from;
      combine(r, to, r->x + from, h, DP_A[i], i, from, n);
      slopes_of_panel(r, i, time_of(t, h, after, i), r->seen + i * N_X, p, to, r->k[i] + from);
    }, DP_E, DP_STAGES)
}

/* One Newton correction of `point` towards base + factor f(point) by the factors of stage s, which goes to
   `change`. */
static void correct(Run *r, int s, const double *base, double factor, double *change) {
  SIZED(r);
  double residual[N_X], *point = r->point;
  const double *f = r->f;
  for (int i = 0; i < N_X; i++) residual[i] = base[i] + factor * f[i] - point[i];
  solve_one(r, s, residual, change);
  for (int i = 0; i < N_X; i++) point[i] += change[i];
}

/* Solve for the state of a stage with the factors at hand; 0 if Newton's method fails. Before there
   are two corrections their rate is taken from the stage before. */

HOT static int newton(Run *r, int s, double t, const double *base, double factor) {
  SIZED(r);
  const double solved = r->lanes ? CLOSE : SOLVED;
  double before = 0, change[N_X];
  for (int n = 0; n < NEWTONS; n++) {
    slope_at(r, t, r->point);
    correct(r, s, base, factor, change);
    double size = state_in_tolerances(r, change, r->point, r->point);
    double rate = n ? size / before : r->rate;
    if (!(size < HUGE_VAL) || (n > 1 && rate > 0.95)) return 0;
    if (n) r->rate = rate;
    if (size <= 1e-3 || (rate < 1 && rate / (1 - rate) * size <= solved)) {
      r->rate *= 2;
      return 1;
    }
    before = size;
  }
  return 0;
}

/* The state of stage i >= 1; its slope goes to k[i]. Without directions all stages have the factors of the
   first. With them they have their own, which serve for a last correction, and begin the next stage. */
static int implicit_stage(Run *r, double t, double h, int i) {
  SIZED(r);
  const double factor = h * KC_A[i][i], inverse = 1 / factor;
  double base[N_X], change[N_X], *k = r->k[i];
  combine(r, base, r->x, h, KC_A[i], i, 0, N_X);
  copy(r->point, base, N_X);
  for (int j = 0; j < i; j++) axpy(r->point, factor * KC_P[i][j], r->k[j], N_X);
  if (!newton(r, r->lanes ? i - 1 : 0, t, base, factor)) return 0;
  if (r->lanes) {
    slopes_at(r, t, r->point, i);
    copy(r->seen + i * N_X, r->point, N_X);
    if (!factorise(r, i, factor)) return 0;
    correct(r, i, base, factor, change);
  }
  const double *point = r->point;
  for (int m = 0; m < N_X; m++) k[m] = (point[m] - base[m]) * inverse;
  return 1;
}

/* The derivatives in a panel at stage i, to `end`: those of the discretised equations. With the Jacobians
   at the solution that is one linear system for all of them. */
static void implicit_derivatives(Run *r, double h, int i, long p, double *base) {
  const long from = place(r, p), w = width(r, p), n = r->model->states * w;
  const double factor = h * KC_A[i][i], inverse = 1 / factor;
  double *y = r->end + from, *k = r->k[i] + from;
  combine(r, base, r->x + from, h, KC_A[i], i, from, n);
  copy(y, base, n);
  add_by_unknowns(r, i, p, factor, y);
  solve(r, i, y, w);
  for (long m = 0; m < n; m++) k[m] = (y[m] - base[m]) * inverse;
}

/* Kennedy and Carpenter; returns the error in tolerances, UNSOLVED if a stage was not solved. */
static double implicit_step(Run *r, double t, double h, double after) {
  SIZED(r);
  if (!r->at_x) slopes_at(r, t, r->x, 0);
  r->at_x = 1;
  if (!factorise(r, 0, h * KC_A[1][1])) return finite_all(r->f, N_X) ? UNSOLVED : NAN;
  for (int i = 1; i < KC_STAGES; i++) {
    double now = i < KC_STAGES - 1 ? t + KC_C[i] * h : after;
    if (!implicit_stage(r, now, h, i)) return finite_all(r->f, N_X) ? UNSOLVED : NAN;
  }
  copy(r->end, r->point, N_X);
  const double state = state_error(r, h, KC_E, KC_STAGES);
  EACH_PANEL(for (int i = 1; i < KC_STAGES; i++) implicit_derivatives(r, h, i, p, y);, KC_E, KC_STAGES)
}

/* The state at a share of the last step, to `to`. */
static void between(const Run *r, double h, double share, int implicit, double *to) {
  const int stages = implicit ? KC_STAGES : DP_STAGES;
  double w[STAGES];
  for (int j = 0; j < stages; j++) {
    const double *d = implicit ? KC_D[j] : DP_D[j];
    w[j] = share * (d[0] + share * (d[1] + share * (d[2] + share * d[3])));
  }
  combine(r, to, r->x, h, w, stages, 0, r->N);
}
