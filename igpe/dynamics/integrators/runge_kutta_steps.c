/* Third part: one step of each pair, and what happens between its ends. Both leave the slopes of
   the stages in k, the new state in end; the slope where they begin is in k[0] before. */

#define NEWTONS 8     /* corrections of a stage before the step is shortened */
#define SOLVED 0.05   /* tolerances: what a stage's state may still be wrong by */
#define CLOSE 1.0     /* the same where a last correction follows, with a Jacobian of its own */
#define UNSOLVED 1e9  /* tolerances: an error that shortens the step as much as allowed */

/* to = x + h sum of the first `count` slopes, in one pass; x may be 0. */
APART void combine(const Run *r, double *restrict to, const double *restrict x, double h,
                   const double *weights, const int count) {
  double w[STAGES];
  long i = 0;
  for (int j = 0; j < count; j++) w[j] = h * weights[j];
  for (; i + 8 <= r->N; i += 8) {
    Four one = {0}, other = {0};
    if (x) one = *(const Four *)(x + i), other = *(const Four *)(x + i + 4);
    for (int j = 0; j < count; j++) {
      const double *k = r->k[j] + i;
      one += w[j] * *(const Four *)k, other += w[j] * *(const Four *)(k + 4);
    }
    *(Four *)(to + i) = one, *(Four *)(to + i + 4) = other;
  }
  for (; i < r->N; i++) {
    double sum = x ? x[i] : 0;
    for (int j = 0; j < count; j++) sum += w[j] * r->k[j][i];
    to[i] = sum;
  }
}

/* Dormand and Prince; returns the error in tolerances. `last` keeps the place of k[5]. */
static double explicit_step(Run *r, double t, double h, double after) {
  double **k = r->k, *y = r->stage;
  r->at_x = 0;
  combine(r, y, r->x, h, DP_A[1], 1), slopes(r, t + DP_C[1] * h, y, k[1]), keep(r, 1);
  combine(r, y, r->x, h, DP_A[2], 2), slopes(r, t + DP_C[2] * h, y, k[2]), keep(r, 2);
  combine(r, y, r->x, h, DP_A[3], 3), slopes(r, t + DP_C[3] * h, y, k[3]), keep(r, 3);
  combine(r, y, r->x, h, DP_A[4], 4), slopes(r, t + DP_C[4] * h, y, k[4]), keep(r, 4);
  combine(r, r->last, r->x, h, DP_A[5], 5), slopes(r, after, r->last, k[5]), keep(r, 5);
  combine(r, r->end, r->x, h, DP_A[6], 6), slopes(r, after, r->end, k[6]), keep(r, 6);
  combine(r, y, 0, h, DP_E, 7);
  return in_tolerances(r, y, r->x, r->end);
}

/* One Newton correction of `point` towards base + factor f(point); its size in tolerances. */
HOT static double correct(Run *r, const double *base, double factor) {
  const Plan *p = r->plan;
  double residual[N_X], change[N_X], largest = 0, sum = 0;
  for (int i = 0; i < N_X; i++)
    residual[i] = base[i * r->columns] + factor * r->f[i] - r->point[i];
  solve_one(r, residual, change);
  for (int i = 0; i < N_X; i++) {
    r->point[i] += change[i];
    double e = fabs(change[i]) / (p->atol * p->size[i] + p->rtol * fabs(r->point[i]));
    largest = e > largest ? e : largest;
    sum += 0 * e;
  }
  return largest + sum;
}

/* Solve for the state of a stage with the factors at hand; 0 if Newton's method fails. Before there
   are two corrections their rate is taken from the stage before. */

HOT static int newton(Run *r, double t, const double *base, double factor) {
  const double solved = r->columns > 1 ? CLOSE : SOLVED;
  double before = 0;
  for (int n = 0; n < NEWTONS; n++) {
    slope_at(r, t, r->point);
    double size = correct(r, base, factor);
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

/* Stage i >= 1: from base to the state and its derivatives, in place; its slopes go to k[i].

   The derivatives are those of the discretised equations: with the Jacobians at the solution, one
   linear system for all of them, whose factors serve for a last correction of the state and for the
   next stage. */
HOT static int implicit_stage(Run *r, double t, double h, int i, double *base) {
  const long c = r->columns;
  const double factor = h * KC_A[i][i], inverse = 1 / factor;
  double *k = r->k[i], *y = r->end;
  gather(r, base, r->point);
  for (int j = 0; j < i; j++)
    for (int m = 0; m < N_X; m++) r->point[m] += factor * KC_P[i][j] * r->k[j][m * c];
  if (!newton(r, t, base, factor)) return 0;
  memcpy(y, base, sizeof(double) * r->N);
  if (c > 1) {
    slopes_at(r, t, r->point);
    keep(r, i);
    if (!factorise(r, factor)) return 0;
    correct(r, base, factor);
    add_by_unknowns(r, factor, y);
    solve(r, y + 1, c, c - 1);
  }
  for (int m = 0; m < N_X; m++) y[m * c] = r->point[m];
  for (long m = 0; m < r->N; m++) k[m] = (y[m] - base[m]) * inverse;
  return 1;
}

/* Kennedy and Carpenter; returns the error in tolerances, UNSOLVED if a stage was not solved. */
static double implicit_step(Run *r, double t, double h, double after) {
  if (!r->at_x) gather(r, r->x, r->point), slopes_at(r, t, r->point);
  r->at_x = 0;
  if (!factorise(r, h * KC_A[1][1])) return finite_all(r->f, N_X) ? UNSOLVED : NAN;
  for (int i = 1; i < KC_STAGES; i++) {
    combine(r, r->stage, r->x, h, KC_A[i], i);
    double now = i < KC_STAGES - 1 ? t + KC_C[i] * h : after;
    if (!implicit_stage(r, now, h, i, r->stage)) return finite_all(r->f, N_X) ? UNSOLVED : NAN;
  }
  combine(r, r->stage, 0, h, KC_E, KC_STAGES);
  return in_tolerances(r, r->stage, r->x, r->end);
}

/* The state at a share of the last step, to `to`. */
static void between(const Run *r, double h, double share, int implicit, double *to) {
  const int stages = implicit ? KC_STAGES : DP_STAGES;
  double w[STAGES];
  for (int j = 0; j < stages; j++) {
    const double *d = implicit ? KC_D[j] : DP_D[j];
    w[j] = share * (d[0] + share * (d[1] + share * (d[2] + share * d[3])));
  }
  combine(r, to, r->x, h, w, stages);
}
