// Calls that tests use, with the meaning the evaluator and the host give them.
#pragma once
#include "core/ir/evaluate.h"
#include "core/support/error.h"

namespace braze::testing {

// test::id(x): a copy. test::scale(x): 2 x. aten::mm(a, b). test::add_(a, b): a += b, returns a. test::fill_(a): a = 7.
// aten::copy_(a, b). test::view(x): x again, same memory. test::random(): counts calls.
inline ir::CallHandler test_calls() {
    return [count = 0.0](const ir::Node& n, std::vector<ir::HostTensor>& in, std::vector<ir::HostTensor>& out) mutable {
        auto each = [](ir::HostTensor& t, auto f) {
            for (int64_t i = 0; i < t.numel(); ++i) t.set_number(i, f(i));
        };
        if (n.callee == "test::id")
            each(out[0], [&](int64_t i) { return in[0].number(i); });
        else if (n.callee == "test::scale")
            each(out[0], [&](int64_t i) { return 2 * in[0].number(i); });
        else if (n.callee == "test::add_")
            each(in[0], [&](int64_t i) { return in[0].number(i) + in[1].number(i); });
        else if (n.callee == "aten::copy_")
            each(in[0], [&](int64_t i) { return in[1].number(i); });
        else if (n.callee == "test::fill_")
            each(in[0], [&](int64_t) { return 7.0; });
        else if (n.callee == "test::view")
            return;
        else if (n.callee == "test::random") {
            ++count;
            each(out[0], [&](int64_t) { return count; });
        } else if (n.callee == "aten::mm") {
            const int64_t rows = in[0].sizes[0], inner = in[0].sizes[1], columns = in[1].sizes[1];
            each(out[0], [&](int64_t i) {
                double s = 0;
                for (int64_t k = 0; k < inner; ++k)
                    s += in[0].number(i / columns * inner + k) * in[1].number(k * columns + i % columns);
                return s;
            });
            (void)rows;
        } else {
            throw InternalError("no test call " + n.callee);
        }
    };
}

}  // namespace braze::testing
