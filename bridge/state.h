// torch's thread-local and global state, as far as a compiled program depends on it.
#pragma once
#include "bridge/torch.h"
#include "frontend/bridge_api.h"

namespace braze::bridge {

std::unique_ptr<frontend::GlobalStateGuard> make_state_guard();
std::unique_ptr<frontend::StateDelta> make_state_delta(const frontend::GlobalStateGuard& before);
void restore_state(const frontend::GlobalStateGuard& to);

}  // namespace braze::bridge
