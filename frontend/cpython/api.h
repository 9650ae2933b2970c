/* The version-neutral view of CPython that the rest of the front end uses. One folder a Python version (v311/)
 * implements it in C, because CPython's internal headers are not C++. Everything here needs the GIL. */
#ifndef BRAZE_FRONTEND_CPYTHON_API_H
#define BRAZE_FRONTEND_CPYTHON_API_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct _PyInterpreterFrame bz_frame; /* CPython's real frame */

/* ---- frames. Offsets are instruction indices (code units), not bytes. */
PyCodeObject* bz_frame_code(bz_frame* f); /* borrowed, as all of these */
PyObject* bz_frame_function(bz_frame* f);
PyObject* bz_frame_globals(bz_frame* f);
PyObject* bz_frame_builtins(bz_frame* f);
PyObject* bz_frame_locals_mapping(bz_frame* f); /* class bodies and modules; NULL for functions */
PyObject** bz_frame_localsplus(bz_frame* f);    /* co_nlocalsplus locals (NULL: unbound), then the value stack */
int bz_frame_stack_depth(bz_frame* f);          /* of a frame that does not run (stacktop is valid) */
int bz_frame_next(bz_frame* f);                 /* the instruction that runs next */
int bz_frame_current(bz_frame* f);              /* the instruction that runs now (frames that are running) */
int bz_frame_line(bz_frame* f);                 /* user's line of the current instruction */
bool bz_frame_is_generator(bz_frame* f);        /* owned by a generator or coroutine */
PyObject* bz_frame_generator(bz_frame* f);      /* that generator or coroutine (borrowed), or NULL */
bz_frame* bz_frame_back(bz_frame* f);
bz_frame* bz_frame_of_object(PyObject* frame); /* of Python's frame object */
/* A generator or coroutine stands at a yield inside a try or with statement: closing it runs code. */
bool bz_generator_in_handler(PyObject* generator);
bz_frame* bz_frame_top(void); /* of this thread */
/* Makes the frame continue at `next` with `depth` stack entries (already written to localsplus). */
void bz_frame_set_state(bz_frame* f, int next, int depth);
int bz_code_nlocalsplus(PyCodeObject* co);
int bz_code_stacksize(PyCodeObject* co);
PyObject* bz_code_local_name(PyCodeObject* co, int i);
/* A cell or free variable: localsplus holds a cell once MAKE_CELL or COPY_FREE_VARS ran. */
bool bz_code_local_is_cell(PyCodeObject* co, int i);
bool bz_code_local_is_free(PyCodeObject* co, int i);
int bz_code_line(PyCodeObject* co, int instruction);
/* Opcode (de-optimised) and full argument of the instruction at `i`; writes the index of the one that follows. */
int bz_code_instruction(PyCodeObject* co, int i, int* oparg, int* next);
const char* bz_opcode_name(int opcode);

/* ---- running */
enum bz_outcome {
    BZ_RETURNED, /* *value: new reference */
    BZ_RAISED,   /* exception set; the frame is finished (its stack is empty) */
    BZ_STOPPED /* step: after the instruction, frame continues at bz_frame_next; trace: a break, the frame stands before
                  the instruction that cannot be traced, operands still on its stack, kwnames not yet set; no exception
                  is set */
};
/* Runs one instruction of a real frame (a group KW_NAMES, PRECALL, CALL counts as one, EXTENDED_ARG as part of its
 * instruction, and `s += t` of strings takes its STORE_FAST along), as CPython would. Calls that it makes go through
 * the hook. An exception with a handler in the frame: BZ_STOPPED, the frame stands at the handler. */
enum bz_outcome bz_step(PyThreadState* ts, bz_frame* f, int throwflag, PyObject** value);
/* Whether the next instruction only puts the top of the stack away: POP_TOP, STORE_FAST. */
bool bz_puts_away(bz_frame* f);
/* CPython's own loop runs the rest of the frame. */
PyObject* bz_leave_to_cpython(PyThreadState* ts, bz_frame* f, int throwflag);

/* ---- the hook (PEP 523). Installed while at least one user holds it; a thread-local mode is tested first. */
enum bz_mode {
    BZ_OFF = 0,
    BZ_ACTIVE, /* a compiled call runs: frames go to bz_on_frame */
    BZ_TRACING /* frames are interpreted by the traced loop */
};
int bz_mode_get(void);
int bz_mode_set(int mode);  /* returns the old one */
void bz_hook_acquire(void); /* counts; the first installs the hook, */
void bz_hook_release(void); /* the last removes it */
/* Implemented in C++ (segments/): a frame started on a thread in mode BZ_ACTIVE. Result as of an eval function. */
PyObject* bz_on_frame(PyThreadState* ts, bz_frame* f, int throwflag);

/* Runs the traced loop on a new frame of `func` (a scratch frame: real frames stay untouched), whose localsplus and
 * stack are copies of `state` (n_state entries; NULL allowed; new references are taken), continuing at instruction
 * `next`. Sets the thread's mode to BZ_TRACING meanwhile. BZ_STOPPED: *frame_state receives an array of
 * owned references (free with bz_state_free): the localsplus and stack at the break, *n_out their number, *next_out the
 * instruction that could not be traced. BZ_RAISED with a TypeError for code that cannot be a root: generators,
 * coroutines, class bodies, modules. `func` must still have the code of the real frame (its __code__ can be assigned).
 * The thread's handled exception is the same afterwards. */
enum bz_outcome bz_trace(PyObject* func, PyObject* const* state, int n_state, int next, PyObject** value,
                         PyObject*** frame_state, int* n_out, int* next_out);
void bz_state_free(PyObject** state, int n);
/* The root frame of the trace on this thread, or NULL. */
bz_frame* bz_trace_root_frame(void);
/* After BZ_STOPPED: the trace entered or left an `except` block of the root frame that surrounds the break, so the
 * thread's handled exception at the break (sys.exc_info) is not the one that bz_trace found and has put back: the
 * caller must not continue the real frame at the break. */
bool bz_trace_handler_changed(void);
/* sys.settrace or sys.setprofile is in force: frames must be left to CPython. */
bool bz_tracer_active(PyThreadState* ts);

/* ---- bits of CPython's internals that only C can see */
PyObject* bz_type_lookup(PyTypeObject* t, PyObject* name); /* borrowed or NULL; as _PyType_Lookup */
/* As _PyObject_GetDictPtr: makes the dict of inline values; may be NULL. */
PyObject** bz_instance_dict_pointer(PyObject* o);
const uint64_t* bz_dict_version_pointer(PyObject* dict); /* ma_version_tag */
uint32_t bz_type_version(PyTypeObject* t);               /* 0: none valid */
/* Borrowed or NULL, without an exception; key is a str. */
PyObject* bz_dict_get_known_hash(PyObject* dict, PyObject* key, Py_hash_t hash);
/* For functools' C lru_cache wrappers. The key of a call (args: positional, then those of kwnames), a new reference,
 * and what the cache has for a key, borrowed; NULL, without an exception: none, or the wrapper can't be looked into.
 * The second compares keys: by user code, if they hold objects of the user's. */
PyObject* bz_lru_key(PyObject* wrapper, PyObject* const* args, Py_ssize_t n, PyObject* kwnames);
PyObject* bz_lru_result(PyObject* wrapper, PyObject* key);
/* A set whose table is the same: the order of iteration and what pop() takes next depend on its history. New reference.
 */
PyObject* bz_set_duplicate(PyObject* set);
void bz_set_exchange(PyObject* a, PyObject* b); /* the contents of two sets */
bool bz_collecting_garbage(void); /* the Python code that runs now is a finaliser or a weakref's callback */
bool bz_stack_is_deep(void);      /* little C stack is left on this thread */

/* Every opcode of the running CPython has a handler: NULL, or else a message (static) that names what is missing. */
const char* bz_check_opcodes(void);
/* Call once at import. -1 with an exception: unsupported version. */
int bz_cpython_init(void);

#ifdef __cplusplus
}
#endif
#endif
