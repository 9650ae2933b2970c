// A Python callable run once on fakes, outside any program: its operators below autograd as a graph module.
#include "bridge/capture_operators.h"

#include <torch/csrc/utils/pybind.h>

#include "bridge/capture.h"
#include "bridge/frontend_off.h"
#include "bridge/fx_export.h"
#include "core/support/error.h"

namespace braze::bridge {

namespace py = pybind11;

FxGraph Tracer::export_operators(const std::vector<at::Tensor>& results, size_t n_inputs) {
    if (!finished_ && paused_ == 0) leave();
    finished_ = true;
    release_thread();
    freeze_arguments(trace_);
    std::vector<TraceOutput> outputs;
    for (const at::Tensor& t : results) {
        FakeImpl* fake = as_fake(t);
        BRAZE_CHECK(fake && fake->epoch() == epoch_, "a result is no tensor of this capture");
        outputs.push_back({fake->value(), t.requires_grad(), reinterpret_cast<PyTypeObject*>(THPVariableClass)});
    }
    return operators_to_fx(trace_, outputs, reals_, n_inputs);
}

PyObject* capture_operators(PyObject*, PyObject* args) {
    HANDLE_TH_ERRORS
    PyObject *fn, *inputs;
    if (!PyArg_ParseTuple(args, "OO!", &fn, &PyList_Type, &inputs)) return nullptr;
    FrontendOff off;
    std::vector<py::object> kept;  // fakes, and real tensors that the callable holds itself
    Tracer* tracer = nullptr;
    frontend::CaptureOptions options;
    options.numbers = false;  // a graph module has no operands for them
    int next = static_cast<int>(PyList_GET_SIZE(inputs));
    std::unordered_map<PyObject*, PyObject*> held;
    options.on_real_tensor = [&](PyObject* real) -> PyObject* {
        auto [it, fresh] = held.try_emplace(real);
        if (fresh) {
            it->second = tracer->fake_input(real, next, 0);
            if (it->second) {
                ++next;
                kept.push_back(py::reinterpret_borrow<py::object>(real));
                kept.push_back(py::reinterpret_steal<py::object>(it->second));
            }
        }
        return it->second;
    };
    options.on_break = [](const char* id, const std::string& detail) {
        if (!PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "%s: %s", id, detail.c_str());
    };
    Tracer capture(std::move(options));
    tracer = &capture;
    py::list fakes;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(inputs); ++i) {
        PyObject* x = PyList_GET_ITEM(inputs, i);
        TORCH_CHECK(THPVariable_Check(x), "expected a tensor, got ", Py_TYPE(x)->tp_name);
        PyObject* fake = capture.fake_input(x, static_cast<int>(i), 0);
        if (!fake) throw python_error();
        fakes.append(py::reinterpret_steal<py::object>(fake));
    }
    PyObject* returned = PyObject_CallOneArg(fn, fakes.ptr());
    if (!returned) return nullptr;
    auto results = py::reinterpret_steal<py::object>(returned);
    TORCH_CHECK(PyTuple_Check(returned), "the callable must return a tuple of tensors");
    std::vector<at::Tensor> tensors;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(returned); ++i) {
        PyObject* x = PyTuple_GET_ITEM(returned, i);
        TORCH_CHECK(THPVariable_Check(x), "the callable must return a tuple of tensors");
        tensors.push_back(THPVariable_Unpack(x));
    }
    return capture.export_operators(tensors, static_cast<size_t>(PyList_GET_SIZE(inputs))).module.release().ptr();
    END_HANDLE_TH_ERRORS
}

}  // namespace braze::bridge
