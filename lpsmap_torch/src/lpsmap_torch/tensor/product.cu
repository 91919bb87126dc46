// Products with the Jacobians of projections on their faces, with a warp for each component; see
// `Face.multiply`.

extern "C" __global__ void multiply(
    const real *all_d, const real *all_ease, const bool *all_tight, const int *row_places,
    const real *row_values, const int *column_places,
    const real *column_values, int n_rows, int n_columns, int in_row, int in_column, int differ,
    real *found) {
    extern __shared__ real memory[];
    const long long instance = blockIdx.x;
    const int n = n_columns, m = n_rows;
    const long long row_table = differ * instance * m * in_row;
    const long long column_table = differ * instance * n * in_column;
    const Matrix a = {m, n, in_row, in_column, row_places + row_table, column_places + column_table,
                      row_values + row_table, column_values + column_table};
    const real *d = all_d + instance * n, *ease = all_ease + instance * n;
    const bool *tight = all_tight + instance * m;
    found += instance * n;

    real *moved = memory, *y = moved + n, *right = y + m, *loose = right + m, *scale = loose + m;
    real *pivot = scale + m, *rest = pivot + m, *matrix = rest + m, poison = 0;
    const Equations equations = {a, ease, loose, matrix, scale, pivot, rest, moved};
    EACH(c, n) moved[c] = ease[c] * d[c], poison += 0 * d[c];
    poison = total(poison);  // NaN unless all numbers are finite
    __syncwarp();
    EACH(r, m) {
        loose[r] = tight[r] ? 0 : LOOSE;
        right[r] = tight[r] ? a.sum(r, moved) : 0;
    }
    __syncwarp();
    equations.factor(right);
    equations.solve(right, y);
    EACH(c, n) found[c] = ease[c] * (d[c] - a.pull(c, y)) + poison;
}
