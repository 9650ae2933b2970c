/* One instruction of a real frame, as CPython would run it. */
#include "frontend/cpython/v311/internal.h"

#define LOOP run_plain
#define TRACED 0
#define ACCESS(x) bz_default_##x
#define ABORTING() 0
#define READ_CONTAINER(c) ((void)0)
#define MUTATE(c) ((void)0)
#define LOAD_NAME_OF bz_load_name
#define LOAD_CLASS_NAME bz_load_class_name
#define STORE_NAME_OF bz_store_name
#define DELETE_NAME_OF bz_delete_name
#define EXTEND_LIST(l, from) OKAY(bz_list_extend(l, from))
#define UPDATE_DICT(d, from) OKAY(bz_dict_update(d, from))
#define MERGE_DICT(d, from, fn) OKAY(bz_dict_merge(d, from, fn))
#define SEND_TO(receiver, v, r, status) ((status) = PyIter_Send(receiver, v, &(r)))
#include "frontend/cpython/v311/loop.h"

enum bz_outcome bz_step(PyThreadState *ts, bz_frame *f, int throwflag, PyObject **value) {
    return run_plain(ts, f, throwflag, false, value);
}

bool bz_puts_away(bz_frame *f) {
    int op = _PyOpcode_Deopt[_Py_OPCODE(f->prev_instr[1])];
    return op == POP_TOP || op == STORE_FAST;
}

PyObject *bz_leave_to_cpython(PyThreadState *ts, bz_frame *f, int throwflag) {
    return _PyEval_EvalFrameDefault(ts, f, throwflag);
}
