// Random graphs: scheduled and interpreted against the reference evaluator.
#include "tests/core/random_graph.h"

#include "core/ir/verify.h"
#include "tests/core/schedule/calls.h"
#include "tests/core/schedule/compare.h"
#include "tests/core/schedule/deep_graph.h"

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

// More graphs for a long run: BRAZE_RANDOM_GRAPHS=20 is twenty times as many.
unsigned times(unsigned count) {
    const char* factor = std::getenv("BRAZE_RANDOM_GRAPHS");
    return count * (factor ? static_cast<unsigned>(std::atoi(factor)) : 1);
}

void deep(bool symbolic, unsigned first, unsigned count) {
    for (unsigned seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        DeepGraph random(seed, symbolic);
        const ir::Graph g = random.make(8 + static_cast<int>(seed % 40));
        ASSERT_NO_THROW(ir::verify(g)) << ir::print(g);
        schedule::Options options;
        if (seed % 7 == 0) options.cluster_limit = 6;
        ASSERT_NO_THROW(check(g, seed, random.symbols(), test_calls(), options)) << ir::print(g);
        if (::testing::Test::HasFailure()) break;
    }
}

TEST(ScheduleRandom, DeepGraphs) { deep(false, 0, times(500)); }
TEST(ScheduleRandom, DeepGraphsWithASymbolicSize) { deep(true, 1000, times(300)); }

}  // namespace
}  // namespace braze::testing
