// SPDX-License-Identifier: Apache-2.0
//
// The smallest use of an operator: normalise two rows of four numbers, then see what a wrong
// argument says. Build with: cc rmsnorm.c $(pkg-config --cflags --libs bolide)

#include <bolide/bolide.h>

#include <math.h>
#include <stdio.h>

int main(void) {
    float x[2][4] = {{1, 2, 3, 4}, {-1, 0, 0, 1}};
    float weight[4] = {1, 1, 2, 2};
    float y[2][4];
    int64_t rows[2] = {2, 4}, columns[1] = {4};

    /* A tensor is a view of memory that is already there; NULL strides mean contiguous. */
    const bolide_device cpu = {BOLIDE_CPU, 0};
    const bolide_dtype f32 = bolide_dtype_of(BOLIDE_F32);
    bolide_tensor tx = {x, cpu, 2, f32, rows, NULL, 0};
    bolide_tensor tw = {weight, cpu, 1, f32, columns, NULL, 0};
    bolide_tensor ty = {y, cpu, 2, f32, rows, NULL, 0};

    bolide_rmsnorm_args args;
    if (bolide_args_init("rmsnorm", &args, sizeof args) != BOLIDE_OK)
        return 1;
    args.input = &tx;
    args.weight = &tw;
    args.out = &ty;
    /* A context of NULL is the CPU, and a CPU has no stream. */
    if (bolide_rmsnorm(NULL, &args, NULL) != BOLIDE_OK) {
        fprintf(stderr, "%s\n", bolide_last_error()->message);
        return 1;
    }
    for (int i = 0; i < 2; i++)
        printf("%9.6f %9.6f %9.6f %9.6f\n", y[i][0], y[i][1], y[i][2], y[i][3]);

    /* The mean of 1, 4, 9 and 16 is 7.5. */
    if (fabs(y[0][3] - 2 * 4 / sqrt(7.5 + 1e-6)) > 1e-5)
        return 1;

    /* A weight of the wrong length is refused by name, and y is left as it was. */
    columns[0] = 3;
    if (bolide_rmsnorm(NULL, &args, NULL) != BOLIDE_INVALID_ARGUMENT)
        return 1;
    printf("%s\n", bolide_last_error()->message);
    return 0;
}
