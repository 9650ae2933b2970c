/* Frames, code objects and the small windows on CPython's internals. */
#include "frontend/cpython/v311/internal.h"

PyCodeObject *bz_frame_code(bz_frame *f) { return f->f_code; }
PyObject *bz_frame_function(bz_frame *f) { return (PyObject *)f->f_func; }
PyObject *bz_frame_globals(bz_frame *f) { return f->f_globals; }
PyObject *bz_frame_builtins(bz_frame *f) { return f->f_builtins; }
PyObject *bz_frame_locals_mapping(bz_frame *f) { return f->f_locals; }
PyObject **bz_frame_localsplus(bz_frame *f) { return f->localsplus; }
int bz_frame_stack_depth(bz_frame *f) { return f->stacktop - f->f_code->co_nlocalsplus; }
int bz_frame_current(bz_frame *f) { return _PyInterpreterFrame_LASTI(f); }
int bz_frame_next(bz_frame *f) { return bz_frame_current(f) + 1; }
int bz_frame_line(bz_frame *f) { return bz_code_line(f->f_code, bz_frame_current(f)); }
bool bz_frame_is_generator(bz_frame *f) { return f->owner == FRAME_OWNED_BY_GENERATOR; }
bz_frame *bz_frame_back(bz_frame *f) { return f->previous; }
bz_frame *bz_frame_of_object(PyObject *frame) { return ((PyFrameObject *)frame)->f_frame; }
bz_frame *bz_frame_top(void) { return PyThreadState_Get()->cframe->current_frame; }

PyObject *bz_frame_generator(bz_frame *f) {
    return bz_frame_is_generator(f) ? (PyObject *)_PyFrame_GetGenerator(f) : NULL;
}

bool bz_generator_in_handler(PyObject *generator) {
    PyGenObject *g = (PyGenObject *)generator;
    bz_frame *f = (bz_frame *)g->gi_iframe;
    int depth, target, push_lasti;
    if (g->gi_frame_state == FRAME_CREATED) return PyCoro_CheckExact(generator); /* a warning: it was never awaited */
    if (g->gi_frame_state != FRAME_SUSPENDED) return false;
    return bz_find_handler(f->f_code, bz_frame_current(f), &depth, &target, &push_lasti);
}

void bz_frame_set_state(bz_frame *f, int next, int depth) {
    f->prev_instr = _PyCode_CODE(f->f_code) + next - 1;
    f->stacktop = f->f_code->co_nlocalsplus + depth;
}

int bz_code_nlocalsplus(PyCodeObject *co) { return co->co_nlocalsplus; }
int bz_code_stacksize(PyCodeObject *co) { return co->co_stacksize; }
PyObject *bz_code_local_name(PyCodeObject *co, int i) { return PyTuple_GET_ITEM(co->co_localsplusnames, i); }

static int local_kind(PyCodeObject *co, int i) { return _PyLocals_GetKind(co->co_localspluskinds, i); }
bool bz_code_local_is_cell(PyCodeObject *co, int i) { return (local_kind(co, i) & (CO_FAST_CELL | CO_FAST_FREE)) != 0; }
bool bz_code_local_is_free(PyCodeObject *co, int i) { return (local_kind(co, i) & CO_FAST_FREE) != 0; }

int bz_code_line(PyCodeObject *co, int instruction) {
    return PyCode_Addr2Line(co, instruction * (int)sizeof(_Py_CODEUNIT));
}

int bz_code_instruction(PyCodeObject *co, int i, int *oparg, int *next) {
    const _Py_CODEUNIT *code = _PyCode_CODE(co);
    int arg = 0, opcode;
    for (;; i++) {
        opcode = _PyOpcode_Deopt[_Py_OPCODE(code[i])];
        arg = arg << 8 | _Py_OPARG(code[i]);
        if (opcode != EXTENDED_ARG) break;
    }
    if (oparg) *oparg = arg;
    if (next) *next = i + 1 + _PyOpcode_Caches[opcode];
    return opcode;
}

bool bz_tracer_active(PyThreadState *ts) { return ts->cframe->use_tracing != 0; }

PyObject *bz_type_lookup(PyTypeObject *t, PyObject *name) { return _PyType_Lookup(t, name); }

PyObject **bz_instance_dict_pointer(PyObject *o) {
    PyObject **p = _PyObject_GetDictPtr(o);
    if (!p) PyErr_Clear(); /* no memory for the dict; or no dict at all, without an exception */
    return p;
}

const uint64_t *bz_dict_version_pointer(PyObject *dict) { return &((PyDictObject *)dict)->ma_version_tag; }

uint32_t bz_type_version(PyTypeObject *t) {
    return PyType_HasFeature(t, Py_TPFLAGS_VALID_VERSION_TAG) ? t->tp_version_tag : 0;
}

bool bz_collecting_garbage(void) { return _PyInterpreterState_GET()->gc.collecting != 0; }

PyObject *bz_dict_get_known_hash(PyObject *dict, PyObject *key, Py_hash_t hash) {
    PyObject *v = _PyDict_GetItem_KnownHash(dict, key, hash);
    if (!v && PyErr_Occurred()) PyErr_Clear();
    return v;
}
