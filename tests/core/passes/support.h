// What the tests of passes share.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ir/builder.h"
#include "core/ir/evaluate.h"
#include "core/ir/text.h"
#include "core/ir/verify.h"
#include "core/passes/pass.h"

namespace braze::testing {

// Runs the pass by name, verified; returns the text afterwards.
bool apply(const char* pass, ir::Graph& g);
std::string after(const char* pass, const std::string& text);
// Both texts are the same graph up to numbering.
::testing::AssertionResult same(const std::string& got, const std::string& want);

// Runs the few aten operators that the tests use.
void run_aten(const ir::Node& n, std::vector<ir::HostTensor>& operands, std::vector<ir::HostTensor>& results);

// Small numbers, some of them 0, -0.0, infinite or NaN; equal seeds give equal tensors. Inputs with the same storage
// share memory.
std::vector<ir::HostTensor> random_inputs(const ir::Graph& g, unsigned seed, bool special);

// Outputs and inputs after a run of both graphs on equal inputs: same bytes (NaNs are equal), same layout, same sharing
// of memory.
void expect_same_effect(const ir::Graph& before, const ir::Graph& after, unsigned seed, bool special = false);

}  // namespace braze::testing
