/* Numbers and texts of a backend_config, which is JSON. Its keys differ from one another and from its values, so a key
 * is found as text; a config that is no JSON has none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "work/hlo/cost_parts.h"

/* Return the text after `"key":`, or NULL. */
static const char *after(const char *config, const char *key)
{
    size_t size = strlen(key);
    for (const char *at = config; at != NULL && (at = strstr(at, key)) != NULL; at += size) {
        const char *end = at + size;
        if (at == config || at[-1] != '"' || *end != '"') continue;
        end += 1 + strspn(end + 1, " ");
        if (*end == ':') return end + 1 + strspn(end + 1, " ");
    }
    return NULL;
}

int fs_hlo_config_numbers(const char *config, const char *key, double *numbers, int capacity)
{
    const char *text = after(config, key);
    int count = 0;
    if (text == NULL) return -1;
    bool list = *text == '[';
    text += list;
    for (;;) {
        char *end;
        text += strspn(text, list ? "\", " : "\"");
        if (*text != '-' && (*text < '0' || *text > '9')) return count;
        double number = strtod(text, &end);
        if (end == text) return count;
        if (count == capacity) return count;
        numbers[count++] = number;
        if (!list) return count;
        text = end;
    }
}

double fs_hlo_config_number(const char *config, const char *key, double missing)
{
    double number;
    return fs_hlo_config_numbers(config, key, &number, 1) == 1 ? number : missing;
}

bool fs_hlo_config_is(const char *config, const char *key, const char *text)
{
    const char *value = after(config, key);
    size_t size = strlen(text);
    if (value == NULL) return false;
    value += *value == '"';
    return strncmp(value, text, size) == 0 && strchr("\",}]", value[size]) != NULL;
}

bool fs_hlo_config_has(const char *config, const char *key, const char *text)
{
    const char *value = after(config, key), *found = value != NULL ? strstr(value, text) : NULL;
    return found != NULL && found < value + strcspn(value, *value == '[' ? "]" : ",}");
}
