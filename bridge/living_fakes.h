// For debugging: no fake may be alive when its trace is over. Whatever reached one would take it for a tensor.
#pragma once
#include <string>

namespace braze::bridge {

class FakeImpl;

// Whether those made from now on are watched.
void watch_fakes(bool on);
// Called by every fake when it is made and, where this is true, when it dies.
bool watch_fake(FakeImpl* fake);
void forget_fake(FakeImpl* fake);
// Collects garbage; what refers to those that are left, or an empty string. Each is told once. Needs the GIL.
std::string living_fakes();

}  // namespace braze::bridge
