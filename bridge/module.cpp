// The Python extension braze._C: the front end's functions, with the bridge behind them.
#include "frontend/module.h"
#include "bridge/bridge.h"

extern "C" PyMODINIT_FUNC __attribute__((visibility("default"))) PyInit__C() {
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
    if (braze_frontend_init(module) < 0) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
