/* The batch integrator, first part: what it is given, and the model with its variations.

   A vector holds a state and its derivatives S along some directions D of (start, q): dS/dt = f_x S +
   f_q D. These stand in panels, rows of eight directions side by side, one for each state, so that all
   that a step does with a panel stays in the cache (`Run`). The driver is the same for all models, and
   compiled once. Functions of a model stand in libraries of its own: `Model` (`runge_kutta_slopes.c`),
   and `Map`, what is measured and what happens at breaks, as most experiments share slopes alone. The
   numbers of the Runge-Kutta pairs (A, E, D of igpe/dynamics/integrators/tableaux.py) stand above this
   text. Sizes (N_X states, N_Q unknowns, N_U inputs) are constants of each function that needs them:
   compilers then know that no loop changes them. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define casadi_int long long int

#if defined(__GNUC__) && !defined(__clang__)
#define HOT __attribute__((optimize("O3"))) /* short loops worth vectorising; everything at this */
#else                                       /* level takes three times as long to compile */
#define HOT
#endif
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) /* for long code that is slower inside loops */
#define SIZED(r) const int N_X = (int)(r)->model->states, N_Q = (int)(r)->model->unknowns

typedef int (*Function)(const double **, double **, casadi_int *, double *, int);
typedef void (*Products)(const double *fx, const double *fq, const double *s, const double *by, double *k,
                         long w, int two);
typedef void (*Along)(double t, const double *x, const double *q, const double *ab, const double *number,
                      double *k, const double *s, const double *by, double *to, long w, int two);

/* The slopes, ab being the inputs' a and b, and c all numbers that stand in the equations (so that
   experiments which differ in those share a library). */
typedef struct {
  Function slope, slopes;    /* (t, x, q, ab, c) -> f and -> f, f_x, f_q */
  Products products;         /* all rows of f_x S + f_q D; by is 0 where f_q D is not wanted */
  Along along;               /* slopes of four directions, or `two` times four, without Jacobians */
  const double *numbers;     /* c */
  long long few;             /* up to how many directions this is faster; 0: it is not there */
  long long states, unknowns, inputs, implicit, work, iwork; /* implicit: variables, see `..._implicit.c` */
  /* Entries of the Jacobians: how many, their rows and columns, where rows begin. Those of f_q by
     unknowns: where each unknown's begin, and which they are. Sparse factors: see `..._linear.c`. */
  long long fx_n, fq_n, lu_n;
  const int *fx_row, *fx_col, *fx_first, *fq_row, *fq_col, *fq_first, *fq_begin, *fq_at;
  const int *lu_order, *lu_place, *lu_first, *lu_col, *lu_diagonal;
} Model;

/* What is measured, or what a break makes of the states (`jump`). The first N_Q unknowns are those of the
   slopes, the others stand here alone. */
typedef struct {
  Function plain, both;      /* (t, x, q, ab, c) -> h and -> h, h_x, h_q */
  const double *numbers;     /* c of these */
  long long size, unknowns;  /* how many are measured, and how many unknowns there are */
  long long x_entries, q_entries; /* of h_x and h_q, with their rows and columns */
  const long long *x_row, *x_col, *q_row, *q_col;
  long long integers, reals; /* of the functions' memory */
} Map;

typedef struct {
  long long intervals;
  const long long *first;   /* (intervals + 1) first piece of each */
  const double *edges;      /* (pieces, 2) where each begins and ends; no input jumps inside */
  const double *inputs;     /* (pieces, 2 N_U) a and b */
  const long long *until;   /* (pieces) first time after those of each */
  const Map *const *breaks; /* (pieces) what happens where each begins, or 0; see `jump` */
  const long long *rows;    /* (intervals + 1) first time of each */
  const double *times;      /* (n_times) */
  const double *row_inputs; /* (n_times, 2 N_U) */
  const double *size;       /* (N_X) of the states */
  const double *most;       /* (N_X) how large each may be */
  const double *nearest;    /* (unknowns) one nearer to 0 counts as so large */
  const double *lower, *upper; /* (implicit) where implicit variables must lie as a piece begins */
  const Model *model;
  const Map *outputs;
  const long long *room;    /* entries of h_x and h_q, size, reals and integers: the most of outputs and breaks */
  double rtol, atol, slack; /* slack: times that derivatives may err more than states */
  long long max_steps, most_steps; /* between outputs or jumps, and between jumps of states */
  long long pair;
  int (*stopped)(void);     /* whether the run must end */
} Plan;

/* What is kept of a run with derivatives, for a sweep back through its steps. */
typedef struct {
  long long room, count;  /* steps there is room for, and steps there were */
  long long *first;       /* (intervals + 1) first step of each */
  long long *kinds;       /* (room, 4) implicit or not, piece, first time in it, and after it */
  double *steps;          /* (room, 2 + STAGES N_X + implicit) where it begins, its length, where the */
                          /* model's Jacobians of the stages stand; implicit variables where it begins */
  double *states;         /* (n_times, N_X + implicit) at these times, with implicit variables */
  double *jumped;         /* (pieces, N_X) before a jump */
} Tape;

typedef struct {
  long long directions;  /* columns beside the state, the probe among them */
  long long rest;        /* 1: the unknowns that move nothing are no directions; what is measured */
                         /* by them stands in further columns */
  const double *starts;  /* (intervals, N_X) */
  const double *implicit; /* (intervals, implicit) variables there, about */
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
  long long *outcome;      /* (intervals, 4): how it ended, state too large, explicit, implicit steps */
  Tape *tape;            /* 0 where nothing is to be kept */
} Batch;

enum { DONE, STEPS, LARGE, NO_NUMBER, TOO_SMALL, MEMORY, START, BEFORE, STOPPED, JUMPED };
enum { EXPLICIT, IMPLICIT, BY_STIFFNESS };

/* Work of one run; k are the slopes of the stages. A vector begins with the state, and goes
   on with panels of N_X rows. The last panel has rows of four where these are enough; where directions
   are no multiple of four, the first one stands several times, `pad` times too often. */
typedef struct {
  const Plan *plan;
  const Model *model;
  const double *q, *ab, *along; /* along: the rows of q, or 0 */
  long directions, pad, lanes, N;  /* lanes: places for directions; N: numbers of a vector */
  long first, panel;      /* place of the first panel, where a line of the cache begins; its numbers */
  double *memory, *x, *end, *stage, *k[STAGES], *carried;
  double *by, *most;      /* rows of q in panels of N_Q rows; how large each direction counts */
  int *moves, *count;     /* for each panel, which rows of q are not 0, and how many; -1: most are */
  double *fx[STAGES], *fq[STAGES]; /* Jacobians at the stages; the first ones where the step begins */
  double *hx, *hq, *map_h, *map_w;
  casadi_int *map_iw;
  double *point, *f, *w;  /* a state, its slope, memory of the model's functions */
  double *near, *near_x, *near_outputs; /* implicit variables of the last slope, where the step begins, and */
                          /* of the outputs, as `..._implicit.c` needs them */
  double *fast;           /* direction of the fastest mode, in the units of the states */
  double rate;            /* of Newton's last corrections, 1 if unknown */
  int probed;             /* whether the last direction is a probe */
  int few;                /* whether directions are so few that ALONG gives their slopes */
  int at_x;               /* whether the first Jacobians are those where the step begins */
  long long piece, tried; /* tried: steps of the whole run */
  double *seen;           /* (STAGES, N_X) where the Jacobians of the stages stand */
  double *dense[STAGES], *sparse[STAGES]; /* factors at the stages, and which were made last */
  int *order[STAGES], is_sparse[STAGES];
  casadi_int *iw;
} Run;

/* Memory for what is measured, and for breaks; 0 if there is none. */
static int made_room(Run *r, const Plan *p) {
  const long long *n = p->room;
  r->hx = malloc(sizeof(double) * (size_t)(n[0] + n[1] + n[2] + n[3] + 4));
  r->map_iw = malloc(sizeof(casadi_int) * (size_t)(n[4] + 1));
  if (!r->hx || !r->map_iw) return 0;
  r->hq = r->hx + n[0] + 1;
  r->map_h = r->hq + n[1] + 1;
  r->map_w = r->map_h + n[2] + 1;
  return 1;
}

static void freed(Run *r) {
  if (r) free(r->hx), free(r->map_iw), free(r->memory), free(r->moves);
  for (int i = 0; r && i < STAGES; i++) free(r->dense[i]);
  free(r);
}

/* How many unknowns are directions, or may be parts of some. */
INLINE long moving(const Plan *p, const Batch *b) {
  return b->rest ? p->model->unknowns : (long)p->outputs->unknowns;
}

/* Numbers of implicit variables and where they are. */
INLINE long nearby(const Model *m) { return m->implicit ? (long)(m->implicit + 2 + m->states) : 0; }

static void slope_at(Run *r, double t, const double *x) {
  const double *arg[6] = {&t, x, r->q, r->ab, r->model->numbers, r->near};
  double *res[1] = {r->f};
  r->model->slope(arg, res, r->iw, r->w, 0);
}

/* With the Jacobians of stage i. */
static void slopes_at(Run *r, double t, const double *x, int i) {
  const double *arg[6] = {&t, x, r->q, r->ab, r->model->numbers, r->near};
  double *res[3] = {r->f, r->fx[i], r->fq[i]};
  r->model->slopes(arg, res, r->iw, r->w, 0);
}

static int finite_all(const double *v, long n) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += 0 * v[i];
  return sum == 0;
}

/* Four numbers anywhere in memory; compilers make of them what the machine has. */
typedef double Four __attribute__((vector_size(32), aligned(8), may_alias));

/* What memcpy does, which few numbers are not worth a call of. */
INLINE void copy(double *to, const double *from, const long n) {
  long i = 0;
  for (; i + 4 <= n; i += 4) *(Four *)(to + i) = *(const Four *)(from + i);
  for (; i < n; i++) to[i] = from[i];
}

/* Implicit variables of which no more is known than where they are, about. */
INLINE void began_near(double *to, const double *from, long n) {
  copy(to, from, n);
  to[n] = to[n + 1] = 0;
}

/* How many panels there are, where one begins in a vector, and how long its rows are. */
INLINE long panels(const Run *r) { return (r->lanes + 7) / 8; }
INLINE long place(const Run *r, long p) { return r->first + r->panel * p; }
INLINE long width(const Run *r, long p) { return r->lanes - 8 * p < 8 ? 4 : 8; }

/* The direction in a lane of a panel; below 0 where the first one stands too often. */
INLINE long direction(const Run *r, long p, long lane) { return 8 * p + lane - r->pad; }

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

/* Add v times a row of w numbers to another one. */
INLINE void add_entry(double *k, double v, const double *by, long w) {
  *(Four *)k += v * *(const Four *)by;
  if (w == 8) *(Four *)(k + 4) += v * *(const Four *)(by + 4);
}

/* Add factor f_q D to the derivatives in panel p, f_q being that of stage i. */
static void add_by_unknowns(const Run *r, int i, long p, double factor, double *k) {
  SIZED(r);
  const Model *model = r->model;
  const int *FQ_ROW = model->fq_row, *FQ_COL = model->fq_col, *FQ_AT = model->fq_at;
  const int *FQ_BEGIN = model->fq_begin, FQ_N = (int)model->fq_n;
  const long w = width(r, p);
  const double *by = r->by + 8 * N_Q * p, *fq = r->fq[i];
  const int *moves = r->moves + N_Q * p;
  for (int m = 0; r->count[p] < 0 && m < FQ_N; m++)
    add_entry(k + FQ_ROW[m] * w, factor * fq[m], by + FQ_COL[m] * w, w);
  for (int n = 0; n < r->count[p]; n++)
    for (int l = FQ_BEGIN[moves[n]]; l < FQ_BEGIN[moves[n] + 1]; l++)
      add_entry(k + FQ_ROW[FQ_AT[l]] * w, factor * fq[FQ_AT[l]], by + moves[n] * w, w);
}

/* The slopes k of the derivatives s in panel p, by the Jacobians of stage i at t and `point`. Those of a
   probe have the same bits among few or many. */
static void slopes_of_panel(Run *r, int i, double t, const double *point, long p, const double *s,
                            double *k) {
  const Model *m = r->model;
  const long w = width(r, p), last = w - 4;
  const double *fx = r->fx[i], *fq = r->fq[i], *by = r->by + 8 * m->unknowns * p;
  const int apart = m->few && r->probed && p == panels(r) - 1, all = r->count[p] < 0;
  if (w == 8 || !apart) m->products(fx, fq, s, all ? by : 0, k, w, w == 8 && !apart);
  if (!all) add_by_unknowns(r, i, p, 1, k);
  if (apart)
    m->along(t, point, r->q, r->ab, m->numbers, r->k[i], s + last, by + last, k + last, w, 0);
}

/* The slopes of x and of few directions, at least four. */
static void slopes_of_few(const Run *r, double t, const double *x, double *k) {
  const Model *m = r->model;
  for (long p = 0; p < panels(r); p++) {
    const long from = place(r, p), w = width(r, p);
    const double *by = r->by + 8 * m->unknowns * p;
    m->along(t, x, r->q, r->ab, m->numbers, k, x + from, by, k + from, w, w == 8);
  }
}

/* The slope of the state x, to k[i], with the Jacobians of stage i if there are directions. */
static void slope_of_state(Run *r, int i, double t, const double *x) {
  if (r->lanes) slopes_at(r, t, x, i);
  else slope_at(r, t, x);
  copy(r->k[i], r->f, r->model->states);
}

/* The slopes of x and of its derivatives, to k[i]. */
static void slopes(Run *r, int i, double t, const double *x) {
  if (r->few) {
    slopes_of_few(r, t, x, r->k[i]);
    return;
  }
  slope_of_state(r, i, t, x);
  for (long p = 0; p < panels(r); p++)
    slopes_of_panel(r, i, t, x, p, x + place(r, p), r->k[i] + place(r, p));
}

/* The derivatives in a vector, to rows of all directions. */
static void unfold(const Run *r, const double *from, double *to) {
  SIZED(r);
  for (long p = 0; p < panels(r); p++) {
    const long w = width(r, p), first = p ? 0 : r->pad;
    double *into = to + direction(r, p, first);
    for (int i = 0; i < N_X; i++)
      memcpy(into + i * r->directions, from + place(r, p) + i * w + first, sizeof(double) * (w - first));
  }
}

/* What is measured at time `row` if the state is x. */
HOT static void write_outputs(Run *r, const Batch *b, long long row, const double *x) {
  SIZED(r);
  const int N_U = (int)r->model->inputs;
  const Plan *p = r->plan;
  const Map *outputs = p->outputs;
  const long n_d = r->directions, n_h = (long)outputs->size;
  const long row_length = n_d + (b->rest ? (long)outputs->unknowns - N_Q : 0);
  const long n_y = (long)r->model->implicit;
  const double *inputs = p->row_inputs + row * 2 * N_U;
  const double *arg[6] = {p->times + row, x, r->q, inputs, outputs->numbers, r->near_outputs};
  double *res[3] = {b->measured + row * n_h, r->hx, r->hq};
  if (n_y) began_near(r->near_outputs, r->near, n_y);
  double *kept = b->tape ? b->tape->states + row * (N_X + n_y) : 0;
  if (kept) copy(kept, x, N_X), copy(kept + N_X, r->near, n_y);
  if (b->states) {
    memcpy(b->states + row * N_X, x, sizeof(double) * N_X);
    unfold(r, x, b->states_by + row * N_X * n_d);
  }
  if (!n_d) {
    outputs->plain(arg, res, r->map_iw, r->map_w, 0);
    return;
  }
  outputs->both(arg, res, r->map_iw, r->map_w, 0);
  double *by = b->measured_by + row * n_h * row_length;
  for (long i = 0; i < n_h * row_length; i++) by[i] = 0;
  for (long m = 0; m < outputs->q_entries; m++) {
    const long long col = outputs->q_col[m];
    double *out = by + outputs->q_row[m] * row_length;
    if (b->rest && col >= N_Q) out[n_d + col - N_Q] += r->hq[m];
    else if (!r->along) out[N_X + col] += r->hq[m];
    else for (long d = 0; d < n_d; d++) { /* what does not change counts as 0 */
      double v = r->along[col * n_d + d]; /* even times infinity */
      out[d] += v != 0 ? r->hq[m] * v : 0;
    }
  }
  for (long i = 0; i < panels(r); i++) {
    const long w = width(r, i), first = i ? 0 : r->pad;
    for (long m = 0; m < outputs->x_entries; m++) {
      const double *s = x + place(r, i) + outputs->x_col[m] * w;
      double *out = by + outputs->x_row[m] * row_length + direction(r, i, 0);
      for (long l = first; l < w; l++) out[l] += s[l] != 0 ? r->hx[m] * s[l] : 0;
    }
  }
}

/* Add sign f tau' to the derivatives, f being the slope at x: what a break at a time tau that moves does. */
static void run_on(Run *r, const Map *h, double t, double sign) {
  SIZED(r);
  slope_at(r, t, r->x);
  for (long p = 0; p < panels(r); p++)
    for (long m = 0, w = width(r, p); m < h->q_entries; m++) {
      const double *by = r->by + 8 * N_Q * p + h->q_col[m] * w;
      for (long i = 0; h->q_row[m] == N_X && i < N_X * w; i++)
        if (by[i % w] != 0) r->x[place(r, p) + i] += sign * r->f[i / w] * r->hq[m] * by[i % w];
    }
}

/* A break at t: the state becomes h, whose last row is the time tau of the break as a function of the
   unknowns. From the slopes before and after it S+ = h_x (S- + f- tau') + h_q - f+ tau', with the new
   inputs ab. 0 if the state is no longer finite. */
static int jump(Run *r, const Map *h, double t, const double *ab) {
  SIZED(r);
  const double *arg[5] = {&t, r->x, r->q, ab, h->numbers};
  double *res[3] = {r->map_h, r->hx, r->hq};
  int moves = 0;
  (r->lanes ? h->both : h->plain)(arg, res, r->map_iw, r->map_w, 0);
  for (long m = 0; r->lanes && m < h->q_entries; m++) moves |= h->q_row[m] == N_X && r->hq[m] != 0;
  if (moves) run_on(r, h, t, 1);
  r->ab = ab;
  memcpy(r->stage, r->x, sizeof(double) * (size_t)r->N);
  for (long i = r->first; i < r->N; i++) r->x[i] = 0;
  copy(r->x, r->map_h, N_X);
  for (long p = 0; p < panels(r); p++) {
    const long w = width(r, p);
    const double *by = r->by + 8 * N_Q * p, *s = r->stage + place(r, p);
    double *to = r->x + place(r, p);
    for (long m = 0; m < h->x_entries; m++) /* what does not change counts as 0 even times infinity */
      for (long l = 0; l < w; l++)
        if (s[h->x_col[m] * w + l] != 0) to[h->x_row[m] * w + l] += r->hx[m] * s[h->x_col[m] * w + l];
    for (long m = 0; m < h->q_entries; m++)
      for (long l = 0; h->q_row[m] < N_X && l < w; l++)
        if (by[h->q_col[m] * w + l] != 0) to[h->q_row[m] * w + l] += r->hq[m] * by[h->q_col[m] * w + l];
  }
  if (moves) run_on(r, h, t, -1);
  return finite_all(r->x, N_X);
}

/* The larger one of two; not a number if one of them is none. */
INLINE double worse(double a, double b) { return a != a || a > b ? a : b; }

/* Largest of v over the tolerance at x and y, of the state; not a number if one of them is none. */
static double state_in_tolerances(const Run *r, const double *v, const double *x, const double *y) {
  SIZED(r);
  const double atol = r->plan->atol, rtol = r->plan->rtol, *size = r->plan->size;
  double largest = 0;
  Four most = {0}, sums = {0};
  int i = 0;
  for (; i + 4 <= N_X; i += 4) {
    const Four a = *(const Four *)(x + i), b = *(const Four *)(y + i), e = *(const Four *)(v + i);
    const Four large = larger(magnitude(a), magnitude(b));
    const Four q = magnitude(e) / (atol * *(const Four *)(size + i) + rtol * large);
    most = larger(q, most);
    sums += 0 * q;
  }
  for (int j = 0; j < 4; j++) largest = worse(most[j] + sums[j], largest);
  for (; i < N_X; i++) {
    const double a = fabs(x[i]), b = fabs(y[i]);
    const double q = fabs(v[i]) / (atol * size[i] + rtol * (a > b ? a : b));
    largest = worse(q + 0 * q, largest);
  }
  return largest;
}

/* The same of the derivatives in panel p, to which v, x and y point; of the probe alone if there is one. */
HOT static double panel_in_tolerances(const Run *r, long p, const double *v, const double *x,
                                      const double *y) {
  SIZED(r);
  const double atol = r->plan->atol, rtol = r->plan->rtol, *size = r->plan->size;
  const long w = width(r, p);
  double largest = 0;
  for (long l = r->probed ? w - 4 : 0; l < w; l += 4) {
    const Four counts = *(const Four *)(r->most + 8 * p + l);
    Four most = {0}, sums = {0};
    for (long i = 0, m = l; i < N_X; i++, m += w) {
      const Four a = *(const Four *)(x + m), b = *(const Four *)(y + m), e = *(const Four *)(v + m);
      const Four large = larger(magnitude(a), magnitude(b));
      const Four q = magnitude(e) / (atol * (size[i] * counts) + rtol * large);
      most = larger(q, most);
      sums += 0 * q;
    }
    for (int j = r->probed ? 3 : 0; j < 4; j++) largest = worse(most[j] + sums[j], largest);
  }
  return largest;
}

/* Both together; derivatives may err `slack` times more. */
INLINE double in_all(const Run *r, double state, double derivatives) {
  const double all = r->probed ? derivatives : worse(state, derivatives);
  return worse(all / r->plan->slack, state);
}

/* The same of whole vectors. */
static double in_tolerances(const Run *r, const double *v, const double *x, const double *y) {
  double derivatives = 0;
  for (long p = r->probed ? panels(r) - 1 : 0; p < panels(r); p++)
    derivatives = worse(derivatives, panel_in_tolerances(r, p, v + place(r, p), x + place(r, p), y + place(r, p)));
  return in_all(r, state_in_tolerances(r, v, x, y), derivatives);
}

/* Room for n numbers in `memory`, from a line of the cache on; counted only where there is none yet. */
static double *room(Run *r, size_t *used, size_t n) {
  double *found = r->memory ? (double *)(((size_t)r->memory + 63) / 64 * 64) + *used : 0;
  *used += (n + 7) / 8 * 8;
  return found;
}

/* Places of all vectors and Jacobians; how many numbers these are. */
static size_t placed(Run *r, size_t many) {
  const Model *m = r->model;
  const size_t n_x = (size_t)m->states;
  double **vectors[3] = {&r->x, &r->end, &r->stage};
  size_t used = 0;
  for (int i = 0; i < 3; i++) *vectors[i] = room(r, &used, (size_t)r->N);
  for (int i = 0; i < STAGES; i++) {
    r->k[i] = room(r, &used, (size_t)r->N);
    r->fx[i] = room(r, &used, (size_t)m->fx_n), r->fq[i] = room(r, &used, (size_t)m->fq_n);
    r->sparse[i] = room(r, &used, (size_t)m->lu_n), r->order[i] = (int *)room(r, &used, n_x);
  }
  r->point = room(r, &used, n_x), r->f = room(r, &used, n_x), r->fast = room(r, &used, n_x);
  r->seen = room(r, &used, STAGES * n_x), r->w = room(r, &used, (size_t)m->work + 1);
  double **near[3] = {&r->near, &r->near_x, &r->near_outputs};
  for (int i = 0; i < 3; i++) *near[i] = room(r, &used, (size_t)nearby(m));
  r->iw = (casadi_int *)room(r, &used, (size_t)m->iwork + 1);
  r->by = room(r, &used, (size_t)(m->unknowns * r->lanes)), r->most = room(r, &used, (size_t)r->lanes);
  r->carried = room(r, &used, many);
  return used + 8;
}

/* Made ready for a batch; 0 if there is no memory. */
static int ready(Run *r, const Plan *p, const Batch *b) {
  SIZED(p);
  const size_t many = (size_t)(N_X + moving(p, b)) * (size_t)b->directions; /* numbers of the directions */
  r->plan = p, r->model = p->model, r->q = b->q, r->directions = (long)b->directions;
  r->lanes = (r->directions + 3) / 4 * 4, r->pad = r->lanes - r->directions;
  r->first = (N_X + 7) / 8 * 8, r->panel = 8 * N_X, r->N = r->first + N_X * r->lanes;
  r->few = b->along && b->directions >= 4 && b->directions <= p->model->few;
  r->probed = b->probed != 0;
  r->memory = calloc(placed(r, many), sizeof(double));
  r->moves = malloc(sizeof(int) * (size_t)((N_Q + 1) * panels(r) + 1));
  if (!r->memory || !r->moves || !made_room(r, p)) return 0;
  placed(r, many);
  r->count = r->moves + N_Q * panels(r);
  if (b->chained) memcpy(r->carried, b->along, sizeof(double) * many);
  return 1;
}
