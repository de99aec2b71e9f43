/* Libraries of NVIDIA's that are opened by their path (torch and cuda.pathfinder do): the null device's in their place.
 *
 * What is opened by name alone needs nothing: the null device's libraries bear the names (DT_SONAME) and are loaded first. */
#include "null.h"

#include <dlfcn.h>
#include <string.h>

extern const char *const null_names[]; /* written by the builder: "libcudart.so.13", ..., NULL */

typedef void *(*opener)(const char *, int);
static opener real_dlopen;

__attribute__((constructor)) static void find_real(void) { real_dlopen = (opener)dlsym(RTLD_NEXT, "dlopen"); }

/* The name that stands for this path: "/x/libcudart.so.13" and "/x/libcudart.so" are both "libcudart.so.13". */
static const char *in_its_place(const char *path) {
    const char *base = path ? strrchr(path, '/') : NULL;
    if (!base || strstr(path, "/stubs/")) return path;
    base++;
    for (const char *const *name = null_names; *name; name++)
        if (!strncmp(base, *name, strlen(base)) && strstr(base, ".so")) return *name;
    return path;
}

/* The C library looks at the address that it returns to, for the caller's own search path: the call must stay a jump, which
 * gcc and clang make of it from -O2 on. */
EXPORT void *dlopen(const char *path, int mode) {
    if (!real_dlopen) find_real();
    path = in_its_place(path);
    return real_dlopen(path, mode);
}
