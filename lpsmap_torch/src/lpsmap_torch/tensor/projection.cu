// Projections of small components on a GPU, with a warp for each component.
//
// The method and the names are those of forced.py, interior_point.py and newton.py. There, every
// operation is a kernel that reads its numbers from the device's memory and writes them back. Here
// the numbers of a component stay in shared memory until it is solved.

#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += 32)

#define INFINITE (__longlong_as_double(0x7ff0000000000000LL))

// Newton's method stops well below the residual that projection.py demands.
#define NEWTON_STEPS 6
#define EXACT 1e-13
#define ROUNDING 2e-16

// With a larger residual, the result is the last multipliers of the interior point method: those of
// infeasible constraints grow until they prove it.
#define ROUGH 1e-3

// Added to a diagonal of ones, since redundant rows make matrices singular.
#define DAMPING 1e-10

// Added to the diagonal of rows that are not tight, so that their multipliers stay zero.
#define LOOSE 1e30

typedef double real;

__device__ static real total(real x) {
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

__device__ static real largest(real x) {
    for (int i = 16; i; i /= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

__device__ static real within(real x, real least, real most) { return fmin(fmax(x, least), most); }

// The entries of a component's matrix by rows and by columns, padded with zeros.
struct Matrix {
    int n_rows, n_columns, in_row, in_column;
    const int *row_places, *column_places;
    const real *row_values, *column_values;

    __device__ real sum(int r, const real *x) const {
        const int *__restrict__ places = row_places + r * in_row;
        const real *__restrict__ values = row_values + r * in_row;
        real found = 0;
#pragma unroll 4
        for (int i = 0; i < in_row; i++) found += values[i] * x[places[i]];
        return found;
    }

    __device__ real pull(int c, const real *y) const {
        const int *__restrict__ places = column_places + c * in_column;
        const real *__restrict__ values = column_values + c * in_column;
        real found = 0;
#pragma unroll 2
        for (int i = 0; i < in_column; i++) found += values[i] * y[places[i]];
        return found;
    }

    // The sum of positive entries times `x`, and of negative entries times `other`.
    __device__ real half_sum(int r, const real *x, const real *other) const {
        real found = 0;
        for (int i = r * in_row; i < (r + 1) * in_row; i++)
            found += row_values[i] * (row_values[i] > 0 ? x : other)[row_places[i]];
        return found;
    }

    __device__ real half_pull(int c, const real *y, const real *other) const {
        real found = 0;
        for (int i = c * in_column; i < (c + 1) * in_column; i++)
            found += column_values[i] > 0 ? column_values[i] * y[column_places[i]]
                                          : -column_values[i] * other[column_places[i]];
        return found;
    }
};

// The equations A diag(ease) A' + diag(more), solved by the inverse of the matrix that is scaled to
// ones on its diagonal and damped.
struct Equations {
    const Matrix &a;
    const real *ease, *more;
    real *inverse, *scale, *rest, *pulled;
    int stride;

    __device__ void invert() const {
        int n = a.n_rows;
        EACH(r, n) {
            real *own = inverse + r * stride;
            for (int i = 0; i < n; i++) own[i] = 0;
            for (int i = r * a.in_row; i < (r + 1) * a.in_row; i++) {
                int c = a.row_places[i];
                real weight = a.row_values[i] * ease[c];
                if (weight != 0)
                    for (int e = c * a.in_column; e < (c + 1) * a.in_column; e++)
                        own[a.column_places[e]] += weight * a.column_values[e];
            }
            real diagonal = own[r] + more[r];
            scale[r] = diagonal > 1e-200 ? 1 / sqrt(diagonal) : 1;
            own[r] = diagonal > 1e-200 ? diagonal : 0;
        }
        __syncwarp();
        EACH(r, n) {
            real *own = inverse + r * stride;
#pragma unroll 4
            for (int i = 0; i < n; i++) own[i] *= scale[r] * scale[i];
            own[r] = (own[r] > 0 ? 1 : 0) + DAMPING;
        }
        __syncwarp();
        for (int k = 0; k < n; k++) {  // sweeps (Goodnight 1979), which end at the negative inverse
            real pivot = 1 / fmax(inverse[k * stride + k], DAMPING);
            EACH(r, n) {
                if (r == k) continue;
                real *__restrict__ own = inverse + r * stride;
                const real *__restrict__ of_pivot = inverse + k * stride;
                real factor = own[k] * pivot;
                if (factor == 0) continue;
#pragma unroll 8
                for (int i = 0; i < n; i++) own[i] -= factor * of_pivot[i];
            }
            __syncwarp();
            EACH(r, n) {
                real swept = r == k ? -pivot : inverse[k * stride + r] * pivot;
                inverse[k * stride + r] = swept;
                if (r != k) inverse[r * stride + k] = swept;
            }
            __syncwarp();
        }
    }

    // Solve for a right-hand side, refined twice as damping and rounding need.
    __device__ void solve(const real *right, real *x) const {
        int n = a.n_rows;
        EACH(r, n) x[r] = 0, rest[r] = scale[r] * right[r];
        for (int round = 0;; round++) {
            __syncwarp();
            EACH(r, n) {
                real found = 0;
#pragma unroll 8
                for (int i = 0; i < n; i++) found -= inverse[r * stride + i] * rest[i];
                x[r] += scale[r] * found;
            }
            __syncwarp();
            if (round == 2) return;
            EACH(c, a.n_columns) pulled[c] = ease[c] * a.pull(c, x);
            __syncwarp();
            EACH(r, n) rest[r] = scale[r] * (right[r] - a.sum(r, pulled) - more[r] * x[r]);
        }
    }
};

// The change of the multiplier of a bound after which the product with its slack has a value.
__device__ static real change(real slack, real multiplier, real d_slack, real product) {
    return (product - multiplier * d_slack) / slack - multiplier;
}

__device__ static real reach(real slack, real multiplier, real d_slack, real d_multiplier) {
    return fmax(-d_slack / slack, -d_multiplier / multiplier);
}

extern "C" __global__ void project(
    const real *all_scores, const bool *all_allowed, const real *all_low, const real *all_high,
    const int *row_places, const real *row_values, const int *column_places,
    const real *column_values, int n_rows, int n_columns, int in_row, int in_column, int differ,
    int most_iterations, real *found_low, real *found_high, bool *found_open, real *found_fixed,
    real *found_y, real *found_u, bool *found_free, bool *found_tight, real *found_off,
    real *found_inverse, real *found_iterations) {
    extern __shared__ real memory[];
    const long long instance = blockIdx.x;
    const int n = n_columns, m = n_rows;
    const long long row_table = differ * instance * m * in_row;
    const long long column_table = differ * instance * n * in_column;
    const Matrix a = {m, n, in_row, in_column, row_places + row_table, column_places + column_table,
                      row_values + row_table, column_values + column_table};
    const real *eta = all_scores + instance * n;
    found_low += instance * m, found_high += instance * m, found_y += instance * m;
    found_open += instance * n, found_fixed += instance * n, found_u += instance * n;
    found_free += instance * n, found_tight += instance * m, found_off += instance * m;
    found_inverse += instance * m * m;

    real *at = memory;
    real *u = at, *s0 = at += n, *m0 = at += n, *s1 = at += n, *m1 = at += n, *ease = at += n;
    real *t = at += n, *du = at += n;
    at += n;
    real *low = at, *high = at += m, *w = at += m, *s2 = at += m, *m2 = at += m, *s3 = at += m;
    real *m3 = at += m, *y = at += m, *best_y = at += m, *ease_r = at += m, *off = at += m;
    real *right = at += m, *dy = at += m, *dw = at += m, *scale = at += m, *rest = at += m;
    real *inverse = at += m;
    bool *open = (bool *)(inverse + m * (m | 1));
    const Equations equations = {a, ease, ease_r, inverse, scale, rest, t, m | 1};

    // ---------------------------------------------------------------- presolve
    real *least = s0, *most = s1;
    EACH(c, n) least[c] = 0, most[c] = all_allowed[instance * n + c];
    EACH(r, m) low[r] = all_low[instance * m + r], high[r] = all_high[instance * m + r];
    __syncwarp();
    real inconsistent = 0;
    for (int round = 0; round < FORCED_ROUNDS; round++) {
        EACH(r, m) {
            real smallest = a.half_sum(r, least, most), greatest = a.half_sum(r, most, least);
            m2[r] = smallest >= high[r] - SLACK;
            m3[r] = greatest <= low[r] + SLACK;
            w[r] = (smallest >= low[r] - SLACK ? 1 : 0) + (greatest <= high[r] + SLACK ? 2 : 0);
            if (!(smallest <= high[r] + SLACK && greatest >= low[r] - SLACK)) inconsistent = 1;
        }
        __syncwarp();
        real changed = 0;
        EACH(c, n) {
            bool down = a.half_pull(c, m2, m3) > 0, up = a.half_pull(c, m3, m2) > 0;
            real more = up ? most[c] : least[c], less = down ? least[c] : most[c];
            if (more != least[c] || less != most[c]) changed = 1;
            least[c] = more, most[c] = less;
        }
        __syncwarp();
        if (largest(changed) == 0) break;
    }
    const bool consistent = largest(inconsistent) == 0;
    EACH(c, n) {
        open[c] = consistent ? least[c] < most[c] : all_allowed[instance * n + c];
        u[c] = consistent ? least[c] : 0;
        found_open[c] = open[c], found_fixed[c] = u[c];
    }
    EACH(r, m) {
        if (consistent && ((int)w[r] & 1)) low[r] = -INFINITE;
        if (consistent && ((int)w[r] & 2)) high[r] = INFINITE;
        found_low[r] = low[r], found_high[r] = high[r];
    }
    __syncwarp();

    // ---------------------------------------------------------------- the first point
    real size = 0, count = 0;
    EACH(c, n) if (open[c]) size += log1p(fabs(eta[c])), count += 1;
    size = total(size), count = total(count);
    const real product = FIRST_PRODUCT * fmax(expm1(size / fmax(count, 1.0)), 1.0);
    real bounds = 0;
    EACH(c, n) {
        s0[c] = s1[c] = 1, m0[c] = m1[c] = 0;
        if (!open[c]) continue;
        real other = 1 - eta[c];
        real root = sqrt(eta[c] * eta[c] + 4 * product);
        real lower = fmin(eta[c] > 0 ? 0.5 * (eta[c] + root) : 2 * product / (root - eta[c]), 0.5);
        root = sqrt(other * other + 4 * product);
        real upper = fmin(other > 0 ? 0.5 * (other + root) : 2 * product / (root - other), 0.5);
        bool low_half = lower <= upper;
        u[c] = low_half ? lower : 1 - upper;
        s0[c] = u[c], s1[c] = low_half ? 1 - lower : upper;
        m1[c] = low_half ? product / s1[c] : eta[c] - u[c] + product / u[c];
        m0[c] = low_half ? u[c] - eta[c] + m1[c] : product / u[c];
        bounds += 2;
    }
    __syncwarp();
#define EQUAL(r) (low[r] == high[r])
#define HAS_LOW(r) (low[r] > -INFINITE && !EQUAL(r))
#define HAS_HIGH(r) (high[r] < INFINITE && !EQUAL(r))
#define BOUNDED(r) (HAS_LOW(r) || HAS_HIGH(r))
#define UNBOUNDED(r) (low[r] == -INFINITE && high[r] == INFINITE)
    EACH(r, m) {
        real margin = EQUAL(r) ? 0 : fmin(0.25 * (high[r] - low[r]), FIRST_SLACK);
        w[r] = EQUAL(r) ? low[r] : fmax(fmin(a.sum(r, u), high[r] - margin), low[r] + margin);
        s2[r] = HAS_LOW(r) ? w[r] - low[r] : 1, s3[r] = HAS_HIGH(r) ? high[r] - w[r] : 1;
        m2[r] = HAS_LOW(r) ? product / s2[r] : 0, m3[r] = HAS_HIGH(r) ? product / s3[r] : 0;
        y[r] = best_y[r] = m2[r] - m3[r];
        bounds += HAS_LOW(r) + HAS_HIGH(r);
    }
    bounds = fmax(total(bounds), 1.0);
    __syncwarp();

    // ---------------------------------------------------------------- interior point
    real distance_of_best = INFINITE;
    int iteration = 0;
    while (iteration < most_iterations) {
        EACH(r, m) {
            off[r] = UNBOUNDED(r) ? 0 : a.sum(r, u) - w[r];
            ease_r[r] = PROXIMAL;
            if (BOUNDED(r)) ease_r[r] += 1 / (m2[r] / s2[r] + m3[r] / s3[r]);
            if (UNBOUNDED(r)) ease_r[r] += EASE_WITHOUT_BOUNDS;
        }
        EACH(c, n) ease[c] = open[c] ? 1 / (1 + m0[c] / s0[c] + m1[c] / s1[c]) : 0;
        __syncwarp();
        equations.invert();
        real target = 0, clip = 0, length = 1;
        // the predictor aims at products of zero, the corrector at equal products
        for (int corrects = 0; corrects < 2; corrects++) {
            // products that the step aims at, given the changes of the predictor
#define PRODUCT(d_slack, d_multiplier) \
    (corrects ? within(target - (d_slack) * (d_multiplier), -clip, clip) : 0)
#define PREDICTED(s, m, d) change(s, m, d, 0)
            EACH(c, n) {
                real force = eta[c] - u[c] + a.pull(c, y);
                if (open[c]) {
                    force += PRODUCT(du[c], PREDICTED(s0[c], m0[c], du[c])) / s0[c];
                    force -= PRODUCT(-du[c], PREDICTED(s1[c], m1[c], -du[c])) / s1[c];
                }
                t[c] = ease[c] * force;
            }
            __syncwarp();
            EACH(r, m) {
                real of_sums = 0;
                if (BOUNDED(r)) of_sums = -y[r];
                if (HAS_LOW(r)) of_sums += PRODUCT(dw[r], PREDICTED(s2[r], m2[r], dw[r])) / s2[r];
                if (HAS_HIGH(r))
                    of_sums -= PRODUCT(-dw[r], PREDICTED(s3[r], m3[r], -dw[r])) / s3[r];
                right[r] = (ease_r[r] - PROXIMAL) * of_sums - off[r] - a.sum(r, t);
            }
            __syncwarp();
            equations.solve(right, dy);
            // the changes, and how far they may go
            real inverse_length = 0, now = 0, ahead = 0;
            real *moves = t;
            EACH(c, n) {
                real force = eta[c] - u[c] + a.pull(c, y), d = 0;
                if (open[c]) {
                    real p0 = PRODUCT(du[c], PREDICTED(s0[c], m0[c], du[c]));
                    real p1 = PRODUCT(-du[c], PREDICTED(s1[c], m1[c], -du[c]));
                    d = ease[c] * (force + p0 / s0[c] - p1 / s1[c] + a.pull(c, dy));
                    inverse_length = fmax(inverse_length, reach(s0[c], m0[c], d, change(s0[c], m0[c], d, p0)));
                    inverse_length = fmax(inverse_length, reach(s1[c], m1[c], -d, change(s1[c], m1[c], -d, p1)));
                }
                moves[c] = d;
            }
            __syncwarp();
            EACH(r, m) {
                real d = 0;
                if (BOUNDED(r)) {
                    real p2 = HAS_LOW(r) ? PRODUCT(dw[r], PREDICTED(s2[r], m2[r], dw[r])) : 0;
                    real p3 = HAS_HIGH(r) ? PRODUCT(-dw[r], PREDICTED(s3[r], m3[r], -dw[r])) : 0;
                    real own = ease_r[r] - PROXIMAL;
                    // the formula that does not amplify rounding errors
                    d = own < 1 ? own * (p2 / s2[r] - p3 / s3[r] - y[r] - dy[r]) : a.sum(r, moves) + off[r];
                    if (HAS_LOW(r))
                        inverse_length = fmax(inverse_length, reach(s2[r], m2[r], d, change(s2[r], m2[r], d, p2)));
                    if (HAS_HIGH(r))
                        inverse_length = fmax(inverse_length, reach(s3[r], m3[r], -d, change(s3[r], m3[r], -d, p3)));
                }
                rest[r] = d;
            }
            inverse_length = largest(inverse_length);
            __syncwarp();
            if (corrects) {
                length = 1 / fmax(inverse_length / TO_BOUNDARY, 1.0);
                EACH(c, n) {
                    if (!open[c]) continue;
                    real p0 = PRODUCT(du[c], PREDICTED(s0[c], m0[c], du[c]));
                    real p1 = PRODUCT(-du[c], PREDICTED(s1[c], m1[c], -du[c]));
                    real d = moves[c];
                    m0[c] += length * change(s0[c], m0[c], d, p0), s0[c] += length * d;
                    m1[c] += length * change(s1[c], m1[c], -d, p1), s1[c] -= length * d;
                    u[c] += length * d;
                }
                EACH(r, m) {
                    real d = rest[r];
                    real p2 = HAS_LOW(r) ? PRODUCT(dw[r], PREDICTED(s2[r], m2[r], dw[r])) : 0;
                    real p3 = HAS_HIGH(r) ? PRODUCT(-dw[r], PREDICTED(s3[r], m3[r], -dw[r])) : 0;
                    if (HAS_LOW(r)) m2[r] += length * change(s2[r], m2[r], d, p2), s2[r] += length * d;
                    if (HAS_HIGH(r)) m3[r] += length * change(s3[r], m3[r], -d, p3), s3[r] -= length * d;
                    w[r] += length * d, y[r] += length * dy[r];
                }
            } else {
                length = 1 / fmax(inverse_length, 1.0);
#define AHEAD(s, m, d) ((s + length * (d)) * (m + length * change(s, m, d, 0)))
                EACH(c, n) {
                    real d = du[c] = moves[c];
                    if (!open[c]) continue;
                    now += s0[c] * m0[c] + s1[c] * m1[c];
                    ahead += AHEAD(s0[c], m0[c], d) + AHEAD(s1[c], m1[c], -d);
                }
                EACH(r, m) {
                    real d = dw[r] = rest[r];
                    if (HAS_LOW(r)) now += s2[r] * m2[r], ahead += AHEAD(s2[r], m2[r], d);
                    if (HAS_HIGH(r)) now += s3[r] * m3[r], ahead += AHEAD(s3[r], m3[r], -d);
                }
                now = total(now) / bounds, ahead = total(ahead) / bounds;
                real ratio = within(ahead / fmax(now, LEAST_PRODUCT), 0, 1);
                target = now * ratio * ratio * ratio, clip = MOST_CORRECTED * now;
            }
            __syncwarp();
        }

        // the distance from the solution, in multiples of the tolerances
        real residual = 0, most_product = 0;
        EACH(c, n) {
            if (!open[c]) continue;
            real pull = a.pull(c, y);
            real force = fabs(u[c] - eta[c] - pull - m0[c] + m1[c]);
            residual = fmax(residual, force / (1 + fabs(eta[c]) + fabs(pull)));
            most_product = fmax(most_product, fmax(s0[c] * m0[c], s1[c] * m1[c]));
        }
        EACH(r, m) {
            if (!UNBOUNDED(r)) residual = fmax(residual, fabs(a.sum(r, u) - w[r]));
            most_product = fmax(most_product, fmax(s2[r] * m2[r], s3[r] * m3[r]));
        }
        real distance = largest(fmax(residual / CLOSE, most_product / SMALL_PRODUCT));
        iteration++;
        if (distance < distance_of_best) {
            distance_of_best = distance;
            EACH(r, m) best_y[r] = y[r];
        }
        __syncwarp();
        bool is_lost = !(distance < LOST * distance_of_best) && distance_of_best < WITHIN_REACH;
        if (distance_of_best <= 1 || is_lost) break;
    }
    if (threadIdx.x == 0) found_iterations[instance] = iteration;

    // ---------------------------------------------------------------- Newton's method on the pieces
    real *last_y = m2, *dropped = m3;
    EACH(r, m) last_y[r] = y[r], y[r] = best_y[r];
    __syncwarp();
    real least_residual = INFINITE;
    bool is_last = false;
    for (int step = 0;; step++) {
        real free_size = 0, residual = 0;
        EACH(c, n) {
            real x = eta[c] + a.pull(c, y);
            bool free = open[c] && x > 0 && x < 1;
            ease[c] = free;
            if (free) free_size = fmax(free_size, fabs(eta[c]));
            t[c] = open[c] ? within(x, 0, 1) : found_fixed[c];
        }
        __syncwarp();
        EACH(r, m) {
            real sum = a.sum(r, t);
            bool at_low = y[r] + (low[r] - sum) > 0;
            bool tight = at_low || y[r] + (high[r] - sum) < 0 || EQUAL(r);
            off[r] = tight ? (at_low ? low[r] : high[r]) - sum : 0;
            ease_r[r] = tight ? 0 : LOOSE;
            residual = fmax(residual, fabs(tight ? off[r] : y[r]));
            dropped[r] = tight ? 0 : y[r];
        }
        residual = largest(residual), free_size = largest(free_size);
        __syncwarp();
        if (is_last) break;
        if (residual < least_residual) {
            least_residual = residual;
            EACH(r, m) best_y[r] = y[r];
        }
        is_last = step == NEWTON_STEPS || least_residual <= EXACT + ROUNDING * free_size;
        if (is_last) {
            EACH(r, m) y[r] = least_residual < ROUGH ? best_y[r] : last_y[r];
            __syncwarp();
            continue;
        }
        EACH(c, n) t[c] = ease[c] * a.pull(c, dropped);
        __syncwarp();
        EACH(r, m) right[r] = ease_r[r] > 0 ? 0 : off[r] + a.sum(r, t);
        __syncwarp();
        equations.invert();
        equations.solve(right, dy);
        EACH(r, m) y[r] += dy[r] - dropped[r];
        __syncwarp();
    }
    EACH(c, n) found_u[c] = t[c], found_free[c] = ease[c] > 0;
    EACH(r, m) found_y[r] = y[r], found_off[r] = off[r], found_tight[r] = ease_r[r] == 0;
    const bool has_face = least_residual < ROUGH;
    if (has_face) equations.invert();
    for (int r = 0; r < m; r++)
        EACH(i, m)
            found_inverse[r * m + i] =
                has_face ? -scale[r] * scale[i] * inverse[r * (m | 1) + i] : 0;
}
