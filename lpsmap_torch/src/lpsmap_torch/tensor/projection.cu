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

static __device__ real total(real x) {
    for (int i = 16; i; i /= 2) x += __shfl_xor_sync(0xffffffffu, x, i);
    return x;
}

static __device__ real largest(real x) {
    for (int i = 16; i; i /= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

static __device__ real within(real x, real least, real most) { return fmin(fmax(x, least), most); }

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
static __device__ real change(real slack, real multiplier, real d_slack, real product) {
    return (product - multiplier * d_slack) / slack - multiplier;
}

// The inverse of the longest step within a bound and its multiplier's.
static __device__ real reach(real slack, real multiplier, real d_slack, real product) {
    real d_multiplier = change(slack, multiplier, d_slack, product);
    return fmax(-d_slack / slack, -d_multiplier / multiplier);
}

// The products of slacks and multipliers that a step aims at: zero for the predictor, and equal
// products for the corrector, given the changes of the predictor.
struct Aim {
    bool corrects;
    real target, most;

    __device__ real product(real slack, real multiplier, real predicted) const {
        if (!corrects) return 0;
        real d_multiplier = change(slack, multiplier, predicted, 0);
        return within(target - predicted * d_multiplier, -most, most);
    }
};

// A component; all its numbers are in shared memory.
struct Component {
    Matrix a;
    const real *eta;
    // of columns: numbers, lower and upper slacks and multipliers, and inverse stiffnesses
    real *u, *s0, *m0, *s1, *m1, *ease, *t, *du;
    // of rows: bounds, sums, lower and upper slacks and multipliers, and inverse stiffnesses
    real *low, *high, *w, *s2, *m2, *s3, *m3, *y, *best_y, *ease_r, *off, *right, *dy, *dw;
    real *scale, *rest, *inverse;
    bool *open;
    real proximal;  // the proximal terms of multipliers

    __device__ Component(const Matrix &matrix, const real *scores, real *memory)
        : a(matrix), eta(scores) {
        real **of_columns[] = {&u, &s0, &m0, &s1, &m1, &ease, &t, &du};
        real **of_rows[] = {&low, &high, &w,   &s2,    &m2, &s3, &m3,    &y,
                            &best_y, &ease_r, &off, &right, &dy, &dw, &scale, &rest};
#pragma unroll
        for (real **array : of_columns) *array = memory, memory += a.n_columns;
#pragma unroll
        for (real **array : of_rows) *array = memory, memory += a.n_rows;
        inverse = memory;
        open = (bool *)(inverse + a.n_rows * (a.n_rows | 1));
    }

    __device__ Equations equations() const {
        return {a, ease, ease_r, inverse, scale, rest, t, a.n_rows | 1};
    }

    __device__ bool is_equal(int r) const { return low[r] == high[r]; }
    __device__ bool has_low(int r) const { return low[r] > -INFINITE && !is_equal(r); }
    __device__ bool has_high(int r) const { return high[r] < INFINITE && !is_equal(r); }
    __device__ bool is_bounded(int r) const { return has_low(r) || has_high(r); }
    __device__ bool is_free(int r) const { return low[r] == -INFINITE && high[r] == INFINITE; }

    // Fix forced numbers, and remove bounds that always hold; see forced.py.
    __device__ void presolve(const bool *allowed) {
        const int n = a.n_columns, m = a.n_rows;
        real *least = s0, *most = s1, *at_least = m2, *at_most = m3;
        EACH(c, n) least[c] = 0, most[c] = allowed[c];
        __syncwarp();
        real inconsistent = 0;
        for (int round = 0; round < FORCED_ROUNDS; round++) {
            EACH(r, m) {
                real smallest = a.half_sum(r, least, most), greatest = a.half_sum(r, most, least);
                at_least[r] = smallest >= high[r] - SLACK;
                at_most[r] = greatest <= low[r] + SLACK;
                w[r] = (smallest >= low[r] - SLACK ? 1 : 0) + (greatest <= high[r] + SLACK ? 2 : 0);
                bool is_possible = smallest <= high[r] + SLACK && greatest >= low[r] - SLACK;
                if (!is_possible) inconsistent = 1;
            }
            __syncwarp();
            real changed = 0;
            EACH(c, n) {
                bool down = a.half_pull(c, at_least, at_most) > 0;
                bool up = a.half_pull(c, at_most, at_least) > 0;
                real more = up ? most[c] : least[c], less = down ? least[c] : most[c];
                if (more != least[c] || less != most[c]) changed = 1;
                least[c] = more, most[c] = less;
            }
            __syncwarp();
            if (largest(changed) == 0) break;
        }
        const bool consistent = largest(inconsistent) == 0;
        EACH(c, n) {
            open[c] = consistent ? least[c] < most[c] : allowed[c];
            u[c] = consistent ? least[c] : 0;
        }
        EACH(r, m) {
            if (consistent && ((int)w[r] & 1)) low[r] = -INFINITE;
            if (consistent && ((int)w[r] & 2)) high[r] = INFINITE;
        }
        __syncwarp();
    }

    // Go to a point near the central path without the constraints on sums; return the number of
    // bounds.
    __device__ real begin() {
        real size = 0, count = 0, bounds = 0;
        EACH(c, a.n_columns) if (open[c]) size += log1p(fabs(eta[c])), count += 1;
        size = total(size), count = total(count);
        const real product = FIRST_PRODUCT * fmax(expm1(size / fmax(count, 1.0)), 1.0);
        EACH(c, a.n_columns) {
            s0[c] = s1[c] = 1, m0[c] = m1[c] = 0;
            if (!open[c]) continue;
            real lower = one_sided(eta[c], product), upper = one_sided(1 - eta[c], product);
            bool low_half = lower <= upper;
            u[c] = low_half ? lower : 1 - upper;
            s0[c] = u[c], s1[c] = low_half ? 1 - lower : upper;
            m1[c] = low_half ? product / s1[c] : eta[c] - u[c] + product / u[c];
            m0[c] = low_half ? u[c] - eta[c] + m1[c] : product / u[c];
            bounds += 2;
        }
        __syncwarp();
        EACH(r, a.n_rows) {
            real margin = is_equal(r) ? 0 : fmin(0.25 * (high[r] - low[r]), FIRST_SLACK);
            real inside = fmax(fmin(a.sum(r, u), high[r] - margin), low[r] + margin);
            w[r] = is_equal(r) ? low[r] : inside;
            s2[r] = has_low(r) ? w[r] - low[r] : 1, s3[r] = has_high(r) ? high[r] - w[r] : 1;
            m2[r] = has_low(r) ? product / s2[r] : 0, m3[r] = has_high(r) ? product / s3[r] : 0;
            y[r] = best_y[r] = m2[r] - m3[r];
            bounds += has_low(r) + has_high(r);
        }
        __syncwarp();
        return fmax(total(bounds), 1.0);
    }

    // Return the positive root of u - eta = product / u, without cancellation, up to a half.
    static __device__ real one_sided(real eta, real product) {
        real root = sqrt(eta * eta + 4 * product);
        return fmin(eta > 0 ? 0.5 * (eta + root) : 2 * product / (root - eta), 0.5);
    }

    // Prepare the equations of the steps from the point.
    __device__ void linearise() {
        real size = 1;
        EACH(r, a.n_rows) size = fmax(size, fabs(y[r]));
        proximal = PROXIMAL / largest(size);
        EACH(r, a.n_rows) {
            off[r] = is_free(r) ? 0 : a.sum(r, u) - w[r];
            ease_r[r] = proximal;
            if (is_bounded(r)) ease_r[r] += 1 / (m2[r] / s2[r] + m3[r] / s3[r]);
            if (is_free(r)) ease_r[r] += EASE_WITHOUT_BOUNDS;
        }
        EACH(c, a.n_columns) ease[c] = open[c] ? 1 / (1 + m0[c] / s0[c] + m1[c] / s1[c]) : 0;
        __syncwarp();
        equations().invert();
    }

    // The products of the lower and the upper bound of a column, and of a row, after a step.
    __device__ real lower(const Aim &aim, int c) const { return aim.product(s0[c], m0[c], du[c]); }
    __device__ real upper(const Aim &aim, int c) const { return aim.product(s1[c], m1[c], -du[c]); }
    __device__ real lowest(const Aim &aim, int r) const {
        return has_low(r) ? aim.product(s2[r], m2[r], dw[r]) : 0;
    }
    __device__ real highest(const Aim &aim, int r) const {
        return has_high(r) ? aim.product(s3[r], m3[r], -dw[r]) : 0;
    }

    // Find the step to some products: changes of numbers in `t`, of sums in `rest`, and of
    // multipliers in `dy`. Return the inverse of the longest step within all bounds.
    __device__ real step_to(const Aim &aim) {
        EACH(c, a.n_columns) {
            real force = eta[c] - u[c] + a.pull(c, y);
            if (open[c]) force += lower(aim, c) / s0[c] - upper(aim, c) / s1[c];
            t[c] = ease[c] * force;
        }
        __syncwarp();
        EACH(r, a.n_rows) {
            real of_sums = 0;
            if (is_bounded(r)) of_sums = lowest(aim, r) / s2[r] - highest(aim, r) / s3[r] - y[r];
            right[r] = (ease_r[r] - proximal) * of_sums - off[r] - a.sum(r, t);
        }
        __syncwarp();
        equations().solve(right, dy);
        real most = 0;
        EACH(c, a.n_columns) {
            t[c] = 0;
            if (!open[c]) continue;
            real p0 = lower(aim, c), p1 = upper(aim, c);
            real force = eta[c] - u[c] + a.pull(c, y) + p0 / s0[c] - p1 / s1[c];
            real d = t[c] = ease[c] * (force + a.pull(c, dy));
            most = fmax(most, fmax(reach(s0[c], m0[c], d, p0), reach(s1[c], m1[c], -d, p1)));
        }
        __syncwarp();
        EACH(r, a.n_rows) {
            rest[r] = 0;
            if (!is_bounded(r)) continue;
            real p2 = lowest(aim, r), p3 = highest(aim, r), own = ease_r[r] - proximal;
            // the formula that does not amplify rounding errors
            real of_sums = p2 / s2[r] - p3 / s3[r] - y[r];
            real d = rest[r] = own < 1 ? own * (of_sums - dy[r]) : a.sum(r, t) + off[r];
            if (has_low(r)) most = fmax(most, reach(s2[r], m2[r], d, p2));
            if (has_high(r)) most = fmax(most, reach(s3[r], m3[r], -d, p3));
        }
        most = largest(most);
        __syncwarp();
        return most;
    }

    // Keep the changes of the predictor, and return the aim of the corrector.
    __device__ Aim corrector(real length, real bounds) {
        real now = 0, ahead = 0;
        EACH(c, a.n_columns) {
            du[c] = t[c];
            if (!open[c]) continue;
            now += s0[c] * m0[c] + s1[c] * m1[c];
            ahead += after(s0[c], m0[c], t[c], length) + after(s1[c], m1[c], -t[c], length);
        }
        EACH(r, a.n_rows) {
            dw[r] = rest[r];
            if (has_low(r)) now += s2[r] * m2[r], ahead += after(s2[r], m2[r], rest[r], length);
            if (has_high(r)) now += s3[r] * m3[r], ahead += after(s3[r], m3[r], -rest[r], length);
        }
        now = total(now) / bounds, ahead = total(ahead) / bounds;
        __syncwarp();
        real ratio = within(ahead / fmax(now, LEAST_PRODUCT), 0, 1);
        return {true, now * ratio * ratio * ratio, MOST_CORRECTED * now};
    }

    // The product of a slack and its multiplier after a part of a step to a product of zero.
    static __device__ real after(real slack, real multiplier, real d_slack, real length) {
        real d_multiplier = change(slack, multiplier, d_slack, 0);
        return (slack + length * d_slack) * (multiplier + length * d_multiplier);
    }

    // Move by a part of the step to some products.
    __device__ void move(const Aim &aim, real length) {
        EACH(c, a.n_columns) {
            if (!open[c]) continue;
            real p0 = lower(aim, c), p1 = upper(aim, c), d = t[c];
            m0[c] += length * change(s0[c], m0[c], d, p0), s0[c] += length * d;
            m1[c] += length * change(s1[c], m1[c], -d, p1), s1[c] -= length * d;
            u[c] += length * d;
        }
        EACH(r, a.n_rows) {
            real p2 = lowest(aim, r), p3 = highest(aim, r), d = rest[r];
            if (has_low(r)) m2[r] += length * change(s2[r], m2[r], d, p2), s2[r] += length * d;
            if (has_high(r)) m3[r] += length * change(s3[r], m3[r], -d, p3), s3[r] -= length * d;
            w[r] += length * d, y[r] += length * dy[r];
        }
        __syncwarp();
    }

    // Return the distance from the solution, in multiples of the tolerances.
    __device__ real distance() const {
        real residual = 0, product = 0;
        EACH(c, a.n_columns) {
            if (!open[c]) continue;
            real pull = a.pull(c, y);
            real force = fabs(u[c] - eta[c] - pull - m0[c] + m1[c]);
            residual = fmax(residual, force / (1 + fabs(eta[c]) + fabs(pull)));
            product = fmax(product, fmax(s0[c] * m0[c], s1[c] * m1[c]));
        }
        EACH(r, a.n_rows) {
            if (!is_free(r)) residual = fmax(residual, fabs(a.sum(r, u) - w[r]));
            product = fmax(product, fmax(s2[r] * m2[r], s3[r] * m3[r]));
        }
        return largest(fmax(residual / CLOSE, product / SMALL_PRODUCT));
    }

    // Leave the multipliers next to the solution in `best_y`; return the number of iterations. See
    // interior_point.py.
    __device__ int approach(int most_iterations) {
        const real bounds = begin();
        real least = INFINITE;
        int iteration = 0;
        while (iteration < most_iterations) {
            linearise();
            const Aim predictor = {false, 0, 0};
            const Aim aim = corrector(1 / fmax(step_to(predictor), 1.0), bounds);
            move(aim, 1 / fmax(step_to(aim) / TO_BOUNDARY, 1.0));
            iteration++;
            real now = distance();
            if (now < least) {
                least = now;
                EACH(r, a.n_rows) best_y[r] = y[r];
            }
            __syncwarp();
            bool is_lost = !(now < LOST * least) && least < WITHIN_REACH;
            if (least <= 1 || is_lost) break;
        }
        return iteration;
    }

    // Find the pieces at the multipliers: values in `t`, flags of free numbers in `ease`, and of
    // tight sums in `ease_r`. Return the residual; `rounding` becomes the one to stop at.
    __device__ real find_pieces(const real *fixed, real *dropped, real *rounding) {
        real free_size = 0, residual = 0;
        EACH(c, a.n_columns) {
            real x = eta[c] + a.pull(c, y);
            bool free = open[c] && x > 0 && x < 1;
            ease[c] = free;
            if (free) free_size = fmax(free_size, fabs(eta[c]));
            t[c] = open[c] ? within(x, 0, 1) : fixed[c];
        }
        __syncwarp();
        EACH(r, a.n_rows) {
            real sum = a.sum(r, t);
            bool at_low = y[r] + (low[r] - sum) > 0;
            bool tight = at_low || y[r] + (high[r] - sum) < 0 || is_equal(r);
            off[r] = tight ? (at_low ? low[r] : high[r]) - sum : 0;
            ease_r[r] = tight ? 0 : LOOSE;
            residual = fmax(residual, fabs(tight ? off[r] : y[r]));
            dropped[r] = tight ? 0 : y[r];
        }
        residual = largest(residual), *rounding = EXACT + ROUNDING * largest(free_size);
        __syncwarp();
        return residual;
    }

    // Solve from `best_y` by Newton's method, and leave the pieces of the solution; return whether
    // they are close to it. See newton.py.
    __device__ bool finish(const real *fixed) {
        real *last_y = m2, *dropped = m3, least = INFINITE;
        EACH(r, a.n_rows) last_y[r] = y[r], y[r] = best_y[r];
        __syncwarp();
        for (int step = 0;; step++) {
            real rounding, residual = find_pieces(fixed, dropped, &rounding);
            if (residual < least) {
                least = residual;
                EACH(r, a.n_rows) best_y[r] = y[r];
            }
            if (step == NEWTON_STEPS || least <= rounding) break;
            EACH(c, a.n_columns) t[c] = ease[c] * a.pull(c, dropped);
            __syncwarp();
            EACH(r, a.n_rows) right[r] = ease_r[r] > 0 ? 0 : off[r] + a.sum(r, t);
            __syncwarp();
            equations().invert();
            equations().solve(right, dy);
            EACH(r, a.n_rows) y[r] += dy[r] - dropped[r];
            __syncwarp();
        }
        EACH(r, a.n_rows) y[r] = least < ROUGH ? best_y[r] : last_y[r];
        __syncwarp();
        real rounding;
        find_pieces(fixed, dropped, &rounding);
        return least < ROUGH;
    }
};

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
    Component own(a, all_scores + instance * n, memory);
    found_low += instance * m, found_high += instance * m, found_y += instance * m;
    found_open += instance * n, found_fixed += instance * n, found_u += instance * n;
    found_free += instance * n, found_tight += instance * m, found_off += instance * m;
    found_inverse += instance * m * m;

    EACH(r, m) own.low[r] = all_low[instance * m + r], own.high[r] = all_high[instance * m + r];
    own.presolve(all_allowed + instance * n);
    EACH(r, m) found_low[r] = own.low[r], found_high[r] = own.high[r];
    EACH(c, n) found_open[c] = own.open[c], found_fixed[c] = own.u[c];
    int iterations = own.approach(most_iterations);
    if (threadIdx.x == 0) found_iterations[instance] = iterations;
    const bool has_face = own.finish(found_fixed);
    EACH(c, n) found_u[c] = own.t[c], found_free[c] = own.ease[c] > 0;
    EACH(r, m) {
        found_y[r] = own.y[r], found_off[r] = own.off[r], found_tight[r] = own.ease_r[r] == 0;
    }
    if (has_face) own.equations().invert();
    for (int r = 0; r < m; r++) {
        const real *line = own.inverse + r * (m | 1);
        EACH(i, m)
            found_inverse[r * m + i] = has_face ? -own.scale[r] * own.scale[i] * line[i] : 0;
    }
}
