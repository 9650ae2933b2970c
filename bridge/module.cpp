// The Python extension braze._C: the front end's functions, with the bridge behind them.
#include "frontend/module.h"
#include "bridge/bridge.h"
#include "bridge/capture_operators.h"
#include "bridge/regions.h"

extern "C" PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit__C() {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError, "Braze works in the main interpreter only; this is a subinterpreter");
        return nullptr;
    }
    // torch registers its operators and classes when it is imported
    PyObject* torch = PyImport_ImportModule("torch");
    if (!torch) return nullptr;
    Py_DECREF(torch);
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "braze._C", "The native part of Braze.", -1, nullptr};
    PyObject* module = PyModule_Create(&definition);
    if (!module) return nullptr;
    if (!braze::bridge::init()) {
        Py_DECREF(module);
        return nullptr;
    }
    braze::frontend::set_tensor_bridge(braze::bridge::tensor_bridge());
    static PyMethodDef methods[] = {{"capture_operators", braze::bridge::capture_operators, METH_VARARGS,
                                     "the operators that a callable leads to, as a graph module"},
                                    {"enter_region", braze::bridge::enter_region, METH_O,
                                     "a checkpointed part of the program that is traced begins"},
                                    {"leave_region", braze::bridge::leave_region, METH_NOARGS, "and ends"},
                                    {nullptr, nullptr, 0, nullptr}};
    if (PyModule_AddFunctions(module, methods) < 0 || braze_frontend_init(module) < 0) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
