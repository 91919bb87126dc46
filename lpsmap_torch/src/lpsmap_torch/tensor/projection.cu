// Projections of small components on a GPU, with a warp for each component.
//
// The methods and the names are those of interior_point.py and newton.py. There, every
// operation is a kernel that reads its numbers from the device's memory and writes them back. Here
// the numbers of a component stay in shared memory until it is solved. Newton's method with a line
// search comes first, which takes as many steps as the interior point method for scores of
// magnitude 1, and less work for each; large scores and infeasible constraints are left to the
// latter.

// Rounds of fixing forced numbers, and the range of sums that are treated as fixed.
#define FORCED_ROUNDS 8
#define SLACK 1e-12

// Limits of the steps with a line search, and of the halvings of a step.
#define DESCENTS 32
#define HALVINGS 12

// The largest violation of a sum after these steps, relative to the largest multiplier, and the one
// at which they stop.
#define DESCENDED 1e-10
#define NO_VIOLATION 1e-14

// The diagonal is raised in proportion to the violations, by less if multipliers are larger than
// this.
#define DAMPED_RANGE 30.0

// Smallest accepted decrease of the dual function relative to its slope, and its rounding.
#define ARMIJO 1e-4
#define VALUE_ROUNDING 1e-14

// A point is lost to rounding if its distance is the first times the least, and the least is below
// the second.
#define LOST 1e3
#define WITHIN_REACH 1e7

// Newton's method on the pieces stops well below the residual that projection.py demands.
#define NEWTON_STEPS 6
#define STOP 1e-13
#define STOP_ROUNDING 2e-16

// With a larger residual, the result is the last multipliers of the interior point method: those of
// infeasible constraints grow until they prove it.
#define ROUGH 1e-3

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
    real *fixed;  // the values of fixed numbers, in the device's memory
    // of columns: scores, numbers, lower and upper slacks and multipliers, and inverse stiffnesses
    real *eta, *u, *ease, *t, *s0, *m0, *s1, *m1, *du;
    // of rows: bounds, sums, lower and upper slacks and multipliers, and inverse stiffnesses
    real *low, *high, *w, *s2, *m2, *s3, *m3, *y, *best_y, *ease_r, *off, *right, *dy, *dw;
    real *scale, *pivot, *rest, *matrix;
    bool *open;
    real proximal;  // the proximal terms of multipliers

    __device__ Component(const Matrix &entries, real *values, real *memory)
        : a(entries), fixed(values) {
        real **of_columns[] = {&eta, &u, &ease, &t}, **of_points[] = {&s0, &m0, &s1, &m1, &du};
        real **of_rows[] = {&low, &high,  &w,   &m2,    &m3, &y,     &best_y,
                            &ease_r, &off, &right, &dy, &scale, &pivot, &rest},
             **of_sums[] = {&s2, &s3, &dw};
#pragma unroll
        for (real **array : of_columns) *array = memory, memory += a.n_columns;
#pragma unroll
        for (real **array : of_rows) *array = memory, memory += a.n_rows;
        matrix = memory, memory += a.n_rows * (a.n_rows | 1);
        open = (bool *)memory, memory += (a.n_columns + 7) / 8;
#pragma unroll
        for (real **array : of_points) *array = memory, memory += a.n_columns;
#pragma unroll
        for (real **array : of_sums) *array = memory, memory += a.n_rows;
    }

    __device__ Equations equations() const {
        return {a, ease, ease_r, matrix, scale, pivot, rest, t};
    }

    __device__ bool is_equal(int r) const { return low[r] == high[r]; }
    __device__ bool has_low(int r) const { return low[r] > -INFINITE && !is_equal(r); }
    __device__ bool has_high(int r) const { return high[r] < INFINITE && !is_equal(r); }
    __device__ bool is_bounded(int r) const { return has_low(r) || has_high(r); }
    __device__ bool is_free(int r) const { return low[r] == -INFINITE && high[r] == INFINITE; }

    // Read scores; return whether they are valid. A score of -MAX_SCORE or less forbids.
    __device__ bool read(const real *scores) {
        real invalid = 0;
        EACH(c, a.n_columns) if (!(scores[c] < INFINITE)) invalid = 1;
        const bool is_valid = largest(invalid) == 0;
        EACH(c, a.n_columns) {
            real score = is_valid ? scores[c] : 0;
            open[c] = score > -MAX_SCORE;
            eta[c] = open[c] ? fmin(score, MAX_SCORE) : 0;
        }
        __syncwarp();
        return is_valid;
    }

    // Fix forced numbers, and remove bounds that always hold. If the least value of a sum is the
    // largest that its bound allows, the sum fixes its numbers at that value; likewise for its
    // largest value. Infeasible instances do not change.
    __device__ void presolve() {
        const int n = a.n_columns, m = a.n_rows;
        real *least = t, *most = ease, *at_least = m2, *at_most = m3;
        EACH(c, n) least[c] = 0, most[c] = open[c];
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
            if (consistent) open[c] = least[c] < most[c];
            fixed[c] = u[c] = consistent ? least[c] : 0;
        }
        EACH(r, m) {
            if (consistent && ((int)w[r] & 1)) low[r] = -INFINITE;
            if (consistent && ((int)w[r] & 2)) high[r] = INFINITE;
        }
        __syncwarp();
    }

    // The multiplier that brings the sum of a row's largest numbers to a bound, or 0 if the row is
    // not a plain sum.
    __device__ real level(int r, real bound) const {
        real most = -INFINITE, sum = 0, count = 0;
        for (int i = r; i < a.in_row * a.n_rows; i += a.n_rows) {
            if (a.row_values[i] != 0 && a.row_values[i] != 1) return 0;
            int c = a.row_places[i];
            if (a.row_values[i] == 1 && open[c]) most = fmax(most, eta[c]);
        }
        for (int i = r; i < a.in_row * a.n_rows; i += a.n_rows) {
            int c = a.row_places[i];
            if (a.row_values[i] == 1 && open[c] && eta[c] > most - 1) sum += eta[c], count += 1;
        }
        return count > 0 ? (bound - sum) / count : 0;
    }

    // Return the dual function at some multipliers; leave the numbers in `t`, flags of those inside
    // their bounds in `ease`, and the signed violations of sums in `violation`.
    __device__ real dual(const real *at, real *violation) {
        real value = 0;
        EACH(c, a.n_columns) {
            real x = eta[c] + a.pull(c, at);
            t[c] = open[c] ? within(x, 0, 1) : fixed[c];
            ease[c] = open[c] && x > 0 && x < 1;
            value += t[c] * (x - 0.5 * t[c]);
        }
        __syncwarp();
        EACH(r, a.n_rows) {
            real sum = a.sum(r, t);
            bool at_low = is_equal(r) || at[r] > 0 || (at[r] == 0 && sum < low[r]);
            bool at_high = at[r] < 0 || sum > high[r];
            violation[r] = at_low ? low[r] - sum : (at_high ? high[r] - sum : 0);
            if (at[r] != 0) value -= at[r] * (at_low ? low[r] : high[r]);
        }
        value = total(value);
        __syncwarp();
        return value;
    }

    // Go along the step `dy` until the dual function decreases; return its value there. Multipliers
    // of sums whose bounds differ keep their signs. Violations of sums are in `off`.
    __device__ real search(real value) {
        real *trial = m2, *violation = m3, reached, length = 1;
        for (int halving = 0;; halving++, length *= 0.5) {
            real slope = 0;
            EACH(r, a.n_rows) {
                real x = y[r] + length * dy[r];
                bool is_positive = y[r] > 0 || (y[r] == 0 && off[r] > 0);
                trial[r] = is_equal(r) ? x : (is_positive ? fmax(x, 0.0) : fmin(x, 0.0));
                slope -= off[r] * (trial[r] - y[r]);
            }
            slope = total(slope);
            __syncwarp();
            reached = dual(trial, violation);
            real rounding = VALUE_ROUNDING * (1 + fabs(value));
            if (halving == HALVINGS || reached <= value + ARMIJO * slope + rounding) break;
        }
        EACH(r, a.n_rows) y[r] = trial[r], off[r] = violation[r];
        __syncwarp();
        return reached;
    }

    // Leave the multipliers of the solution in `best_y` by Newton's method with a line search
    // (Li, Sun & Toh 2020); return whether it converges. Count the steps.
    __device__ bool descend(int most_steps, int *steps) {
        EACH(r, a.n_rows) y[r] = 0;
        __syncwarp();
        dual(y, off);
        EACH(r, a.n_rows) {
            // rows that share columns with others move together: only those that have to
            bool raises = off[r] > 0, moves = is_equal(r) || (a.in_column == 1 && off[r] != 0);
            real found = moves ? level(r, is_equal(r) || raises ? low[r] : high[r]) : 0;
            y[r] = is_equal(r) ? found : (raises ? fmax(found, 0.0) : fmin(found, 0.0));
        }
        __syncwarp();
        real value = dual(y, off), before = INFINITE;
        for (*steps = 0;; ++*steps) {
            real worst = 0, size = 1;
            EACH(r, a.n_rows) {
                worst = larger(worst, fabs(off[r])), size = larger(size, fabs(y[r]));
            }
            worst = largest(worst), size = largest(size);
            if (!(size < INFINITE)) return false;
            if (worst <= NO_VIOLATION) break;
            if (worst <= DESCENDED * size && worst > 0.5 * before) break;
            if (*steps == most_steps) return false;
            before = worst;
            real damping = fmin(DAMPED_RANGE / size, 1.0) * fmin(worst, 1.0);
            EACH(r, a.n_rows) {
                bool moves = is_equal(r) || y[r] != 0 || off[r] != 0;
                ease_r[r] = moves ? damping : LOOSE, right[r] = off[r];
            }
            __syncwarp();
            equations().eliminate(right, dy);
            value = search(value);
        }
        EACH(r, a.n_rows) best_y[r] = y[r];
        __syncwarp();
        return true;
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

    // Prepare the equations of the steps from the point; the predictor factorises them.
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
        if (aim.corrects)
            equations().reduce(right);
        else
            equations().factor(right);
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
        real ratio = within(ahead / fmax(now, MIN_PRODUCT), 0, 1);
        return {true, now * ratio * ratio * ratio, MAX_CORRECTED * now};
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
            residual = larger(residual, force / (1 + fabs(eta[c]) + fabs(pull)));
            product = larger(product, fmax(s0[c] * m0[c], s1[c] * m1[c]));
        }
        EACH(r, a.n_rows) {
            if (!is_free(r)) residual = larger(residual, fabs(a.sum(r, u) - w[r]));
            product = larger(product, fmax(s2[r] * m2[r], s3[r] * m3[r]));
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
    __device__ real find_pieces(real *dropped, real *rounding) {
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
            residual = larger(residual, tight ? fabs(off[r]) + 0 * y[r] : fabs(y[r]));
            dropped[r] = tight ? 0 : y[r];
        }
        residual = largest(residual), *rounding = STOP + STOP_ROUNDING * largest(free_size);
        __syncwarp();
        return residual;
    }

    // Solve from `best_y` by Newton's method, and leave the pieces of the solution; return their
    // residual. See newton.py.
    __device__ real finish() {
        real *last_y = m2, *dropped = m3, least = INFINITE;
        EACH(r, a.n_rows) last_y[r] = y[r], y[r] = best_y[r];
        __syncwarp();
        for (int step = 0;; step++) {
            real rounding, residual = find_pieces(dropped, &rounding);
            if (residual < least) {
                least = residual;
                EACH(r, a.n_rows) best_y[r] = y[r];
            }
            if (step == NEWTON_STEPS || least <= rounding) break;
            EACH(c, a.n_columns) t[c] = ease[c] * a.pull(c, dropped);
            __syncwarp();
            EACH(r, a.n_rows) right[r] = ease_r[r] > 0 ? 0 : off[r] + a.sum(r, t);
            __syncwarp();
            equations().factor(right);
            equations().solve(right, dy);
            EACH(r, a.n_rows) y[r] += dy[r] - dropped[r];
            __syncwarp();
        }
        EACH(r, a.n_rows) y[r] = least < ROUGH ? best_y[r] : last_y[r];
        __syncwarp();
        real rounding;
        return find_pieces(dropped, &rounding);
    }

    // The residual of the pieces; infinite with a multiplier that is not a number.
    __device__ real residual() const {
        real found = 0;
        EACH(r, a.n_rows) {
            found = larger(found, ease_r[r] > 0 ? fabs(y[r]) : fabs(off[r]) + 0 * y[r]);
        }
        return largest(found);
    }

    // Whether a residual is rounding; see `is_exact`.
    __device__ bool is_exact(real residual) const {
        real score = 0, multiplier = 0;
        EACH(c, a.n_columns) if (ease[c] > 0) score = fmax(score, fabs(eta[c]));
        EACH(r, a.n_rows) multiplier = fmax(multiplier, fabs(y[r]));
        const real rounding = EXACT + ROUNDING * (largest(score) + largest(multiplier));
        return residual < INFINITE && residual <= rounding;
    }

    // Whether the multipliers prove that the constraints are infeasible; see `proves_infeasible`.
    __device__ bool is_infeasible() {
        real size = 1, margin = 0, sizes = 0;
        EACH(r, a.n_rows) {
            rest[r] = fabs(y[r] > 0 ? low[r] : high[r]) < INFINITE ? y[r] : 0;
            size = fmax(size, fabs(rest[r]));
        }
        size = largest(size);
        EACH(r, a.n_rows) {
            rest[r] /= size;
            real required = rest[r] == 0 ? 0 : rest[r] * (rest[r] > 0 ? low[r] : high[r]);
            margin += required, sizes += fabs(required);
        }
        __syncwarp();
        EACH(c, a.n_columns) {
            real pull = a.pull(c, rest), attained = open[c] ? fmax(pull, 0.0) : fixed[c] * pull;
            margin -= attained, sizes += fabs(attained);
        }
        __syncwarp();
        return total(margin) > PROVED * total(sizes);
    }

    // Move free numbers onto the face, within their bounds; see `on_face`. Return the maximum
    // distance of a tight sum from its bound.
    __device__ real move_onto_face() {
        EACH(r, a.n_rows) right[r] = ease_r[r] > 0 ? 0 : off[r];
        __syncwarp();
        equations().factor(right);
        equations().solve(right, dy);
        EACH(c, a.n_columns) {
            real moved = ease[c] > 0 ? within(u[c] + a.pull(c, dy), 0, 1) : u[c];
            t[c] = u[c] - moved, u[c] = moved;
        }
        __syncwarp();
        real most = 0;
        EACH(r, a.n_rows) if (ease_r[r] == 0) {
            off[r] += a.sum(r, t);
            most = larger(most, fabs(off[r]));
        }
        __syncwarp();
        return largest(most);
    }

    // The duality gap of the values in `u`.
    __device__ real gap() const {
        real found = 0;
        EACH(r, a.n_rows) {
            real bound = y[r] > 0 ? low[r] : high[r];
            if (y[r] != 0 && fabs(bound) < INFINITE) found += y[r] * (a.sum(r, u) - bound);
        }
        return total(found);
    }
};

extern "C" __global__ void project(
    const real *all_scores, const real *all_low, const real *all_high, const int *row_places,
    const real *row_values, const int *column_places, const real *column_values, int n_rows,
    int n_columns, int in_row, int in_column, int differ, int most_iterations, real *found_u,
    real *found_y, real *found_ease, bool *found_tight, real *found_gap,
    real *found_residual, bool *found_exact, bool *found_infeasible, long long *found_iterations) {
    extern __shared__ real memory[];
    const long long instance = blockIdx.x;
    const int n = n_columns, m = n_rows;
    const long long row_table = differ * instance * m * in_row;
    const long long column_table = differ * instance * n * in_column;
    const Matrix a = {m, n, in_row, in_column, row_places + row_table, column_places + column_table,
                      row_values + row_table, column_values + column_table};
    found_u += instance * n, found_ease += instance * n;
    found_y += instance * m, found_tight += instance * m;

    Component own(a, found_u, memory);
    EACH(r, m) own.low[r] = all_low[instance * m + r], own.high[r] = all_high[instance * m + r];
    const bool is_valid = own.read(all_scores + instance * n);
    own.presolve();
    int iterations = 0, most_steps = most_iterations < DESCENTS ? most_iterations : DESCENTS;
    const real first = own.descend(most_steps, &iterations) ? own.finish() : INFINITE;
    real residual = first;
    if (!own.is_exact(first)) {
        EACH(r, m) found_y[r] = own.y[r];
        iterations += own.approach(most_iterations);
        residual = own.finish();
        if (residual > first) {
            EACH(r, m) own.best_y[r] = found_y[r];
            __syncwarp();
            residual = own.finish();
        }
    }
    const bool is_infeasible = own.is_infeasible();
    bool is_exact = own.is_exact(residual) && !is_infeasible;
    EACH(c, n) own.u[c] = own.t[c];
    __syncwarp();
    if (is_exact && residual > STOP) is_exact = own.move_onto_face() <= MAX_DISTANCE;
    residual = own.residual();
    const real gap = own.gap();
    EACH(c, n) {
        found_u[c] = is_valid ? own.u[c] : NOT_A_NUMBER;
        found_ease[c] = is_infeasible ? 0 : own.ease[c];
    }
    EACH(r, m) found_y[r] = own.y[r], found_tight[r] = own.ease_r[r] == 0 && !is_infeasible;
    if (threadIdx.x) return;
    found_gap[instance] = gap, found_residual[instance] = is_valid ? residual : INFINITE;
    found_exact[instance] = is_exact && is_valid;
    found_infeasible[instance] = is_infeasible && is_valid;
    found_iterations[instance] = iterations;
}
