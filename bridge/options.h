// The compiler's options, as set from Python (braze.config).
#pragma once
#include <string>

#include "bridge/torch.h"
#include "core/pipeline.h"

namespace braze::bridge {

PipelineOptions pipeline_options();  // a copy of what is set now
// false: the name is unknown, or a Python exception is set. Needs the GIL.
bool set_pipeline_option(const std::string& name, PyObject* value);

}  // namespace braze::bridge
