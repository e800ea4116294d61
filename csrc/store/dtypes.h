/* The element types, one row each: everything that flopscope knows of a dtype. What lists dtypes is made from here. */
#ifndef FS_STORE_DTYPES_H
#define FS_STORE_DTYPES_H

/* OWN(NAME, name, bytes, C type of the stored bits, DLPack type, format, kind, Kineto, c10, number, plain, product,
 *     fallback)
 * TORCH(NAME, name, bytes, kind, Kineto, c10, number, plain, product, fallback)
 *
 * OWN: a dtype of flopscope's tensors; floats, the dtypes of arithmetic ops, come first. TORCH: known from traces only.
 *
 * name      as torch.dtype and NumPy print it
 * bytes     of an element, as torch.dtype.itemsize: 1 for elements of less than a byte
 * DLPack    FS_DL_… (ops/dtype.h)
 * format    of Python's buffer protocol (struct); NULL: it and NumPy lack the dtype
 * kind      FS_TORCH_… (torch_signature.h)
 * Kineto    as it writes the C++ type (caffe2::TypeMeta::name)
 * c10       as c10::toString prints it, and NCCL's events name it
 * number    of c10::ScalarType (c10/core/ScalarType.h), as recorded for arguments of ops
 * plain     the compute unit of arithmetic (device/units.def): float32 computes for narrower floats
 * product   the unit of matrix products, which TF32 replaces for float32 where it is allowed
 * fallback  the unit of products on devices without that; the same unit if there is no other
 */
#define FS_DTYPES(OWN, TORCH)                                                                                         \
    OWN(FLOAT64, float64, 8, double, FLOAT, "d", FLOAT, "double", "Double", 7, FP64, FP64_TENSOR, FP64)               \
    OWN(FLOAT32, float32, 4, float, FLOAT, "f", FLOAT, "float", "Float", 6, FP32, FP32, FP32)                         \
    OWN(FLOAT16, float16, 2, uint16_t, FLOAT, "e", FLOAT, "c10::Half", "Half", 5, FP32, FP16_TENSOR, FP32)            \
    OWN(BFLOAT16, bfloat16, 2, uint16_t, BFLOAT, NULL, FLOAT, "c10::BFloat16", "BFloat16", 15, FP32, BF16_TENSOR,     \
        FP32)                                                                                                         \
    OWN(FLOAT8_E4M3FN, float8_e4m3fn, 1, uint8_t, FLOAT8_E4M3FN, NULL, FLOAT8, "c10::Float8_e4m3fn", "Float8_e4m3fn", \
        24, FP32, FP8_TENSOR, FP8_TENSOR)                                                                             \
    OWN(FLOAT8_E5M2, float8_e5m2, 1, uint8_t, FLOAT8_E5M2, NULL, FLOAT8, "c10::Float8_e5m2", "Float8_e5m2", 23, FP32, \
        FP8_TENSOR, FP8_TENSOR)                                                                                       \
    TORCH(FLOAT8_E4M3FNUZ, float8_e4m3fnuz, 1, FLOAT8, "c10::Float8_e4m3fnuz", "Float8_e4m3fnuz", 26, FP32,           \
          FP8_TENSOR, FP8_TENSOR)                                                                                     \
    TORCH(FLOAT8_E5M2FNUZ, float8_e5m2fnuz, 1, FLOAT8, "c10::Float8_e5m2fnuz", "Float8_e5m2fnuz", 25, FP32,           \
          FP8_TENSOR, FP8_TENSOR)                                                                                     \
    TORCH(FLOAT8_E8M0FNU, float8_e8m0fnu, 1, FLOAT8, "c10::Float8_e8m0fnu", "Float8_e8m0fnu", 44, FP32, NONE, NONE)   \
    TORCH(FLOAT4_E2M1FN_X2, float4_e2m1fn_x2, 1, FLOAT4, "c10::Float4_e2m1fn_x2", "Float4_e2m1fn_x2", 45, FP32, NONE, \
          NONE)                                                                                                       \
    OWN(INT64, int64, 8, int64_t, INT, "q", INTEGER, "long int", "Long", 4, NONE, NONE, NONE)                         \
    OWN(INT32, int32, 4, int32_t, INT, "i", INTEGER, "int", "Int", 3, NONE, NONE, NONE)                               \
    TORCH(INT16, int16, 2, INTEGER, "short int", "Short", 2, NONE, NONE, NONE)                                        \
    OWN(INT8, int8, 1, int8_t, INT, "b", INTEGER, "signed char", "Char", 1, NONE, INT8_TENSOR, INT8_TENSOR)           \
    OWN(UINT8, uint8, 1, uint8_t, UINT, "B", INTEGER, "unsigned char", "Byte", 0, NONE, INT8_TENSOR, INT8_TENSOR)     \
    TORCH(UINT16, uint16, 2, INTEGER, "short unsigned int", "UInt16", 27, NONE, NONE, NONE)                           \
    TORCH(UINT32, uint32, 4, INTEGER, "unsigned int", "UInt32", 28, NONE, NONE, NONE)                                 \
    TORCH(UINT64, uint64, 8, INTEGER, "long unsigned int", "UInt64", 29, NONE, NONE, NONE)                            \
    OWN(BOOL, bool, 1, uint8_t, BOOL, "?", INTEGER, "bool", "Bool", 11, NONE, NONE, NONE)                             \
    TORCH(COMPLEX32, complex32, 4, COMPLEX, "c10::complex<c10::Half>", "ComplexHalf", 8, FP32, NONE, NONE)            \
    TORCH(BCOMPLEX32, bcomplex32, 4, COMPLEX, "c10::complex<c10::BFloat16>", "BComplex32", 46, FP32, NONE, NONE)      \
    TORCH(COMPLEX64, complex64, 8, COMPLEX, "c10::complex<float>", "ComplexFloat", 9, FP32, FP32, FP32)               \
    TORCH(COMPLEX128, complex128, 16, COMPLEX, "c10::complex<double>", "ComplexDouble", 10, FP64, FP64_TENSOR, FP64)  \
    TORCH(QINT8, qint8, 1, INTEGER, "c10::qint8", "QInt8", 12, NONE, NONE, NONE)                                      \
    TORCH(QUINT8, quint8, 1, INTEGER, "c10::quint8", "QUInt8", 13, NONE, NONE, NONE)                                  \
    TORCH(QINT32, qint32, 4, INTEGER, "c10::qint32", "QInt32", 14, NONE, NONE, NONE)                                  \
    TORCH(BITS8, bits8, 1, INTEGER, "c10::bits8", "Bits8", 21, NONE, NONE, NONE)                                      \
    TORCH(BITS16, bits16, 2, INTEGER, "c10::bits16", "Bits16", 22, NONE, NONE, NONE)                                  \
    TORCH(BITS1X8, bits1x8, 1, INTEGER, "c10::bits1x8", "Bits1x8", 18, NONE, NONE, NONE)                              \
    TORCH(BITS2X4, bits2x4, 1, INTEGER, "c10::bits2x4", "Bits2x4", 19, NONE, NONE, NONE)                              \
    TORCH(BITS4X2, bits4x2, 1, INTEGER, "c10::bits4x2", "Bits4x2", 20, NONE, NONE, NONE)                              \
    TORCH(QUINT4X2, quint4x2, 1, INTEGER, "c10::quint4x2", "QUInt4x2", 16, NONE, NONE, NONE)                          \
    TORCH(QUINT2X4, quint2x4, 1, INTEGER, "c10::quint2x4", "QUInt2x4", 17, NONE, NONE, NONE)                          \
    TORCH(UINT1, uint1, 1, INTEGER, "c10::dummy_uint1_7_t<1>", "UInt1", 30, NONE, NONE, NONE)                         \
    TORCH(UINT2, uint2, 1, INTEGER, "c10::dummy_uint1_7_t<2>", "UInt2", 31, NONE, NONE, NONE)                         \
    TORCH(UINT3, uint3, 1, INTEGER, "c10::dummy_uint1_7_t<3>", "UInt3", 32, NONE, NONE, NONE)                         \
    TORCH(UINT4, uint4, 1, INTEGER, "c10::dummy_uint1_7_t<4>", "UInt4", 33, NONE, NONE, NONE)                         \
    TORCH(UINT5, uint5, 1, INTEGER, "c10::dummy_uint1_7_t<5>", "UInt5", 34, NONE, NONE, NONE)                         \
    TORCH(UINT6, uint6, 1, INTEGER, "c10::dummy_uint1_7_t<6>", "UInt6", 35, NONE, NONE, NONE)                         \
    TORCH(UINT7, uint7, 1, INTEGER, "c10::dummy_uint1_7_t<7>", "UInt7", 36, NONE, NONE, NONE)                         \
    TORCH(INT1, int1, 1, INTEGER, "c10::dummy_int1_7_t<1>", "Int1", 37, NONE, NONE, NONE)                             \
    TORCH(INT2, int2, 1, INTEGER, "c10::dummy_int1_7_t<2>", "Int2", 38, NONE, NONE, NONE)                             \
    TORCH(INT3, int3, 1, INTEGER, "c10::dummy_int1_7_t<3>", "Int3", 39, NONE, NONE, NONE)                             \
    TORCH(INT4, int4, 1, INTEGER, "c10::dummy_int1_7_t<4>", "Int4", 40, NONE, NONE, NONE)                             \
    TORCH(INT5, int5, 1, INTEGER, "c10::dummy_int1_7_t<5>", "Int5", 41, NONE, NONE, NONE)                             \
    TORCH(INT6, int6, 1, INTEGER, "c10::dummy_int1_7_t<6>", "Int6", 42, NONE, NONE, NONE)                             \
    TORCH(INT7, int7, 1, INTEGER, "c10::dummy_int1_7_t<7>", "Int7", 43, NONE, NONE, NONE)

/* Other names of these dtypes. X(NAME, name): what Kineto writes if another compiler or library built torch. */
#define FS_DTYPE_KINETO_NAMES(X) \
    X(INT64, "long")             \
    X(INT64, "long long")        \
    X(INT16, "short")            \
    X(UINT16, "unsigned short")  \
    X(UINT64, "unsigned long")

/* In the names of Triton's kernels. */
#define FS_DTYPE_TRITON_NAMES(X)  \
    X(BFLOAT16, "bf16")           \
    X(FLOAT16, "fp16")            \
    X(FLOAT16, "f16")             \
    X(FLOAT32, "fp32")            \
    X(FLOAT32, "f32")             \
    X(FLOAT8_E4M3FN, "fp8")       \
    X(FLOAT8_E4M3FN, "fp8e4")     \
    X(FLOAT8_E4M3FN, "fp8e4m3")   \
    X(FLOAT8_E4M3FN, "fp8e4nv")   \
    X(FLOAT8_E4M3FN, "mxfp8e4m3") \
    X(FLOAT8_E5M2, "fp8e5")       \
    X(FLOAT8_E5M2, "fp8e5m2")

#endif
