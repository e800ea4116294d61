/* The rules for torch's ops with arbitrary arguments: none reads past the arguments or returns negative work. */
#include "tests/c/check.h"
#include "work/aten/aten.h"

enum { ARGUMENTS = 13, ROUNDS = 300 };

static fs_torch_builder builder;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)random_below(below);
}

static void add_tensor(void)
{
    int64_t shape[7], strides[7];
    fs_torch_tensor tensor = {(uint8_t)draw(FS_TORCH_DTYPE_COUNT + 1), draw(8), shape, draw(3) > 0 ? strides : NULL};
    for (uint32_t d = 0; d < tensor.ndim; d++) {
        shape[d] = draw(5);
        strides[d] = draw(3);
    }
    CHECK_OK(fs_torch_add_tensor(&builder, &tensor, NULL));
}

static void add_argument(void)
{
    static const char *const texts[] = {"",     "1",    "-3",         "[1, 2]", "[]",  "[0, -9, 3, 4, 5, 6, 7, 8, 9]",
                                        "True", "15",   "[True, Fal", "1e308",  "nan", "None",
                                        "[[",   "99e9", "mean",       "[1",     "inf", "-1"};
    const char *text = texts[draw(COUNT_OF(texts))];
    switch (draw(6)) {
    case 0:
        CHECK_OK(fs_torch_add_nothing(&builder, NULL));
        return;
    case 1:
        CHECK_OK(fs_torch_add_text(&builder, FS_TORCH_SCALAR, text, strlen(text), NULL));
        return;
    case 2:
        CHECK_OK(fs_torch_add_text(&builder, FS_TORCH_SCALAR_LIST, text, strlen(text), NULL));
        return;
    case 3:
        CHECK_OK(fs_torch_add_list(&builder, NULL));
        for (uint32_t i = draw(4); i > 0; i--) add_tensor();
        fs_torch_end_list(&builder);
        return;
    default:
        add_tensor();
    }
}

static bool is_sound(double number)
{
    return isnan(number) || (number >= 0 && isfinite(number));
}

static void check_work(const char *name, const fs_torch_call *call)
{
    fs_work work = fs_work_of_torch(name, call);
    CHECK(is_sound(work.flops) && is_sound(work.bytes_read) && is_sound(work.bytes_written), "%s: %g %g %g", name,
          work.flops, work.bytes_read, work.bytes_written);
}

static const char *const outers[] = {"aten::cudnn_convolution_backward", "aten::cudnn_convolution_transpose_backward",
                                     "aten::convolution_backward", "aten::max_pool2d_with_indices_backward",
                                     "aten::add"};

static void try_rule(const char *name)
{
    fs_torch_call call;
    CHECK_OK(fs_torch_begin(&builder, NULL));
    for (uint32_t i = draw(ARGUMENTS); i > 0; i--) add_argument();
    /* A copy of exactly its size, so that the sanitizer detects reading past it. */
    size_t size = fs_torch_size(&builder);
    void *bytes = malloc(size);
    memcpy(bytes, builder.words, size);
    CHECK(fs_torch_decode(bytes, size, &call));
    check_work(name, &call);
    /* Also with an enclosing op and as a gradient, both with arbitrary arguments. */
    fs_torch_call outer = call;
    call.outer = &outer;
    call.outer_name = outers[draw(COUNT_OF(outers))];
    for (uint32_t i = 0; i < call.count && call.output == NULL; i++)
        if (call.arguments[i].type == FS_TORCH_TENSOR) call.output = &call.arguments[i].tensor;
    call.untyped = draw(2) > 0;
    check_work(name, &call);
    fs_work_result_told(call.outer_name, &outer, name, &call);
    free(bytes);
}

static void try_rules(const fs_aten_rule *rules)
{
    static const char *const forms[] = {"aten::%s", "aten::%s_", "aten::%s_out", "aten::_foreach_%s_", "aten::%s.x"};
    char name[128];
    for (; rules->name != NULL; rules++) {
        for (int round = 0; round < ROUNDS; round++) {
            const char *form = forms[draw(5)], *place = strchr(form, '%');
            snprintf(name, sizeof name, "%.*s%s%s", (int)(place - form), form, rules->name, place + 2);
            try_rule(name);
        }
    }
}

/* Names without a rule, and rules with their own namespace. */
static const char *const whole_names[] = {"triton_poi_fused_embedding_0",
                                          "triton_poi_fused_add_0",
                                          "triton_per_fused_native_layer_norm_0",
                                          "triton_poi_fused_relu_0",
                                          "triton_poi_fused_tanh_backward_0",
                                          "triton_red_fused_sum_split_0",
                                          "fsdp::chunk_cat",
                                          "torchao::triton_to_mxfp8_dim0",
                                          "torchao::mx_block_rearrange_2d_M_groups"};

TEST(rules_get_arbitrary_arguments)
{
    try_rules(fs_aten_product_rules);
    try_rules(fs_aten_element_rules);
    for (size_t i = 0; i < COUNT_OF(whole_names); i++)
        for (int round = 0; round < ROUNDS; round++) try_rule(whole_names[i]);
    fs_torch_builder_clear(&builder);
}

TEST(no_name_is_listed_twice)
{
    const fs_aten_rule *lists[] = {fs_aten_product_rules, fs_aten_element_rules};
    int rows = 0;
    for (int a = 0; a < 2; a++)
        for (const fs_aten_rule *one = lists[a]; one->name != NULL; one++, rows++)
            for (int b = a; b < 2; b++)
                for (const fs_aten_rule *two = b == a ? one + 1 : lists[b]; two->name != NULL; two++)
                    CHECK(strcmp(one->name, two->name) != 0, "%s", one->name);
    CHECK(rows < 2048, "%d rows: the slots of aten.c are half full", rows);
}
