/* Start-up: the version of the running CPython and its opcodes. */
#define NEED_OPCODE_TABLES \
    1 /* libpython hides its _PyOpcode_Deopt and _PyOpcode_Caches: the header defines them, here only */
#include <stdint.h>
#include "frontend/cpython/v311/internal.h"

static const char *const handled[256] = {
#define X(name) [name] = #name,
#include "frontend/cpython/v311/opcodes.def"
#undef X
};

const char *bz_opcode_name(int opcode) {
    if (opcode == CACHE) return "CACHE";
    return opcode >= 0 && opcode < 256 && handled[opcode] ? handled[opcode] : "unknown opcode";
}

const char *bz_check_opcodes(void) {
    static char message[200];
    const char *result = NULL;
    PyObject *module = PyImport_ImportModule("opcode");
    PyObject *map = module ? PyObject_GetAttrString(module, "opmap") : NULL, *key, *value;
    Py_ssize_t pos = 0;
    if (!map || !PyDict_Check(map)) result = "the table opcode.opmap of the running Python cannot be read";
    while (!result && PyDict_Next(map, &pos, &key, &value)) {
        const char *name = PyUnicode_AsUTF8(key);
        long number = PyLong_AsLong(value);
        if (!name || number < 0 || number > 255) {
            result = "the table opcode.opmap of the running Python has an unknown form";
        } else if (number != CACHE && (!handled[number] || strcmp(handled[number], name))) {
            snprintf(message, sizeof message, "no handler for opcode %ld (%s); %s", number, name,
                     handled[number] ? "another opcode was expected there" : "it is unknown");
            result = message;
        }
    }
    PyErr_Clear();
    Py_XDECREF(map);
    Py_XDECREF(module);
    return result;
}

#define X(n) PyObject *bz_id_##n;
BZ_NAMES(X)
#undef X
PyObject *bz_empty_string;

int bz_cpython_init(void) {
    if ((Py_Version >> 16) != (PY_VERSION_HEX >> 16)) {
        PyErr_Format(PyExc_ImportError, "braze supports CPython 3.11 (built for %s), found %s", PY_VERSION,
                     Py_GetVersion());
        return -1;
    }
    if (bz_empty_string) return 0;
#define X(n) \
    if (!bz_id_##n && !(bz_id_##n = PyUnicode_InternFromString(#n))) return -1;
    BZ_NAMES(X)
#undef X
    const char *missing = bz_check_opcodes();
    if (missing) {
        PyErr_Format(PyExc_ImportError, "braze supports CPython 3.11, but the running CPython (%s) differs: %s",
                     Py_GetVersion(), missing);
        return -1;
    }
    if (bz_init_substitutes() < 0) return -1;
    bz_empty_string = PyUnicode_FromString("");
    return bz_empty_string ? 0 : -1;
}
