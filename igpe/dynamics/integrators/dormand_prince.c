/* Dormand and Prince's explicit Runge-Kutta pair 5(4), from the start to the last output.

   Embedded error estimate, first same as last, PI step control, dense output of order 4 and the
   estimate of |h lambda| are those of Hairer, Norsett and Wanner, Solving Ordinary Differential
   Equations I (sections II.4 to II.6) and II (section IV.2). The error is the largest of all
   states and sensitivities, not their mean: none may be sacrificed to the others.

   The functions of the model stand above this text, written by CasADi:

     igpe_start  (q, scale, n, c) -> x         igpe_slope  (tau, x, z, p, n, c) -> dx / dtau
     igpe_told   (t, x, z, known, n, c) -> row

   with known = [q, scale, a, b], p = [known, begin, span]; n are sizes and start values, c all other
   numbers that stand in the equations, so that experiments which differ in those share a library
   and so do the numbers N_Q unknowns, N_U inputs given by tables, N_X states, N entries of x (states
   and sensitivities), N_ROW numbers told of one time, and the sizes of the functions' memory. */

#include <stdlib.h>
#include <time.h>

typedef struct {
  long long pieces;
  const double *numbers;       /* (pieces, 2 + 2 N_U): begin, span, inputs a and b */
  const long long *first;      /* (pieces + 1) the first output of each piece */
  const double *places;        /* of each output in its piece, from 0 to 1 */
  const long long *rows;       /* row of the result it fills, or -1 */
  const double *times;         /* (n_times) */
  long long n_times, at_start; /* at_start: 1 if the first of the times is the start */
  const double *most;          /* (N_X) how large each state may be, in its sizes */
  const double *nearest;       /* (N_Q) an unknown nearer to 0 counts as so large */
  const double *sizes;         /* n of the model's functions */
  const double *constants;     /* c of them */
  double rtol, atol, seconds;
  long long max_steps, most_steps; /* between two outputs, in all */
  int (*stopped)(void);            /* whether the user wants the run to end */
} Plan;

enum { DONE, STEPS, STIFF, LARGE, NO_NUMBER, TOO_SMALL, SECONDS, MEMORY, START, STOPPED };

#define KNOWN (2 * N_Q + 2 * N_U)
#define PATIENT 500   /* accepted steps of a piece before stiffness is looked for: about what an */
                      /* implicit method costs */
#define SURE 50       /* so many more steps at the limit of stability than below it are stiff */
#define STABLE 2.5    /* |h lambda| where that begins; the method is stable up to about 3.3, and */
                      /* the step control swings around that */
#define SWINGING 1.0  /* |h lambda| that accuracy alone does not ask for: steps beyond it are stiff, */
                      /* without patience, where FAR more are still to come */
#define FAR 1000
#define LOOK 256   /* steps between looks at the clock */
#define LISTEN 2048 /* steps between questions whether to stop, which cost some microseconds */

/* Work of one run; k[0] is the slope where a step begins, k[6] where it ends. */
typedef struct {
  const double *sizes, *constants;
  double p[KNOWN + 2], x[N], end[N], stage[N], k[7][N], dense[5][N], at[N], w[WORK + 1];
  casadi_int iw[IWORK + 1];
  long long steps;
} Run;

static void slope(Run *r, double tau, const double *x, double *found) {
  const double *arg[ARG] = {&tau, x, 0, r->p, r->sizes, r->constants};
  double *res[RES] = {found};
  igpe_slope(arg, res, r->iw, r->w, 0);
}

static void tell(Run *r, double t, const double *x, double *row) {
  const double *arg[ARG] = {&t, x, 0, r->p, r->sizes, r->constants};
  double *res[RES] = {row};
  igpe_told(arg, res, r->iw, r->w, 0);
}

static int finite_all(const double *v) {
  double sum = 0;
  for (int i = 0; i < N; i++) sum += 0 * v[i];
  return sum == 0;
}

/* Seconds of a clock that nobody sets, where there is one. */
static double now(void) {
  struct timespec t;
#ifdef CLOCK_MONOTONIC
  clock_gettime(CLOCK_MONOTONIC, &t);
#else
  timespec_get(&t, TIME_UTC);
#endif
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Largest of v over the tolerance at x; not a number if one of v is none. */
static double in_tolerances(const Plan *s, const double *v, const double *x, const double *y) {
  double largest = 0, sum = 0;
  for (int i = 0; i < N; i++) {
    double a = fabs(x[i]), b = fabs(y[i]);
    double e = fabs(v[i]) / (s->atol + s->rtol * (a > b ? a : b));
    largest = e > largest ? e : largest;
    sum += 0 * e;
  }
  return largest + sum;
}

/* A first step: one whose Euler step changes little, by slope and curvature. */
static double first_step(const Plan *s, Run *r) {
  double size = in_tolerances(s, r->x, r->x, r->x);
  double d1 = in_tolerances(s, r->k[0], r->x, r->x);
  double h = size > 1e-5 && d1 > 1e-5 ? 0.01 * size / d1 : 1e-6;
  h = h < 1 ? h : 1;
  for (int i = 0; i < N; i++) r->stage[i] = r->x[i] + h * r->k[0][i];
  slope(r, h, r->stage, r->k[1]);
  for (int i = 0; i < N; i++) r->stage[i] = r->k[1][i] - r->k[0][i];
  double d2 = in_tolerances(s, r->stage, r->x, r->x) / h;
  if (!(d2 < HUGE_VAL)) return 1e-3 * h;
  double d = d1 > d2 ? d1 : d2;
  double by_curve = d > 1e-15 ? pow(0.01 / d, 0.2) : (1e-3 * h > 1e-6 ? 1e-3 * h : 1e-6);
  h = 100 * h < by_curve ? 100 * h : by_curve;
  return h < 1 ? h : 1;
}

/* One step of length h: fills k[1..6], stage (of k[5]) and end; returns the error in tolerances. */
static double step(const Plan *s, Run *r, double tau, double h) {
  double(*k)[N] = r->k, *y = r->stage, *x = r->x;
  double after = tau + h < 1 ? tau + h : 1; /* the equations may have no value beyond the end */
  for (int i = 0; i < N; i++) y[i] = x[i] + h * (k[0][i] / 5);
  slope(r, tau + h / 5, y, k[1]);
  for (int i = 0; i < N; i++) y[i] = x[i] + h * (3.0 / 40 * k[0][i] + 9.0 / 40 * k[1][i]);
  slope(r, tau + 0.3 * h, y, k[2]);
  for (int i = 0; i < N; i++)
    y[i] = x[i] + h * (44.0 / 45 * k[0][i] - 56.0 / 15 * k[1][i] + 32.0 / 9 * k[2][i]);
  slope(r, tau + 0.8 * h, y, k[3]);
  for (int i = 0; i < N; i++)
    y[i] = x[i] + h * (19372.0 / 6561 * k[0][i] - 25360.0 / 2187 * k[1][i] +
                       64448.0 / 6561 * k[2][i] - 212.0 / 729 * k[3][i]);
  slope(r, tau + 8 * h / 9, y, k[4]);
  for (int i = 0; i < N; i++)
    y[i] = x[i] + h * (9017.0 / 3168 * k[0][i] - 355.0 / 33 * k[1][i] + 46732.0 / 5247 * k[2][i] +
                       49.0 / 176 * k[3][i] - 5103.0 / 18656 * k[4][i]);
  slope(r, after, y, k[5]);
  for (int i = 0; i < N; i++)
    r->end[i] = x[i] + h * (35.0 / 384 * k[0][i] + 500.0 / 1113 * k[2][i] + 125.0 / 192 * k[3][i] -
                            2187.0 / 6784 * k[4][i] + 11.0 / 84 * k[5][i]);
  slope(r, after, r->end, k[6]);
  for (int i = 0; i < N; i++)
    r->at[i] = h * (71.0 / 57600 * k[0][i] - 71.0 / 16695 * k[2][i] + 71.0 / 1920 * k[3][i] -
                    17253.0 / 339200 * k[4][i] + 22.0 / 525 * k[5][i] - 1.0 / 40 * k[6][i]);
  double error = in_tolerances(s, r->at, x, r->end);
  return finite_all(k[6]) ? error : NAN;
}

/* The polynomial of order 4 between the ends of a step. */
static void prepare_dense(Run *r, double h) {
  double(*k)[N] = r->k, (*c)[N] = r->dense;
  for (int i = 0; i < N; i++) {
    double change = r->end[i] - r->x[i], bend = h * k[0][i] - change;
    c[0][i] = r->x[i];
    c[1][i] = change;
    c[2][i] = bend;
    c[3][i] = change - h * k[6][i] - bend;
    c[4][i] = h * (-12715105075.0 / 11282082432.0 * k[0][i] +
                   87487479700.0 / 32700410799.0 * k[2][i] -
                   10690763975.0 / 1880347072.0 * k[3][i] +
                   701980252875.0 / 199316789632.0 * k[4][i] -
                   1453857185.0 / 822651844.0 * k[5][i] + 69997945.0 / 29380423.0 * k[6][i]);
  }
}

static void dense(Run *r, double share) {
  double(*c)[N] = r->dense, rest = 1 - share;
  for (int i = 0; i < N; i++)
    r->at[i] = c[0][i] +
               share * (c[1][i] + rest * (c[2][i] + share * (c[3][i] + rest * c[4][i])));
}

/* Of the last step, from below. */
static double h_lambda(const Run *r, double h) {
  double slopes = 0, points = 0;
  for (int i = 0; i < N; i++) {
    double d = r->k[6][i] - r->k[5][i], e = r->end[i] - r->stage[i];
    slopes += d * d;
    points += e * e;
  }
  return points > 0 ? h * sqrt(slopes / points) : 0;
}

static int too_large(const Plan *s, const double *x) {
  for (int i = 0; i < N_X; i++)
    if (fabs(x[i]) > s->most[i]) return i + 1;
  return 0;
}

/* One piece; *done counts the rows filled, *where is how far it came, *state is the too large one. */
static int integrate(const Plan *s, Run *r, long long piece, double *out, double deadline,
                     long long *done, double *where, double *state) {
  const double expo = 0.2 - 0.04 * 0.75;
  double begin = r->p[KNOWN], span = r->p[KNOWN + 1], tau = 0, before = 1e-4;
  long long next = s->first[piece], last = s->first[piece + 1];
  long long since_output = 0, taken = 0, accepted = 0;
  int at_limit = 0, swinging = 0, rejected = 0;
  *where = begin;
  if (next == last) return DONE; /* nothing but the start is asked for */
  slope(r, 0, r->x, r->k[0]);
  if (!finite_all(r->k[0])) return NO_NUMBER;
  double h = first_step(s, r);
  while (next < last) {
    if (since_output++ >= s->max_steps || r->steps++ >= s->most_steps) return STEPS;
    if (r->steps % LISTEN == 0 && s->stopped()) return STOPPED;
    if (deadline < HUGE_VAL && ++taken % LOOK == 0 && now() > deadline) return SECONDS;
    int ends = tau + 1.01 * h >= 1;
    if (ends) h = 1 - tau;
    double error = step(s, r, tau, h);
    if (!(error <= 1)) {
      double less = error < HUGE_VAL ? 0.9 / pow(error, expo) : 0.1;
      h *= less > 0.2 ? less : (error < HUGE_VAL ? 0.2 : 0.1);
      rejected = 1;
      if (tau + 0.1 * h <= tau || h < 1e-300) return error < HUGE_VAL ? TOO_SMALL : NO_NUMBER;
      continue;
    }
    if ((*state = too_large(s, r->end))) {
      *where = begin + span * (tau + h);
      return LARGE;
    }
    int far = 1 - tau > FAR * h, patient = ++accepted <= PATIENT;
    if (far || !patient) {
      double length = h_lambda(r, h);
      if (far) swinging += length > SWINGING ? 1 : swinging > 0 ? -1 : 0;
      if (!patient) at_limit += length > STABLE ? 1 : at_limit > 0 ? -1 : 0;
      if (at_limit == SURE || swinging == SURE) return STIFF;
    }
    double arrived = ends ? 1 : tau + h;
    if (s->places[next] <= arrived) prepare_dense(r, h);
    for (; next < last && s->places[next] <= arrived; next++, since_output = 0) {
      if (s->rows[next] < 0) continue;
      dense(r, (s->places[next] - tau) / h);
      tell(r, s->times[s->rows[next]], r->at, out + N_ROW * s->rows[next]);
      ++*done;
    }
    tau = arrived;
    *where = begin + span * tau;
    for (int i = 0; i < N; i++) r->x[i] = r->end[i], r->k[0][i] = r->k[6][i];
    double wanted = 0.9 * pow(before, 0.04) / pow(error > 1e-10 ? error : 1e-10, expo);
    wanted = wanted > 10 ? 10 : wanted < 0.2 ? 0.2 : wanted;
    h *= rejected && wanted > 1 ? 1 : wanted;
    before = error > 1e-4 ? error : 1e-4;
    rejected = 0;
  }
  return DONE;
}

/* Integrate all pieces for unknowns q (N_Q). out (n_times, N_ROW) is NaN where nothing was reached.
   told: [rows filled, time reached, state that is too large (from 1)]. Returns how it ended. */
CASADI_SYMBOL_EXPORT int igpe_run(const Plan *s, const double *q, double *out, double *told) {
  Run *r = malloc(sizeof(Run));
  long long done = 0;
  int ended = r ? DONE : MEMORY;
  double deadline = s->seconds < HUGE_VAL ? now() + s->seconds : HUGE_VAL;
  for (long long i = 0; i < s->n_times * N_ROW; i++) out[i] = NAN;
  if (r) r->sizes = s->sizes, r->constants = s->constants, r->steps = 0;
  for (int i = 0; r && i < N_Q; i++) {
    double size = fabs(q[i]);
    r->p[i] = q[i], r->p[N_Q + i] = size < s->nearest[i] ? s->nearest[i] : size;
  }
  for (long long k = 0; ended == DONE && k < s->pieces; k++) {
    const double *numbers = s->numbers + k * (2 + 2 * N_U);
    for (int i = 0; i < 2 * N_U; i++) r->p[2 * N_Q + i] = numbers[2 + i];
    r->p[KNOWN] = numbers[0], r->p[KNOWN + 1] = numbers[1];
    if (k == 0) {
      const double *arg[ARG] = {r->p, r->p + N_Q, r->sizes, r->constants};
      double *res[RES] = {r->x};
      igpe_start(arg, res, r->iw, r->w, 0);
      told[1] = numbers[0];
      if (!finite_all(r->x)) ended = START;
      else if (s->at_start) tell(r, s->times[0], r->x, out), done = 1;
    }
    if (ended == DONE) ended = integrate(s, r, k, out, deadline, &done, told + 1, told + 2);
  }
  told[0] = (double)done;
  free(r);
  return ended;
}
