// Where a line of the program stands among its checkpointed parts.
#pragma once

namespace braze::autograd {

// What a checkpointed part computes is computed again for gradients rather than kept.
struct Region {
    int id = 0;          // from 1 on; 0: none
    bool keeps = false;  // but this is kept all the same
    bool operator==(const Region&) const = default;
};

}  // namespace braze::autograd
