/* Implicit variables z, solved for inside a function of (t, x, q, ab, c): the driver sees functions of the
   states alone. What is compiled gives [h; g] as functions of (t, [x, z], q, ab, c), g being 0. Equations
   and variables stand in the order of a block triangular form: each diagonal block is factorised with row
   exchanges, and dz/d(x, q) of a block follows from those before. Stands below CasADi's text in each
   library of a model with implicit variables, and above the tables of `formulas.py`.

   A sixth argument is z near the solution, whether factors are known, the sign of the determinant of g_z (0:
   unknown), and the x they belong to; the solution replaces them. Factors serve as long as corrections shrink
   fast. Where the sign changes the root was a double one, and derivatives had no limit: that is refused. */

#include <math.h>

#define IMPLICIT_SLOW 0.2   /* of the correction before: one that is larger needs new factors */
#define IMPLICIT_DONE 1e-13 /* size of the next correction, z being without dimension */
#define IMPLICIT_CLOSE 1e-10 /* of the last one, where h is that before it */
#define IMPLICIT_NOISE 1e-9 /* the same where corrections no longer shrink, being rounding errors */
#define IMPLICIT_MOST 50    /* corrections */
#define IMPLICIT_WORSE 3    /* corrections that grow though their factors are new */

typedef int (*Raw)(const double **, double **, casadi_int *, double *, int);

/* Rows are the equations g in their order, and the `rows` of h. Entries of each: those of z by their
   places in the order, and those of (x, q); `at` is where they stand in what is compiled. */
typedef struct {
  Raw plain, both;
  int n_x, n_q, n_z, rows, blocks, entries, x_entries, work, iwork;
  const int *begin, *block;                /* (blocks + 1) first place of each block;  (n_z) its block */
  const int *variable, *equation;          /* (n_z) which stand at each place */
  const int *z_first, *z_col, *z_at;       /* entries by z of each row */
  const int *own_first, *own_col, *own_at; /* entries by (x, q) of each row */
  const int *some_first, *some;            /* columns of (x, q) that move each block, and each row of h */
  const int *lu_at, *by_at;                /* where factors and derivatives of each block stand */
} Implicit;

/* Work: entries of the Jacobians, factors, derivatives of z by block, a row of (x, q), [h; g], [x, z], and
   corrections of z; the row exchanges. */
typedef struct {
  double *entries, *lu, *by, *row, *value, *point, *change;
  casadi_int *exchanged;
  double sign; /* of the determinant */
} ImplicitWork;

static ImplicitWork implicit_work(const Implicit *s, casadi_int *iw, double *w) {
  ImplicitWork m;
  m.entries = w + s->work;
  m.lu = m.entries + s->entries;
  m.by = m.lu + s->lu_at[s->blocks];
  m.row = m.by + s->by_at[s->blocks];
  m.value = m.row + s->n_x + s->n_q;
  m.point = m.value + s->rows + s->n_z;
  m.change = m.point + s->n_x + s->n_z;
  m.exchanged = iw + s->iwork;
  return m;
}

/* LU factors of a (n, n) with row exchanges, the inverses of the pivots in their places; 0 if singular. */
static int implicit_factors(double *a, casadi_int *exchanged, const int n, double *sign) {
  for (int j = 0; j < n; j++) {
    int best = j;
    for (int i = j + 1; i < n; i++)
      if (fabs(a[i * n + j]) > fabs(a[best * n + j])) best = i;
    exchanged[j] = best;
    if ((best != j) != (a[best * n + j] < 0)) *sign = -*sign;
    if (!(fabs(a[best * n + j]) > 0) || !(fabs(a[best * n + j]) < HUGE_VAL)) return 0;
    for (int i = 0; best != j && i < n; i++) {
      const double held = a[j * n + i];
      a[j * n + i] = a[best * n + i], a[best * n + i] = held;
    }
    const double inverse = a[j * n + j] = 1 / a[j * n + j];
    for (int i = j + 1; i < n; i++) {
      if (a[i * n + j] == 0) continue;
      const double l = a[i * n + j] *= inverse;
      for (int m = j + 1; m < n; m++) a[i * n + m] -= l * a[j * n + m];
    }
  }
  return 1;
}

/* Solve for m right-hand sides, the rows of v having m numbers. */
static void implicit_solve(const double *a, const casadi_int *exchanged, const int n, double *v, const int m) {
  for (int i = 0; i < n; i++)
    for (int j = 0; exchanged[i] != i && j < m; j++) {
      const double held = v[i * m + j];
      v[i * m + j] = v[exchanged[i] * m + j], v[exchanged[i] * m + j] = held;
    }
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      for (int j = 0; a[i * n + k] != 0 && j < m; j++) v[i * m + j] -= a[i * n + k] * v[k * m + j];
  for (int i = n - 1; i >= 0; i--) {
    for (int k = i + 1; k < n; k++)
      for (int j = 0; a[i * n + k] != 0 && j < m; j++) v[i * m + j] -= a[i * n + k] * v[k * m + j];
    for (int j = 0; j < m; j++) v[i * m + j] *= a[i * n + i];
  }
}

/* Derivatives of row i by (x, q), z before place `first` moving with them, to m->row in columns `some`;
   entries by z from `first` on go to `block`. */
static void implicit_row(const Implicit *s, const ImplicitWork *m, int i, int some, int first, double *block) {
  for (int j = s->some_first[some]; j < s->some_first[some + 1]; j++) m->row[s->some[j]] = 0;
  for (int j = s->own_first[i]; j < s->own_first[i + 1]; j++) m->row[s->own_col[j]] += m->entries[s->own_at[j]];
  for (int j = s->z_first[i]; j < s->z_first[i + 1]; j++) {
    const double v = m->entries[s->z_at[j]];
    const int place = s->z_col[j], b = s->block[place], *of = s->some + s->some_first[b];
    if (place >= first) block[place - first] = v;
    else {
      const int n = s->some_first[b + 1] - s->some_first[b];
      const double *by = m->by + s->by_at[b] + (place - s->begin[b]) * n;
      for (int k = 0; v != 0 && k < n; k++) m->row[of[k]] += v * by[k];
    }
  }
}

/* Factors of all blocks, and derivatives of z; 0 if one is singular. */
static int implicit_derivatives(const Implicit *s, ImplicitWork *m) {
  m->sign = 1;
  for (int b = 0; b < s->blocks; b++) {
    const int first = s->begin[b], n = s->begin[b + 1] - first, *of = s->some + s->some_first[b];
    const int wide = s->some_first[b + 1] - s->some_first[b];
    double *a = m->lu + s->lu_at[b], *by = m->by + s->by_at[b];
    for (int i = 0; i < n * n; i++) a[i] = 0;
    for (int i = 0; i < n; i++) {
      implicit_row(s, m, first + i, b, first, a + i * n);
      for (int j = 0; j < wide; j++) by[i * wide + j] = -m->row[of[j]];
    }
    if (!implicit_factors(a, m->exchanged + first, n, &m->sign)) return 0;
    implicit_solve(a, m->exchanged + first, n, by, wide);
  }
  return 1;
}

/* Jacobians and [h; g] where z is now. */
static int implicit_known(const Implicit *s, ImplicitWork *m, const double **given, casadi_int *iw, double *w) {
  double *res[3] = {m->value, m->entries, m->entries + s->x_entries};
  s->both(given, res, iw, w, 0);
  return implicit_derivatives(s, m);
}

/* The correction of z by the factors at hand; returns its size. */
static double implicit_change(const Implicit *s, const ImplicitWork *m) {
  double size = 0;
  for (int b = 0; b < s->blocks; b++) {
    const int first = s->begin[b], n = s->begin[b + 1] - first;
    for (int i = first; i < first + n; i++) {
      double sum = -m->value[s->rows + s->equation[i]];
      for (int j = s->z_first[i]; j < s->z_first[i + 1]; j++)
        if (s->z_col[j] < first) sum -= m->entries[s->z_at[j]] * m->change[s->z_col[j]];
      m->change[i] = sum;
    }
    implicit_solve(m->lu + s->lu_at[b], m->exchanged + first, n, m->change + first, 1);
  }
  for (int i = 0; i < s->n_z; i++) {
    const double z = fabs(m->point[s->n_x + s->variable[i]]);
    const double one = fabs(m->change[i]) / (z > 1 ? z : 1);
    size = one != one || one > size ? one : size;
    if (size != size) break;
  }
  return size;
}

/* z where the states are x, about, if it was z where they were x0: by the derivatives at hand. */
static void implicit_predicted(const Implicit *s, const ImplicitWork *m, const double *x, const double *x0) {
  for (int b = 0; b < s->blocks; b++) {
    const int *of = s->some + s->some_first[b], n = s->some_first[b + 1] - s->some_first[b];
    const double *by = m->by + s->by_at[b];
    for (int i = s->begin[b]; i < s->begin[b + 1]; i++, by += n)
      for (int j = 0; j < n && of[j] < s->n_x; j++)
        m->point[s->n_x + s->variable[i]] += by[j] * (x[of[j]] - x0[of[j]]);
  }
}

/* Solve g = 0 by Newton's method with factors that are kept; [h; g] is at the solution. */
static int implicit_settled(const Implicit *s, ImplicitWork *m, const double **arg, const double **given,
                            casadi_int *iw, double *w) {
  double *near = (double *)arg[5], before = 0;
  int known = near[s->n_z] != 0, fresh = 0, worse = 0;
  for (int i = 0; i < s->n_x; i++) m->point[i] = arg[1][i];
  for (int i = 0; i < s->n_z; i++) m->point[s->n_x + i] = near[i];
  if (known) implicit_predicted(s, m, arg[1], near + s->n_z + 2);
  near[s->n_z] = 0;
  for (int n = 0; n < IMPLICIT_MOST; n++) {
    double *res[1] = {m->value};
    if (known) s->plain(given, res, iw, w, 0);
    else if (!implicit_known(s, m, given, iw, w)) return 0;
    fresh = !known, known = 1;
    const double size = implicit_change(s, m);
    if (!(size < HUGE_VAL)) return 0;
    const int slow = before && size > IMPLICIT_SLOW * before;
    const double next = before ? size * size / before : size;
    if ((next <= IMPLICIT_DONE && size <= IMPLICIT_CLOSE) || (slow && size <= IMPLICIT_NOISE)) {
      for (int i = 0; !slow && i < s->n_z; i++) m->point[s->n_x + s->variable[i]] += m->change[i];
      for (int i = 0; i < s->n_z; i++) near[i] = m->point[s->n_x + i];
      for (int i = 0; i < s->n_x; i++) near[s->n_z + 2 + i] = arg[1][i];
      near[s->n_z] = 1;
      return 1;
    }
    if (slow && !fresh) {
      known = 0;
      continue;
    }
    if (before && size > before && ++worse > IMPLICIT_WORSE) return 0;
    for (int i = 0; i < s->n_z; i++) m->point[s->n_x + s->variable[i]] += m->change[i];
    before = size;
  }
  return 0;
}

/* h, and its derivatives by x and q if `both`; not a number where no z solves g. */
static int implicit_call(const Implicit *s, const double **arg, double **res, casadi_int *iw, double *w, int both) {
  ImplicitWork m = implicit_work(s, iw, w);
  double *sign = (double *)arg[5] + s->n_z + 1;
  const double *given[5] = {arg[0], m.point, arg[2], arg[3], arg[4]};
  const int known = arg[5][s->n_z] != 0;
  int ok = implicit_settled(s, &m, arg, given, iw, w);
  if (!ok && known) ok = implicit_settled(s, &m, arg, given, iw, w); /* as if nothing were known */
  if (ok && both) ok = implicit_known(s, &m, given, iw, w) && m.sign * *sign >= 0;
  if (ok && both) *sign = m.sign;
  for (int i = 0; i < s->rows; i++) res[0][i] = ok ? m.value[i] : NAN;
  for (int i = 0, x = 0, q = 0; both && i < s->rows; i++) {
    const int some = s->blocks + i;
    if (ok) implicit_row(s, &m, s->n_z + i, some, s->n_z, 0);
    for (int j = s->some_first[some]; j < s->some_first[some + 1]; j++) {
      const double v = ok ? m.row[s->some[j]] : NAN;
      if (s->some[j] < s->n_x) res[1][x++] = v;
      else res[2][q++] = v;
    }
  }
  return 0;
}
