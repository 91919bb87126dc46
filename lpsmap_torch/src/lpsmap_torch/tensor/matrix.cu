// What the kernels share: a warp for each component, the entries of its matrix, and equations.

#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += 32)

#define INFINITE (__longlong_as_double(0x7ff0000000000000LL))
#define NOT_A_NUMBER (__longlong_as_double(0x7ff8000000000000LL))

// Added to a diagonal of ones, since redundant rows make matrices singular.
#define DAMPING 1e-10

// Added to the diagonal of rows whose multipliers are to stay zero.
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

// The larger of a number and another that may be NaN, which counts as infinite.
static __device__ real larger(real x, real other) {
    return other <= x ? x : (other == other ? other : INFINITE);
}

static __device__ real within(real x, real least, real most) { return fmin(fmax(x, least), most); }

// The entries of a component's matrix by rows and by columns, padded with zeros: first the first
// entries of all rows, then their second ones, so that a warp reads adjacent numbers.
struct Matrix {
    int n_rows, n_columns, in_row, in_column;
    const int *row_places, *column_places;
    const real *row_values, *column_values;

    __device__ real sum(int r, const real *x) const {
        const int *__restrict__ places = row_places + r;
        const real *__restrict__ values = row_values + r;
        real found = 0;
#pragma unroll 4
        for (int i = 0; i < in_row; i++) found += values[i * n_rows] * x[places[i * n_rows]];
        return found;
    }

    __device__ real pull(int c, const real *y) const {
        const int *__restrict__ places = column_places + c;
        const real *__restrict__ values = column_values + c;
        real found = 0;
#pragma unroll 2
        for (int i = 0; i < in_column; i++)
            found += values[i * n_columns] * y[places[i * n_columns]];
        return found;
    }

    // The sum of positive entries times `x`, and of negative entries times `other`.
    __device__ real half_sum(int r, const real *x, const real *other) const {
        real found = 0;
        for (int i = r; i < in_row * n_rows; i += n_rows)
            found += row_values[i] * (row_values[i] > 0 ? x : other)[row_places[i]];
        return found;
    }

    __device__ real half_pull(int c, const real *y, const real *other) const {
        real found = 0;
        for (int i = c; i < in_column * n_columns; i += n_columns)
            found += column_values[i] > 0 ? column_values[i] * y[column_places[i]]
                                          : -column_values[i] * other[column_places[i]];
        return found;
    }
};

// The equations A diag(ease) A' + diag(more); the matrix is scaled to ones on its diagonal, and
// damped. They are solved by elimination without pivoting, which is stable for a positive definite
// matrix. An explicit inverse would not be accurate enough where rows are redundant.
struct Equations {
    const Matrix &a;
    const real *ease, *more;
    real *matrix, *scale, *pivot, *rest, *pulled;

    __device__ int stride() const { return a.n_rows | 1; }  // odd, for the banks of shared memory

    __device__ void build() const {
        int n = a.n_rows;
        EACH(r, n) {
            real *own = matrix + r * stride();
            for (int i = 0; i < n; i++) own[i] = 0;
            for (int i = r; i < a.in_row * n; i += n) {
                int c = a.row_places[i];
                real weight = a.row_values[i] * ease[c];
                if (weight != 0)
                    for (int e = c; e < a.in_column * a.n_columns; e += a.n_columns)
                        own[a.column_places[e]] += weight * a.column_values[e];
            }
            real diagonal = own[r] + more[r];
            scale[r] = more[r] >= LOOSE ? 0 : (diagonal > 1e-200 ? 1 / sqrt(diagonal) : 1);
            own[r] = diagonal > 1e-200 ? diagonal : 0;
        }
        __syncwarp();
        EACH(r, n) {
            real *own = matrix + r * stride();
#pragma unroll 4
            for (int i = 0; i < n; i++) own[i] *= scale[r] * scale[i];
            own[r] = (own[r] > 0 ? 1 : 0) + DAMPING;
        }
        __syncwarp();
    }

    // Factorise, and reduce a right-hand side along with it. The columns below the diagonal stay as
    // they were eliminated.
    __device__ void factor(const real *right) const {
        int n = a.n_rows;
        build();
        EACH(r, n) rest[r] = scale[r] * right[r];
        __syncwarp();
        for (int k = 0; k < n; k++) {
            if (scale[k] == 0) continue;
            const real *__restrict__ of_pivot = matrix + k * stride();
            real inverse = 1 / fmax(of_pivot[k], DAMPING), above = rest[k];
            if (threadIdx.x == 0) pivot[k] = inverse;
            for (int r = k + 1 + threadIdx.x; r < n; r += 32) {
                real *__restrict__ own = matrix + r * stride();
                real factor = own[k] * inverse;
                if (factor == 0) continue;
#pragma unroll 8
                for (int i = k + 1; i < n; i++) own[i] -= factor * of_pivot[i];
                rest[r] -= factor * above;
            }
            __syncwarp();
        }
    }

    // Reduce another right-hand side after the factorisation.
    __device__ void reduce(const real *right) const {
        EACH(r, a.n_rows) rest[r] = scale[r] * right[r];
        __syncwarp();
        reduce_rest();
    }

    __device__ void reduce_rest() const {
        int n = a.n_rows;
        for (int k = 0; k < n; k++) {
            if (scale[k] == 0) continue;
            real above = pivot[k] * rest[k];
            for (int r = k + 1 + threadIdx.x; r < n; r += 32)
                rest[r] -= matrix[r * stride() + k] * above;
            __syncwarp();
        }
    }

    // Replace a reduced right-hand side by the solution of the scaled equations.
    __device__ void substitute() const {
        for (int k = a.n_rows - 1; k >= 0; k--) {
            if (scale[k] == 0) continue;
            real found = pivot[k] * rest[k];
            EACH(r, k) rest[r] -= matrix[r * stride() + k] * found;
            __syncwarp();
            if (threadIdx.x == 0) rest[k] = found;
        }
        __syncwarp();
    }

    // Factorise, and solve for a right-hand side without refinement.
    __device__ void eliminate(const real *right, real *x) const {
        factor(right);
        substitute();
        EACH(r, a.n_rows) x[r] = scale[r] * rest[r];
        __syncwarp();
    }

    // Solve for the right-hand side that was reduced, refined as damping and rounding need.
    __device__ void solve(const real *right, real *x) const {
        int n = a.n_rows;
        EACH(r, n) x[r] = 0;
        for (int round = 0;; round++) {
            substitute();
            EACH(r, n) x[r] += scale[r] * rest[r];
            __syncwarp();
            if (round == REFINEMENTS) return;
            EACH(c, a.n_columns) pulled[c] = ease[c] * a.pull(c, x);
            __syncwarp();
            EACH(r, n) rest[r] = scale[r] * (right[r] - a.sum(r, pulled) - more[r] * x[r]);
            __syncwarp();
            reduce_rest();
        }
    }
};
