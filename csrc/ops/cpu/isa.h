/* The instruction set of the CPU loops, chosen once per process.
 *
 * Each isa_<name>.c is compiled for one instruction set and includes the same loops. The result is one table of
 * function pointers per instruction set and kind of loop, named <table>_<name>. Such a file sets the compiler's target,
 * defines FS_ISA (its name) and FS_ISA_LEVEL (its fs_isa value as a number, for #if), and includes:
 *
 *   pointwise_loops.inc   fs_cpu_pointwise_loops_<name>
 *   rows_loops.inc        fs_cpu_rows_loops_<name>
 */
#ifndef FS_OPS_CPU_ISA_H
#define FS_OPS_CPU_ISA_H

#if defined(__x86_64__) && defined(__GNUC__)
#define FS_ISA_X86 1
#else
#define FS_ISA_X86 0
#endif

typedef enum { FS_ISA_BASELINE, FS_ISA_AVX2, FS_ISA_AVX512 } fs_isa;

/* The best instruction set of this processor. The environment variable FLOPSCOPE_ISA (baseline, avx2, avx512) may lower
 * it. */
fs_isa fs_cpu_isa_id(void);

/* The chosen instruction set's copy of the table. */
#if FS_ISA_X86
#define FS_ISA_SELECT(table)                            \
    (fs_cpu_isa_id() == FS_ISA_AVX512 ? &table##_avx512 \
     : fs_cpu_isa_id() == FS_ISA_AVX2 ? &table##_avx2   \
                                      : &table##_baseline)
#define FS_ISA_DECLARE(type, table) extern const type table##_baseline, table##_avx2, table##_avx512
#else
#define FS_ISA_SELECT(table) (&table##_baseline)
#define FS_ISA_DECLARE(type, table) extern const type table##_baseline
#endif

/* FS_ISA_NAME(table) is table_avx2 in isa_avx2.c. */
#define FS_ISA_PASTE_(name, isa) name##_##isa
#define FS_ISA_PASTE(name, isa) FS_ISA_PASTE_(name, isa)
#define FS_ISA_NAME(name) FS_ISA_PASTE(name, FS_ISA)

#endif
