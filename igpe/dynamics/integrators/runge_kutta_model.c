/* The batch integrator, first part: what it is given, and the model with its variations.

   Matrices of N_X rows hold in their first column a state and beside it its derivatives along some
   directions of (start, q): dS/dt = f_x S + f_q D. The functions of the model stand above this text,
   written by CasADi, ab being the inputs' a and b:

     igpe_slope   (t, x, q, ab, c) -> f      igpe_slopes  (t, x, q, ab, c) -> f, f_x, f_q

   c being all numbers that stand in them (so that experiments which differ in those share a library)
   and so do the sizes, the places of the Jacobians' entries (FX_N, FX_ROW, FX_COL, ...) and the
   numbers of the Runge-Kutta pairs (A, E, D of igpe/dynamics/integrators/tableaux.py). What is
   measured stands in a library of its own, `Told`, as most experiments share slopes alone. */

#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#define HOT __attribute__((optimize("O3"))) /* short loops worth vectorising; everything at this */
#else                                       /* level takes three times as long to compile */
#define HOT
#endif
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* for long code that is slower inside loops */

typedef int (*Function)(const double **, double **, casadi_int *, double *, int);

/* What is measured. The first N_Q unknowns are those of the slopes, the others stand here alone. */
typedef struct {
  Function plain, both;      /* (t, x, q, ab, c) -> h and -> h, h_x, h_q */
  const double *numbers;     /* c of these */
  long long size, unknowns;  /* how many are measured, and how many unknowns there are */
  long long x_entries, q_entries; /* of h_x and h_q, with their rows and columns */
  const long long *x_row, *x_col, *q_row, *q_col;
  long long integers, reals; /* of the functions' memory */
} Told;

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
  const double *nearest;    /* (unknowns) one nearer to 0 counts as so large */
  const double *numbers;    /* of the model's functions */
  const Told *told;
  double rtol, atol, slack; /* slack: times that derivatives may err more than states */
  long long max_steps, most_steps; /* between two outputs or jumps, and in an interval */
  long long pair;
  int (*stopped)(void);     /* whether the run must end */
} Plan;

/* What is kept of a run with derivatives, for a sweep back through its steps. */
typedef struct {
  long long room, count;  /* steps there is room for, and steps there were */
  long long *first;       /* (intervals + 1) first step of each */
  long long *kinds;       /* (room, 4) implicit or not, piece, first time told in it, and after it */
  double *steps;          /* (room, 2 + STAGES N_X) where it begins, its length, where the model's */
                          /* Jacobians of the stages stand */
  double *states;         /* (n_times, N_X) of which was told */
} Tape;

typedef struct {
  long long directions;  /* columns beside the state, the probe among them */
  long long rest;        /* 1: the unknowns that move nothing are no directions; what is measured */
                         /* by them stands in further columns */
  const double *starts;  /* (intervals, N_X) */
  const double *q;       /* (unknowns) */
  const double *along;   /* (intervals, N_X + those unknowns, directions), or 0 for unit directions */
  const double *gaps;    /* (intervals, N_X) where chained, before each; 0 for those there are */
  long long probed;      /* 1: the last direction is a probe, with which every interval begins; */
                         /* the steps depend on it and on the state alone */
  long long chained;     /* 1: along is of the first interval; each goes on where the one before */
                         /* ended, the gap between them being added to the last but the probe */
  double *ends;          /* (intervals, N_X) */
  double *ends_by;       /* (intervals, N_X, directions) */
  double *measured;      /* (n_times, size) */
  double *measured_by;   /* (n_times, size, directions and the rest) */
  double *states;        /* (n_times, N_X), or 0 where nobody needs them */
  double *states_by;     /* (n_times, N_X, directions) */
  double *reached;       /* (intervals) */
  long long *told;       /* (intervals, 4): how it ended, state too large, explicit, implicit steps */
  Tape *tape;            /* 0 where nothing is to be kept */
} Batch;

enum { DONE, STEPS, LARGE, NO_NUMBER, TOO_SMALL, MEMORY, START, BEFORE, STOPPED };
enum { EXPLICIT, IMPLICIT, BY_STIFFNESS };

/* Work of one run; k are the slopes of the stages, N = columns N_X numbers each. */
typedef struct {
  const Plan *plan;
  const double *q, *ab, *along; /* along: the rows of q, or 0 */
  long columns, N;
  double *x, *end, *stage, *last, *unit, *ratio, *k[STAGES], *carried;
  double *hx, *hq, *told_h, *told_w;
  casadi_int *told_iw;
  double point[N_X], f[N_X], fx[FX_N + 1], fq[FQ_N + 1], lu[N_X * N_X], w[WORK + 1];
  double fast[N_X];       /* direction of the fastest mode, in the units of the states */
  double rate;            /* of Newton's last corrections, 1 if unknown */
  int probed;             /* whether the last direction is a probe */
  int few;                /* whether directions are so few that ALONG gives their slopes */
  int recording;          /* whether the points of stages are kept, in `seen` */
  long long piece;
  double seen[STAGES * N_X];
  int order[N_X], at_x;   /* of the rows in the factors; at_x: fx is that where the step begins */
  double sparse[LU_N + 1];
  int is_sparse;          /* which factors were made last, `sparse` or `lu` */
  casadi_int iw[IWORK + 1];
} Run;

/* Memory for what is measured; 0 if there is none. */
static int made_room(Run *r, const Told *told) {
  const size_t reals = (size_t)(told->x_entries + told->q_entries + told->size + told->reals + 4);
  r->hx = malloc(sizeof(double) * reals);
  r->told_iw = malloc(sizeof(casadi_int) * (size_t)(told->integers + 1));
  if (!r->hx || !r->told_iw) return 0;
  r->hq = r->hx + told->x_entries + 1;
  r->told_h = r->hq + told->q_entries + 1;
  r->told_w = r->told_h + told->size + 1;
  return 1;
}

static void freed(Run *r) {
  if (r) free(r->hx), free(r->told_iw);
  free(r);
}

/* How many unknowns are directions, or may be parts of some. */
INLINE long moving(const Plan *p, const Batch *b) {
  return b->rest ? N_Q : (long)p->told->unknowns;
}

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

typedef long long Mask __attribute__((vector_size(32), aligned(8), may_alias));

INLINE Four magnitude(Four v) { return (Four)((Mask)v & 0x7fffffffffffffffLL); }

/* The larger one of each pair; the second where the first is not a number. */
INLINE Four larger(Four a, Four b) {
  const Mask first = a > b;
  return (Four)((first & (Mask)a) | (~first & (Mask)b));
}

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

/* Rows of f_x S + f_q D, PRODUCTS being made of these: row i begins, an entry m of f_x in column j,
   one of f_q, the row ends. It is four columns and, if there are `two`, four more e columns on.
   LOOPED is what PRODUCTS is where it would be too long to be written out. */
#define ROW(i) { Four one = {0, 0, 0, 0}, other = {0, 0, 0, 0};
#define BY_X(m, j) ADD(r->fx[m], s + (j) * c)
#define BY_Q(m, j) if (by) ADD(r->fq[m], by + (j) * (c - 1))
#define ADD(v, from) { \
    one += v * *(const Four *)(from); \
    if (two) other += v * *(const Four *)(from + e); \
  }
#define ENDS(i) *(Four *)(k + (i) * c) = one; if (two) *(Four *)(k + (i) * c + e) = other; }
#define LOOPED \
  for (int i = 0; i < N_X; i++) { \
    ROW(i) \
    for (int m = FX_FIRST[i]; m < FX_FIRST[i + 1]; m++) BY_X(m, FX_COL[m]) \
    for (int m = FQ_FIRST[i]; m < FQ_FIRST[i + 1]; m++) BY_Q(m, FQ_COL[m]) \
    ENDS(i) \
  }

INLINE void products(const Run *r, const double *restrict s, const double *restrict by,
                     double *restrict k, const int two, const long e) {
  const long c = r->columns;
  PRODUCTS
}

static void products_of_one(const Run *r, const double *s, double *k) {
  const long c = r->columns;
  for (int i = 0; i < N_X; i++) {
    double sum = 0;
    for (int m = FX_FIRST[i]; m < FX_FIRST[i + 1]; m++) sum += r->fx[m] * s[FX_COL[m] * c];
    k[i * c] = sum;
  }
}

/* The slopes of the first n derivatives S; the last of them may be computed twice. */
static void slopes_of_derivatives(const Run *r, const double *x, double *k, const long n) {
  const long c = r->columns;
  const double *s = x + 1, *by = r->along;
  long d = 0;
  k++;
  for (; n >= 4 && d + 4 < n; d += 8) {
    const long e = d + 8 <= n ? 4 : n - 4 - d;
    if (by) products(r, s + d, by + d, k + d, 1, e);
    else products(r, s + d, 0, k + d, 1, e);
  }
  if (n >= 4 && d < n) {
    if (by) products(r, s + n - 4, by + n - 4, k + n - 4, 0, 0);
    else products(r, s + n - 4, 0, k + n - 4, 0, 0);
  }
  for (; n < 4 && d < n; d++) products_of_one(r, s + d, k + d);
  for (int m = 0; m < FQ_N && !by; m++) k[FQ_ROW[m] * c + N_X + FQ_COL[m]] += r->fq[m];
  for (int m = 0; m < FQ_N && by && n < 4; m++)
    axpy(k + FQ_ROW[m] * c, r->fq[m], by + FQ_COL[m] * (c - 1), n);
}

/* The slopes of x and of four of its directions from column d, and of four more e columns on, without
   Jacobians: ALONG is written for that, line by line, where it is faster. */
INLINE void along(const Run *r, const double t, const double *x, double *restrict k, const long d,
                  const long e) {
  const long c = r->columns;
  const double *s = x + 1 + d, *by = r->along + d, *number = r->plan->numbers;
  double *to = k + 1 + d;
  ALONG
}

APART void along_four(const Run *r, double t, const double *x, double *k, long d) {
  along(r, t, x, k, d, 0);
}

APART void along_eight(const Run *r, double t, const double *x, double *k, long d, long e) {
  along(r, t, x, k, d, e);
}

/* The slopes of x and of few directions, at least four. */
static void slopes_of_few(const Run *r, double t, const double *x, double *k) {
  const long n = r->columns - 1;
  long d = 0;
  for (; d + 4 < n; d += 8) along_eight(r, t, x, k, d, d + 8 <= n ? 4 : n - 4 - d);
  if (d < n) along_four(r, t, x, k, n - 4);
}

/* The slopes of x and of its derivatives; those of a probe have the same bits among few or many. */
static void slopes(Run *r, double t, const double *x, double *k) {
  const long c = r->columns;
  if (r->few) {
    slopes_of_few(r, t, x, k);
    if (r->recording) gather(r, x, r->point);
    return;
  }
  gather(r, x, r->point);
  if (c == 1) {
    slope_at(r, t, r->point);
    memcpy(k, r->f, sizeof r->f);
    return;
  }
  slopes_at(r, t, r->point);
  for (int i = 0; i < N_X; i++) k[i * c] = r->f[i];
  const long apart = FEW && r->probed ? 4 : 0;
  slopes_of_derivatives(r, x, k, c - 1 - apart);
  if (apart) along_four(r, t, x, k, c - 5);
}

/* Keep where the Jacobians of stage i stand. */
INLINE void keep(Run *r, int i) {
  if (r->recording) memcpy(r->seen + i * N_X, r->point, sizeof r->point);
}

/* What is measured at time `row` if the state is x. */
HOT static void tell(Run *r, const Batch *b, long long row, const double *x) {
  const Plan *p = r->plan;
  const Told *told = p->told;
  const long c = r->columns, n_d = c - 1, n_h = (long)told->size;
  const long width = n_d + (b->rest ? (long)told->unknowns - N_Q : 0);
  const double *arg[5] = {p->times + row, r->point, r->q, p->row_inputs + row * 2 * N_U,
                          told->numbers};
  double *res[3] = {b->measured + row * n_h, r->hx, r->hq};
  gather(r, x, r->point);
  if (b->tape) memcpy(b->tape->states + row * N_X, r->point, sizeof r->point);
  for (int i = 0; b->states && i < N_X; i++) {
    b->states[row * N_X + i] = x[i * c];
    memcpy(b->states_by + (row * N_X + i) * n_d, x + i * c + 1, sizeof(double) * n_d);
  }
  if (c == 1) {
    told->plain(arg, res, r->told_iw, r->told_w, 0);
    return;
  }
  told->both(arg, res, r->told_iw, r->told_w, 0);
  double *by = b->measured_by + row * n_h * width;
  for (long i = 0; i < n_h * width; i++) by[i] = 0;
  for (long m = 0; m < told->q_entries; m++) {
    const long long col = told->q_col[m];
    double *out = by + told->q_row[m] * width;
    if (b->rest && col >= N_Q) out[n_d + col - N_Q] += r->hq[m];
    else if (!r->along) out[N_X + col] += r->hq[m];
    else for (long d = 0; d < n_d; d++) { /* what does not change counts as 0 */
      double v = r->along[col * n_d + d]; /* even times infinity */
      out[d] += v != 0 ? r->hq[m] * v : 0;
    }
  }
  for (long m = 0; m < told->x_entries; m++) {
    const double *s = x + told->x_col[m] * c + 1;
    double *out = by + told->x_row[m] * width;
    for (long d = 0; d < n_d; d++)
      out[d] += s[d] != 0 ? r->hx[m] * s[d] : 0;
  }
}

/* Largest of v over the tolerance at x, of the state and the last direction alone; not a number if
   one of them is none. */
HOT static double probe_in_tolerances(const Run *r, const double *v, const double *x, const double *y) {
  const long c = r->columns;
  const double atol = r->plan->atol, rtol = r->plan->rtol, slack = r->plan->slack;
  double largest = 0, sum = 0;
  for (int which = 0; which < 2; which++) {
    double most = 0;
    for (long i = which * (c - 1); i < r->N; i += c) {
      double a = fabs(x[i]), b = fabs(y[i]);
      double ratio = fabs(v[i]) / (atol * r->unit[i] + rtol * (a > b ? a : b));
      most = ratio > most ? ratio : most;
      sum += 0 * ratio;
    }
    most /= which ? slack : 1;
    largest = most > largest ? most : largest;
  }
  return largest + sum;
}

/* The same of all; each number over its tolerance goes to `ratio` on the way. */
static double in_tolerances(Run *r, const double *v, const double *x, const double *y) {
  if (r->probed) return probe_in_tolerances(r, v, x, y);
  const double atol = r->plan->atol, rtol = r->plan->rtol, slack = r->plan->slack;
  const double *unit = r->unit;
  double *ratio = r->ratio, largest = 0, sum = 0;
  Four most = {0}, sums = {0};
  long i = 0;
  for (; i + 4 <= r->N; i += 4) {
    const Four a = *(const Four *)(x + i), b = *(const Four *)(y + i), e = *(const Four *)(v + i);
    const Four size = larger(magnitude(a), magnitude(b));
    const Four q = magnitude(e) / (atol * *(const Four *)(unit + i) + rtol * size);
    *(Four *)(ratio + i) = q;
    most = larger(q, most);
    sums += 0 * q;
  }
  for (; i < r->N; i++) {
    double a = fabs(x[i]), b = fabs(y[i]);
    double q = ratio[i] = fabs(v[i]) / (atol * unit[i] + rtol * (a > b ? a : b));
    largest = q > largest ? q : largest;
    sum += 0 * q;
  }
  for (int j = 0; j < 4; j++) largest = most[j] > largest ? most[j] : largest, sum += sums[j];
  largest /= slack;
  for (i = 0; i < N_X; i++) {
    double q = ratio[i * r->columns];
    largest = q > largest ? q : largest;
  }
  return largest + sum;
}
