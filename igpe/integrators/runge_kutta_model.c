/* The batch integrator, first part: what it is given, and the model with its variations.

   Matrices of N_X rows hold in their first column a state and beside it its derivatives along some
   directions of (start, q): dS/dt = f_x S + f_q D. The functions of the model stand above this text,
   written by CasADi, ab being the inputs' a and b:

     igpe_slope   (t, x, q, ab, c) -> f      igpe_slopes  (t, x, q, ab, c) -> f, f_x, f_q
     igpe_told    (t, x, q, ab, c) -> h      igpe_tolds   (t, x, q, ab, c) -> h, h_x, h_q

   c being all numbers that stand in them (so that experiments which differ in those share a library)
   and so do the sizes, the places of the Jacobians' entries (FX_N, FX_ROW, FX_COL, ...) and the
   numbers of the Runge-Kutta pairs (A, E, D of igpe/integrators/tableaux.py). */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* short loops over columns, worth vectorising */
#endif
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef struct {
  long long intervals;
  const long long *first;   /* (intervals + 1) first piece of each */
  const double *edges;      /* (pieces, 2) where each begins and ends; no input jumps inside */
  const double *inputs;     /* (pieces, 2 N_U) a and b */
  const long long *rows;    /* (intervals + 1) first time of each */
  const double *times;      /* (n_times) */
  const double *row_inputs; /* (n_times, 2 N_U) */
  const double *size;       /* (N_X) of the states */
  const double *most;       /* (N_X) how large each may be */
  const double *nearest;    /* (N_Q) an unknown nearer to 0 counts as so large */
  const double *numbers;    /* of the model's functions */
  double rtol, atol, slack; /* slack: times that derivatives may err more than states */
  long long max_steps, pair;
} Plan;

typedef struct {
  long long directions;  /* columns beside the state */
  const double *starts;  /* (intervals, N_X) */
  const double *q;       /* (N_Q) */
  const double *along;   /* (intervals, N_X + N_Q, directions), or 0 for the unit directions */
  long long chained;     /* 1: along is of the first interval; each goes on where the one before */
                         /* ended, the gap between them being added to the last direction */
  double *ends;          /* (intervals, N_X) */
  double *ends_by;       /* (intervals, N_X, directions) */
  double *measured;      /* (n_times, N_H) */
  double *measured_by;   /* (n_times, N_H, directions) */
  double *reached;       /* (intervals) */
  long long *told;       /* (intervals, 4): how it ended, state too large, explicit, implicit steps */
} Batch;

enum { DONE, STEPS, LARGE, NO_NUMBER, TOO_SMALL, MEMORY, START, BEFORE };
enum { EXPLICIT, IMPLICIT, BY_STIFFNESS };

/* Work of one run; k are the slopes of the stages, N = columns N_X numbers each. */
typedef struct {
  const Plan *plan;
  const double *q, *ab, *along; /* along: the rows of q, or 0 */
  long columns, N;
  double *x, *end, *stage, *last, *unit, *ratio, *k[STAGES], *carried;
  double point[N_X], f[N_X], h[N_H + 1], fx[FX_N + 1], fq[FQ_N + 1];
  double hx[HX_N + 1], hq[HQ_N + 1], lu[N_X * N_X], w[WORK + 1];
  double fast[N_X];       /* direction of the fastest mode, in the units of the states */
  double rate;            /* of Newton's last corrections, 1 if unknown */
  int order[N_X], at_x;   /* of the rows in the factors; at_x: fx is that where the step begins */
  casadi_int iw[IWORK + 1];
} Run;

static void slope_at(Run *r, double t, const double *x) {
  const double *arg[ARG] = {&t, x, r->q, r->ab, r->plan->numbers};
  double *res[RES] = {r->f};
  igpe_slope(arg, res, r->iw, r->w, 0);
}

static void slopes_at(Run *r, double t, const double *x) {
  const double *arg[ARG] = {&t, x, r->q, r->ab, r->plan->numbers};
  double *res[RES] = {r->f, r->fx, r->fq};
  igpe_slopes(arg, res, r->iw, r->w, 0);
}

static int finite_all(const double *v, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += 0 * v[i];
  return sum == 0;
}

static void gather(const Run *r, const double *from, double *point) {
  for (int i = 0; i < N_X; i++) point[i] = from[i * r->columns];
}

/* Four numbers anywhere in memory; compilers make of them what the machine has. */
typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));

INLINE void axpy(double *restrict y, double a, const double *restrict x, const long n) {
  const Four wide = {a, a, a, a};
  long d = 0;
  for (; d + 4 <= n; d += 4) *(Four *)(y + d) += wide * *(const Four *)(x + d);
  for (; d < n; d++) y[d] += a * x[d];
}

/* Add factor f_q D to the derivatives in k. */
static void add_by_unknowns(const Run *r, double factor, double *k) {
  const long c = r->columns;
  for (int m = 0; m < FQ_N; m++) {
    double v = factor * r->fq[m], *row = k + FQ_ROW[m] * c + 1;
    if (r->along) axpy(row, v, r->along + FQ_COL[m] * (c - 1), c - 1);
    else row[N_X + FQ_COL[m]] += v;
  }
}

/* f_x S + f_q D in one row, `many` times four columns from column d on. */
INLINE void fours_of_row(const Run *r, const double *x, double *k, int i, long d, const int many) {
  const long c = r->columns;
  Four sum[2] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
  for (int m = FX_FIRST[i]; m < FX_FIRST[i + 1]; m++)
    for (int j = 0; j < many; j++)
      sum[j] += r->fx[m] * *(const Four *)(x + FX_COL[m] * c + 1 + d + 4 * j);
  for (int m = FQ_FIRST[i]; r->along && m < FQ_FIRST[i + 1]; m++)
    for (int j = 0; j < many; j++)
      sum[j] += r->fq[m] * *(const Four *)(r->along + FQ_COL[m] * (c - 1) + d + 4 * j);
  for (int j = 0; j < many; j++) *(Four *)(k + i * c + 1 + d + 4 * j) = sum[j];
}

INLINE void one_of_row(const Run *r, const double *x, double *k, int i, long d) {
  const long c = r->columns;
  double sum = 0;
  for (int m = FX_FIRST[i]; m < FX_FIRST[i + 1]; m++) sum += r->fx[m] * x[FX_COL[m] * c + 1 + d];
  for (int m = FQ_FIRST[i]; r->along && m < FQ_FIRST[i + 1]; m++)
    sum += r->fq[m] * r->along[FQ_COL[m] * (c - 1) + d];
  k[i * c + 1 + d] = sum;
}

#define WIDE 16 /* columns from which rows are gone through one by one, measured */

/* The slopes of the derivatives S; the last columns of a row may be computed twice. */
static void slopes_of_derivatives(const Run *r, const double *x, double *k) {
  const long n = r->columns - 1;
  for (int i = 0; n >= WIDE && i < N_X; i++) {
    long d = 0;
    for (; d + 8 <= n; d += 8) fours_of_row(r, x, k, i, d, 2);
    for (; d < n; d += 4) fours_of_row(r, x, k, i, d < n - 4 ? d : n - 4, 1);
  }
  for (long d = 0; n >= 4 && n < WIDE && d < n; d += 4)
    for (int i = 0; i < N_X; i++) fours_of_row(r, x, k, i, d < n - 4 ? d : n - 4, 1);
  for (long d = 0; n < 4 && d < n; d++)
    for (int i = 0; i < N_X; i++) one_of_row(r, x, k, i, d);
  if (r->along) return;
  for (int m = 0; m < FQ_N; m++) k[FQ_ROW[m] * (n + 1) + 1 + N_X + FQ_COL[m]] += r->fq[m];
}

/* The slopes of x and of its derivatives. */
static void slopes(Run *r, double t, const double *x, double *k) {
  const long c = r->columns;
  gather(r, x, r->point);
  if (c == 1) {
    slope_at(r, t, r->point);
    memcpy(k, r->f, sizeof r->f);
    return;
  }
  slopes_at(r, t, r->point);
  for (int i = 0; i < N_X; i++) k[i * c] = r->f[i];
  slopes_of_derivatives(r, x, k);
}

/* What is measured at time `row` if the state is x. */
static void tell(Run *r, const Batch *b, long long row, const double *x) {
  const Plan *p = r->plan;
  const long c = r->columns, n_d = c - 1;
  const double *arg[ARG] = {p->times + row, r->point, r->q, p->row_inputs + row * 2 * N_U,
                            p->numbers};
  double *res[RES] = {b->measured + row * N_H, r->hx, r->hq};
  gather(r, x, r->point);
  if (c == 1) {
    igpe_told(arg, res, r->iw, r->w, 0);
    return;
  }
  igpe_tolds(arg, res, r->iw, r->w, 0);
  double *by = b->measured_by + row * N_H * n_d;
  for (long i = 0; i < N_H * n_d; i++) by[i] = 0;
  for (int m = 0; m < HQ_N; m++) {
    double *out = by + HQ_ROW[m] * n_d;
    if (r->along) axpy(out, r->hq[m], r->along + HQ_COL[m] * n_d, n_d);
    else out[N_X + HQ_COL[m]] += r->hq[m];
  }
  for (int m = 0; m < HX_N; m++) {
    const double *s = x + HX_COL[m] * c + 1;
    double *out = by + HX_ROW[m] * n_d;
    for (long d = 0; d < n_d; d++) /* what does not change counts as 0 even times infinity */
      out[d] += s[d] != 0 ? r->hx[m] * s[d] : 0;
  }
}

/* Largest of v over the tolerance at x; not a number if one of v is none. */
static double in_tolerances(Run *r, const double *v, const double *x, const double *y) {
  const double atol = r->plan->atol, rtol = r->plan->rtol;
  const double *unit = r->unit;
  double *ratio = r->ratio, largest = 0, sum = 0;
  for (long i = 0; i < r->N; i++) {
    double a = fabs(x[i]), b = fabs(y[i]);
    ratio[i] = fabs(v[i]) / (atol * unit[i] + rtol * (a > b ? a : b));
  }
  for (int i = 0; i < N_X; i++) ratio[i * r->columns] *= r->plan->slack;
  for (long i = 0; i < r->N; i++) {
    largest = ratio[i] > largest ? ratio[i] : largest;
    sum += 0 * ratio[i];
  }
  return largest / r->plan->slack + sum;
}
