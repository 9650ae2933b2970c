// Random graphs: scheduled and interpreted against the reference evaluator.
#include "tests/core/random_graph.h"

#include "tests/core/schedule/compare.h"

namespace braze::testing {
namespace {

TEST(ScheduleRandom, SmallGraphs) {
    for (unsigned seed = 0; seed < 400; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const ir::Graph g = RandomGraph(seed).make(12 + static_cast<int>(seed % 20));
        ASSERT_NO_THROW(check(g, seed)) << ir::print(g);
        if (::testing::Test::HasFailure()) break;
    }
}

}  // namespace
}  // namespace braze::testing
